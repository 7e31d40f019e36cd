"""The environments' typed configs, their mirror maps, and their way back to the data of a config file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, Self

import torch
from gymnasium import spaces
from pydantic import Field

from embodichain.lab.gym.envs import managers
from embodichain.lab.gym.envs.managers.record import record_camera_data
from embodichain.lab.gym.registry import find_env_id
from embodichain.lab.sim import SimulationManagerCfg
from embodichain.lab.sim.cfg import ArticulationCfg, LightsCfg, RigidObjectCfg, RigidObjectGroupCfg, RobotCfg, SensorCfg
from embodichain.lab.sim.model.terrain import TerrainCfg
from embodichain.utils import ConfigError, collected, configclass, raise_problems, replace, to_dict, unknown_name
from embodichain.utils.observations import Mirror, MirrorMap, entry_columns
from embodichain.utils.utility import as_json


@configclass
class EnvCfg:
    """The fields of every environment."""

    num_envs: Annotated[int, Field(ge=1)] = 1
    """Environments simulated side by side; overrides ``sim_cfg.num_envs``."""
    sim_cfg: SimulationManagerCfg = field(default_factory=SimulationManagerCfg)
    """The simulation."""
    seed: int = 1
    """Seed of the environments' random streams."""
    sim_steps_per_control: Annotated[int, Field(ge=1)] = 4
    """Physics substeps in one step of the environment."""
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Time limit in steps; None: the registered one, or no limit."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size share all random draws, and so their initial states; 1: none do. A
    training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment, on which the random streams depend. It is unique over the processes of a
    distributed training and the env sets of asynchronous collection; a training sets it."""


@configclass
class MirrorCfg:
    """The mirror image of a vector: component i becomes ``signs[i] * x[permutation[i]]``."""

    permutation: list[int]
    """Source of each component, an index from 0."""
    signs: list[Literal[-1, 1]]
    """Factor of each component."""


@configclass
class EnvSymmetryCfg:
    """Mirror images of observations and actions, left and right exchanged."""

    observations: dict[str, MirrorCfg] = {}
    """Entries of the flat observation by name, such as ``joints/pos``: all of them."""
    actions: dict[str, MirrorCfg] = {}
    """Action terms by name: all of them."""


@configclass
class EmbodiedEnvCfg(EnvCfg):
    """The fields of an environment's config file."""

    robot: RobotCfg | None = None
    """The robot that acts; required, unless the scene is a file (``scene``)."""
    scene: str | None = None
    """Instead of all entities but cameras: an MJCF file that is the whole scene, for tasks of class ``SceneEnv``. A
    path, or ``gymnasium/<file>`` for a scene of the package gymnasium."""
    rigid_object: list[RigidObjectCfg] = []
    """Rigid bodies."""
    background: list[RigidObjectCfg] = []
    """Rigid bodies that never move, such as tables."""
    articulation: list[ArticulationCfg] = []
    """Articulations other than the robot."""
    rigid_object_group: list[RigidObjectGroupCfg] = []
    """Groups of rigid bodies."""
    sensor: list[SensorCfg] = []
    """Cameras, with images ``sensor/<uid>/...`` in the observation, and contact sensors."""
    light: LightsCfg = field(default_factory=LightsCfg)
    """Lights in place of the default one."""
    terrain: TerrainCfg | None = None
    """Uneven ground; None: a plane."""
    control_parts: list[str] | None = None
    """The robot's control parts that the actions move, in this order; None: ``arm`` where the robot has one, else
    all joints that have a drive."""
    active_joint_ids: list[int] | None = None
    """Instead: the joints themselves, by index."""
    actions: dict[str, managers.ActionTermCfg] = field(default_factory=dict)
    """Action terms by term name; required, unless the task has its own."""
    commands: dict[str, managers.CommandCfg] = field(default_factory=dict)
    """Commands that the policy follows, such as a velocity, by term name."""
    observations: dict[str, managers.ObservationCfg] = field(default_factory=dict)
    """Observations by term name."""
    rewards: dict[str, managers.RewardCfg] = field(default_factory=dict)
    """Rewards by term name."""
    terminations: dict[str, managers.TerminationCfg] = field(default_factory=dict)
    """Terminations by term name, in addition to the task's own."""
    curriculum: dict[str, managers.CurriculumCfg] = field(default_factory=dict)
    """Curriculum by term name: changes with the policy's progress. Evaluations have none."""
    events: dict[str, managers.EventCfg] = field(default_factory=dict)
    """Events by term name."""
    dataset: dict[str, managers.DatasetCfg] = field(default_factory=dict)
    """Recorders of finished episodes, by name."""
    symmetry: EnvSymmetryCfg | None = None
    """The mirror map, for algorithms that use the symmetry of robot and task."""
    extensions: dict[str, Any] = field(default_factory=dict)
    """Become attributes of the environment, for the task's own parameters; checked against its class's annotations."""

    def for_run(self, seed: int, num_envs: int, **simulation: Any) -> Self:
        """Return the config of a run's environments; ``simulation`` has fields of ``sim_cfg``."""
        return replace(self, seed=seed, num_envs=num_envs, sim_cfg=replace(self.sim_cfg, **simulation))

    def for_training(self, events: dict[str, managers.EventCfg], group_size: int) -> Self:
        """Return the config with a training's further events, and with its algorithm's groups."""
        return replace(self, events=self.events | events, group_size=group_size)

    def for_evaluation(self, events: dict[str, managers.EventCfg], num_envs: int) -> Self:
        """Return the config with an evaluation's further events and number of environments.

        A curriculum follows the training's progress; evaluations are about the task as it is configured.
        """
        return replace(self, events=self.events | events, num_envs=num_envs, curriculum={})

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes, with its own number of environments and first global id.

        ``num_threads`` counts unless the config has it; ``device`` replaces any GPU in the config.
        """
        devices = {name: str(getattr(self.sim_cfg, name)) for name in ("sim_device", "render_device")}
        on_gpu = {name: str(device) for name, place in devices.items() if place.startswith("cuda")}
        sim_cfg = replace(self.sim_cfg, num_threads=self.sim_cfg.num_threads or num_threads, **on_gpu)
        return replace(self, num_envs=num_envs, first_env_id=first_env_id, sim_cfg=sim_cfg)

    def without_records(self) -> Self:
        """Return the config without writers of files: videos, datasets."""
        events = {
            name: event
            for name, event in self.events.items()
            if not (isinstance(event.func, type) and issubclass(event.func, record_camera_data))
        }
        return replace(self, dataset={}, events=events)

    def with_images(self) -> Self:
        """Return the config itself: images can be made of any scene."""
        return self


def check_groups(cfg: EnvCfg) -> None:
    """Raise a ConfigError if the environments cannot be divided into groups of ``group_size``."""
    if cfg.num_envs % cfg.group_size:
        raise ConfigError(f"group_size: {cfg.num_envs} environments cannot be divided into groups of {cfg.group_size}")


def check_parts(parts: Sequence[str], known: Iterable[str]) -> None:
    """Raise a ConfigError if ``env.control_parts`` is empty or has a part that is not among the robot's, ``known``."""
    if not parts:
        raise ConfigError("env.control_parts: at least one is needed")
    for part in parts:
        if part not in known:
            raise ConfigError(f"env.control_parts: {unknown_name('control part', part, known)}")


