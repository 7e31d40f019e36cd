"""The simulation: the scene, the backend that steps it, and its entities by name."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import mujoco
import torch

from embodichain.lab.sim import objects, sensors
from embodichain.lab.sim.backend import make_backend, parse_sim_device
from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    EmissionLightCfg,
    LightCfg,
    MarkerCfg,
    RigidObjectCfg,
    RigidObjectGroupCfg,
    RobotCfg,
    SimulationManagerCfg,
)
from embodichain.lab.sim.model.scene import EntityCfg, SceneBuilder, compile_scene_file, member_cfgs
from embodichain.lab.sim.model.terrain import TerrainCfg
from embodichain.lab.sim.rendering.renderer import Appearance, Drawer, make_drawer
from embodichain.utils import ConfigError, logger, unknown_name
from embodichain.utils.profiling import section
from embodichain.utils.state import declared_state, load_attributes
from embodichain.utils.system import count_processors

T = TypeVar("T")
Movable = objects.RigidObject | objects.Articulation
Asset = Movable | objects.SceneBody


class SimulationManager:
    """Owns the scene and the backend. Entities are added first; :meth:`build` then compiles them, once.

    Example::

        sim = SimulationManager(SimulationManagerCfg(num_envs=4))
        sim.add_rigid_object(RigidObjectCfg("ball", shape=SphereCfg(), init_pos=(0, 0, 1)))
        sim.build()
        sim.update(substeps=10)
        sim.get_rigid_object("ball").get_local_pose()

    Attributes:
        rigid_objects, articulations, robots, sensors, contact_sensors: entities by uid; ``sensors`` are the cameras.
        changes: differences between each articulation in the scene and its file, one per line, by uid.
    """

    _latest: ClassVar["SimulationManager | None"] = None

    def __init__(self, cfg: SimulationManagerCfg) -> None:
        self.rigid_objects: dict[str, objects.RigidObject] = {}
        self.articulations: dict[str, objects.Articulation] = {}
        self.robots: dict[str, objects.Robot] = {}
        self.sensors: dict[str, sensors.Camera] = {}
        self.contact_sensors: dict[str, sensors.ContactSensor] = {}
        self._markers: dict[str, objects.Marker] = {}
        self._groups: dict[str, objects.RigidObjectGroup] = {}
        self._lights: dict[str, objects.Light] = {}
        self._bodies: dict[str, objects.SceneBody] = {}
        SimulationManager._latest = self
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        _, self.device = parse_sim_device(cfg.sim_device)
        self.builder = SceneBuilder(cfg)
        self.changes = self.builder.contents.changes
        self._scene_file: str | None = None
        self._softened: dict[str, str] = {}
        self._backend: Backend | None = None
        self._contact_columns: dict[str, slice] = {}
        self._detached: list[Movable] = []
        self.terrain: objects.Terrain | None = None  # None: level ground
        self._drawing: Drawer | None = None

    @classmethod
    def is_instantiated(cls) -> bool:
        """Return whether there is a simulation that was not destroyed."""
        return cls._latest is not None

    @classmethod
    def get_instance(cls) -> "SimulationManager":
        """Return the latest simulation; RuntimeError if there is none, or it was destroyed."""
        if cls._latest is None:
            raise RuntimeError("there is no SimulationManager: none was created, or the latest was destroyed")
        return cls._latest

    def destroy(self) -> None:
        """Close the simulation, and let :meth:`get_instance` forget it."""
        self.close()
        if SimulationManager._latest is self:
            SimulationManager._latest = None

    def add(self, cfg: EntityCfg) -> None:
        """Add an entity of any kind (before :meth:`build`); ConfigError where its config does not fit the scene.

        A contact sensor's articulation must be there already; the first light replaces the default one.
        """
        self._check_unbuilt()
        self.builder.add(cfg)

    add_rigid_object = add_articulation = add_robot = add_rigid_object_group = add_marker = add_light = add_sensor = add

    def vary_inertia(self, uid: str) -> None:
        """Let the centres of mass of a rigid body, or of links, differ between environments (before :meth:`build`)."""
        self._check_unbuilt()
        is_jointed = uid in self.builder.contents.links
        self.builder.vary_inertia(uid if is_jointed else self._rigid_object_cfg(uid).uid)

    def add_mesh_variants(self, uid: str, paths: Sequence[Path]) -> None:
        """Give a rigid body further meshes for single environments to choose from (before :meth:`build`)."""
        self._check_unbuilt()
        cfg = self._rigid_object_cfg(uid)
        if (kind := cfg.shape.shape_type) != "Mesh":
            raise ConfigError(f"rigid object '{uid}': only a Mesh can be replaced by others, got a {kind}")
        self.builder.add_mesh_variants(cfg, paths)

    def add_terrain(self, cfg: TerrainCfg) -> None:
        """Put a terrain in the place of the level ground (before :meth:`build`)."""
        self._check_unbuilt()
        self.builder.add_terrain(cfg)

    def use_scene_file(self, name: str) -> None:
        """Simulate the scene of an MJCF file, a path or ``gymnasium/<file>``, as it is (before :meth:`build`).

        Only cameras can be added. The length of a substep, gravity and solver are the file's, too.
        """
        self._check_unbuilt()
        self._scene_file = name

    def add_emission_light(self, cfg: EmissionLightCfg) -> None:
        """Set the ambient light (before :meth:`build`)."""
        self._check_unbuilt()
        self.builder.set_emission_light(cfg)

    def build(self) -> None:
        """Compile the scene and start all environments in its initial state."""
        self._check_unbuilt()
        file = self._scene_file
        scene = self.builder.compile() if file is None else compile_scene_file(file)
        threads, device = self.cfg.num_threads, self.cfg.sim_device
        backend = make_backend(scene.model, scene.visual_model, self.num_envs, threads, device)
        self._backend, self._softened = backend, scene.softened
        for name, sensor in scene.contact_sensors.items():
            first = int(scene.model.sensor(sensor).adr[0])
            self._contact_columns[name] = slice(first, first + 3)
        if scene.terrain is not None:
            self.terrain = objects.Terrain(scene.terrain, self.num_envs, self.device)
        if file is not None:
            names = [scene.model.body(body).name for body in range(1, scene.model.nbody)]
            self._bodies = {name: objects.SceneBody(name, backend) for name in names if name}
        for uid, cfg in self.builder.entities.items():
            match cfg:
                case RobotCfg():
                    chain = scene.joints[uid], scene.links[uid], scene.parts[uid]
                    self.robots[uid] = objects.Robot(cfg, backend, *chain)
                case ArticulationCfg():
                    self.articulations[uid] = objects.Articulation(cfg, backend, scene.joints[uid], scene.links[uid])
                case RigidObjectCfg():
                    self.rigid_objects[uid] = objects.RigidObject(cfg, backend, scene.variants.get(uid, []))
                case MarkerCfg():
                    self._markers[uid] = objects.Marker(cfg, backend)
                case LightCfg():
                    self._lights[uid] = objects.Light(cfg, scene.visual_model, self.appearance)
                case RigidObjectGroupCfg():
                    members = [self.rigid_objects[member.uid] for member in member_cfgs(cfg).values()]
                    self._groups[uid] = objects.RigidObjectGroup(cfg, members)
                case sensors.StereoCameraCfg():
                    self.sensors[uid] = sensors.StereoCamera(cfg, backend, self.appearance, self._drawer)
                case sensors.ContactSensorCfg():
                    links = scene.sensed_links[uid]
                    column = int(scene.model.sensor(f"{uid}/force/{links[0]}").adr[0])
                    self.contact_sensors[uid] = sensors.ContactSensor(cfg, backend, links, column)
                case sensors.CameraCfg():
                    self.sensors[uid] = sensors.Camera(cfg, backend, self.appearance, self._drawer)

    @property
    def backend(self) -> Backend:
        """The physics engine; available after :meth:`build`."""
        if self._backend is None:
            raise RuntimeError("the scene is not built yet: call SimulationManager.build()")
        return self._backend

    @cached_property
    def state_cache(self) -> objects.StateCache:
        """Values that terms and tasks computed from the present state; available after :meth:`build`."""
        return objects.StateCache(self.backend)

    @cached_property
    def appearance(self) -> Appearance:
        """The appearance of each environment; available after :meth:`build`."""
        return Appearance(self.backend.visual_model, self.num_envs)

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model that all environments share."""
        return self.backend.model

    def save_model(self, path: Path) -> None:
        """Write the compiled model, visual shapes included, as MuJoCo's binary file: ``MjModel.from_binary_path``."""
        mujoco.mj_saveModel(self.backend.visual_model, str(path), None)

    @property
    def entity_uids(self) -> list[str]:
        """The uids of all entities, sorted."""
        return sorted([*self.builder.entities, *self._bodies])

    @section("physics")
    def update(self, substeps: int = 1, env_ids: torch.Tensor | None = None) -> None:
        """Advance the physics of environments [n] (None: all) by ``substeps`` substeps."""
        if self._softened:  # now the drives have their modes
            articulations = (*self.articulations.values(), *self.robots.values())
            by_effort = {name for articulation in articulations for name in articulation.drives.by_effort()}
            if texts := [text for name, text in self._softened.items() if name not in by_effort]:
                logger.warn_once(
                    f"drives too stiff for physics_dt {self.cfg.physics_dt}, softened: {'; '.join(texts)}. A smaller "
                    "env.sim_cfg.physics_dt with more env.sim_steps_per_control keeps their gains"
                )
            self._softened = {}
        self.backend.step(substeps, env_ids)
        for sensor in self.contact_sensors.values():
            sensor.update(substeps * self.cfg.physics_dt, env_ids)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Put environments [n] into the scene's initial state, except detached entities; on a terrain's first cell."""
        states = [(asset, asset.get_state(env_ids)) for asset in self._detached]
        self.backend.reset(env_ids)
        for asset, state in states:
            asset.set_state(state, env_ids)
        for sensor in self.contact_sensors.values():
            sensor.reset(env_ids)

    def place_on_terrain(self, env_ids: torch.Tensor) -> None:
        """Put the robots with a free base, at rest, where their environments [n] start: origin and ``init_pos``."""
        if self.terrain is not None:
            robots = [robot for robot in self.robots.values() if robot.base.is_free and robot not in self._detached]
            self.terrain.place([robot.base for robot in robots], env_ids)

    def detach_from_reset(self, uids: Sequence[str]) -> None:
        """Let rigid bodies, articulations or robots keep their state at every reset from now on."""
        movable: dict[str, Movable] = {**self.rigid_objects, **self.articulations, **self.robots}
        found = [find_entity(movable, "entity", uid) for uid in uids]
        self._detached += [asset for asset in found if asset not in self._detached]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the physics and of the entities, for a checkpoint."""
        return {
            "backend": self.backend.state_dict(),
            "parts": {name: declared_state(part) for name, part in self.parts().items()},
            "appearance": self.appearance.state_dict(),
            "sensors": {name: declared_state(camera) for name, camera in self._cameras().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state_dict` for the same scene."""
        self.backend.load_state_dict(state["backend"])
        for name, part in self.parts().items():
            load_attributes(part, state["parts"][name])
        self.appearance.load_state_dict(state["appearance"])
        for name, camera in self._cameras().items():
            load_attributes(camera, state["sensors"][name])

    def parts(self) -> dict[str, Any]:
        """Return the objects with a state of their own, outside the physics, by name in a checkpoint."""
        found: dict[str, Any] = {f"._lights.{uid}": light for uid, light in self._lights.items()}
        found |= {f".contact_sensors.{uid}": sensor for uid, sensor in self.contact_sensors.items()}
        found |= {f"._rigid_objects.{uid}.physics": body.physics for uid, body in self.rigid_objects.items()}
        for kind, articulations in (("_articulations", self.articulations), ("_robots", self.robots)):
            for uid, articulation in articulations.items():
                found |= {f".{kind}.{uid}.drives": articulation.drives, f".{kind}.{uid}._base": articulation.base}
        if self.terrain is not None:
            found["terrain"] = self.terrain
        return found

    def get_contact_force(self, uid: str, link: str | None = None) -> torch.Tensor:
        """Return the sum of the contact forces, [N, 3] N, world frame, on a rigid object or an articulation's link.

        The object needs ``sense_contacts``; an articulation's must list the ``link``.
        """
        name = f"{uid}/{link}" if link else uid
        if name not in self._contact_columns:
            raise KeyError(unknown_name("body with sense_contacts", name, self._contact_columns))
        # The engine's sensor has the force of the body on the others.
        return -self.backend.read("sensordata")[:, self._contact_columns[name]]

    def get_rigid_object(self, uid: str) -> objects.RigidObject:
        """Return a rigid body; KeyError names the known ones."""
        return find_entity(self.rigid_objects, "rigid object", uid)

    def get_articulation(self, uid: str) -> objects.Articulation:
        """Return an articulation; KeyError names the known ones."""
        return find_entity(self.articulations, "articulation", uid)

    def get_robot(self, uid: str) -> objects.Robot:
        """Return a robot; KeyError names the known ones."""
        return find_entity(self.robots, "robot", uid)

    def get_articulation_or_robot(self, uid: str) -> objects.Articulation:
        """Return an articulation or a robot; KeyError names the known ones."""
        return find_entity({**self.articulations, **self.robots}, "articulation or robot", uid)

    def get_asset(self, uid: str) -> Asset:
        """Return a rigid body, articulation, robot or body of a file; KeyError names the known ones."""
        assets: dict[str, Asset] = {**self.rigid_objects, **self._bodies}
        return find_entity(assets | self.articulations | self.robots, "entity", uid)

    def get_marker(self, uid: str) -> objects.Marker:
        """Return a marker; KeyError names the known ones."""
        return find_entity(self._markers, "marker", uid)

    def get_body(self, uid: str) -> objects.SceneBody:
        """Return a body of the scene's file; KeyError names the known ones."""
        return find_entity(self._bodies, "body", uid)

    def get_rigid_object_group(self, uid: str) -> objects.RigidObjectGroup:
        """Return a group of rigid bodies; KeyError names the known ones."""
        return find_entity(self._groups, "rigid object group", uid)

    def get_light(self, uid: str) -> objects.Light:
        """Return a light; KeyError names the known ones."""
        return find_entity(self._lights, "light", uid)

    def get_sensor(self, uid: str) -> sensors.Camera:
        """Return a camera; KeyError names the known ones."""
        return find_entity(self.sensors, "sensor", uid)

    def get_contact_sensor(self, uid: str) -> sensors.ContactSensor:
        """Return a contact sensor; KeyError names the known ones."""
        return find_entity(self.contact_sensors, "contact sensor", uid)

    def hold_images(self, is_held: bool) -> None:
        """Let cameras return their last images without rendering, or render again when they are read."""
        for camera in self._cameras().values():
            camera.is_held = is_held

    def _cameras(self) -> dict[str, sensors.Camera]:
        """Return all cameras by name, with the right ones of stereo cameras."""
        stereo = {uid: sensor for uid, sensor in self.sensors.items() if isinstance(sensor, sensors.StereoCamera)}
        return self.sensors | {f"{uid}.right": sensor.right for uid, sensor in stereo.items()}

    def close(self) -> None:
        """Free the renderer."""
        if self._drawing is not None:
            self._drawing.close()
            self._drawing = None

    def _drawer(self) -> Drawer:
        """Return the renderer of the cameras; it is chosen for the first image."""
        if self._drawing is None:
            cfg = self.cfg
            count = min(cfg.num_threads or count_processors(), self.num_envs)
            self._drawing = make_drawer(self.backend, self.appearance, count, cfg.enable_rt, cfg.render_device)
        return self._drawing

    def _rigid_object_cfg(self, uid: str) -> RigidObjectCfg:
        cfgs = {uid: cfg for uid, cfg in self.builder.entities.items() if isinstance(cfg, RigidObjectCfg)}
        if uid not in cfgs:
            raise ConfigError(unknown_name("rigid object", uid, cfgs))
        return cfgs[uid]

    def _check_unbuilt(self) -> None:
        if self._backend is not None:
            raise RuntimeError("the scene is built already: entities are added before build(), which is called once")


def find_entity(entities: Mapping[str, T], kind: str, uid: str) -> T:
    """Return one of the entities; KeyError names the known ones."""
    if uid not in entities:
        raise KeyError(unknown_name(kind, uid, entities))
    return entities[uid]