SCENE_KEYS = (
    *("robot", "scene", "rigid_object", "rigid_object_group", "background"),
    *("articulation", "sensor", "light", "terrain"),
)
"""Fields of ``EmbodiedEnvCfg`` at the top of a file, next to ``env``: the scene."""
TOP_FIELDS = ("max_episode_steps", "num_envs")
"""Further ones, which may stand in ``env``, too."""

_PLACE = "the environment's config"
_SHIPPED = ("embodichain.lab.gym.envs.managers.", "embodichain.ext.")


def config_data(cfg: EmbodiedEnvCfg, env_class: type) -> dict[str, Any]:
    """Return the content of a file that ``config_to_cfg`` reads back to a config of a registered class."""
    env_id = find_env_id(env_class)
    if env_id is None:
        raise ConfigError(f"the environment's class {env_class.__name__} is not registered (@register_env)")
    env = to_dict(cfg)
    top = {key: env.pop(key) for key in (*SCENE_KEYS, *TOP_FIELDS)}
    for block, terms in vars(cfg).items():
        if isinstance(terms, dict) and any(isinstance(term, managers.FunctorCfg) for term in terms.values()):
            env[block] = terms_data(terms)
    env["sim_cfg"]["sim_device"] = str(cfg.sim_cfg.sim_device)  # a script's may be a torch.device
    given = {key: value for key, value in top.items() if value is not None}
    return as_json(
        {"id": env_id, **given, "env": {key: value for key, value in env.items() if value is not None}}, _PLACE
    )


def terms_data(terms: Mapping[str, managers.FunctorCfg]) -> dict[str, Any]:
    """Return the content of a block of terms."""
    block = {name: to_dict(term) | {"func": _name_of(term.func, name)} for name, term in terms.items()}
    return as_json(block, _PLACE)


def _name_of(func: Callable[..., Any] | str, term: str) -> str:
    if isinstance(func, str):
        return func
    module, name = getattr(func, "__module__", "__main__"), getattr(func, "__qualname__", "<")
    if module == "__main__" or "<" in name:
        raise ConfigError(f"the function of the term '{term}' has no name in a module that could be imported")
    return name if module.startswith(_SHIPPED) else f"{module}.{name}"


def build_mirror_map(cfg: EnvSymmetryCfg, observation: spaces.Dict, action_dims: Mapping[str, int]) -> MirrorMap:
    """Return the mirror map, on the CPU, for one environment's observation and its action terms' sizes, in order."""
    problems: list[str] = []
    entry_dims = {name: columns.stop - columns.start for name, columns in entry_columns(observation).items()}
    of_entries = _mirrors(cfg.observations, entry_dims, "env.symmetry.observations", problems)
    of_actions = _mirrors(cfg.actions, action_dims, "env.symmetry.actions", problems)
    raise_problems(problems)
    return MirrorMap(Mirror.joined(of_entries), Mirror.joined(of_actions))


def _mirrors(cfg: Mapping[str, MirrorCfg], sizes: Mapping[str, int], place: str, problems: list[str]) -> list[Mirror]:
    problems += [f"{place}: {unknown_name('name', name, sizes)}" for name in cfg if name not in sizes]
    problems += [f"{place}.{name}: required, but missing" for name in sizes if name not in cfg]
    found = []
    for name in (name for name in sizes if name in cfg):
        with collected(problems):
            mirror = Mirror.of(cfg[name].permutation, cfg[name].signs, f"{place}.{name}")
            if mirror.size != sizes[name]:
                raise ConfigError(f"{place}.{name}: has {mirror.size} components, needed are {sizes[name]}")
            found.append(mirror)
    return found
