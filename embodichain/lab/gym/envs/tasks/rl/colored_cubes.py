"""Coloured cubes, of which an instruction names one.

Shapes: N environments, n in ``env_ids``, C cubes, S skills, L words.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.actions import EefPlaneTerm, EefPositionTerm
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.envs.tasks.rl.pick_cube import expert_arm, finger_problems, is_gripped
from embodichain.lab.gym.registry import register_env
from embodichain.lab.gym.utils.instructions import encode_instructions
from embodichain.lab.sim.cfg import RigidBodyAttributesCfg, RigidObjectCfg
from embodichain.lab.sim.objects import cached_per_state
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils.device import constant

Colour = Literal["red", "green", "blue"]
_COLOURS: dict[Colour, tuple[float, float, float, float]] = {
    "red": (0.85, 0.12, 0.1, 1.0),
    "green": (0.1, 0.65, 0.15, 1.0),
    "blue": (0.1, 0.2, 0.85, 1.0),
}
_MASS, _FRICTION, _DAMPING = 0.3, 0.6, 2.0  # kg, coefficient, 1/s


class ColoredCubesEnv(EmbodiedEnv):
    """The scene, instructions and observation of tasks with coloured cubes; a task writes success and reward.

    Which cube the instruction names, which of the task's ``skills`` it asks for, which colour stands at which of the
    places, and where exactly, is drawn for each episode.

    The observation is a robot's: ``image/<camera>`` [N, H, W, 3] uint8, ``state`` [N, J + 3] (positions of the
    arm's joints, rad, and of its tool, m), ``instruction`` [N, L] int64 (tokens of
    ``embodichain.lab.gym.utils.instructions``), and the base entries ``robot/*``. Where the cubes are is not in it.

    Attributes:
        named: the cube that the instruction names, [N] int64.
        skill: the skill that it asks for, [N] int64.
    """

    base_entries = (*EmbodiedEnv.base_entries, "state", "instruction")
    added_uids = tuple(f"{colour}_cube" for colour in _COLOURS)
    skills: ClassVar[tuple[str, ...]]
    """S beginnings of an instruction: skills to apply to the cube."""
    colours: Annotated[Sequence[Colour], Field(min_length=1)] = ("red", "green", "blue")
    """Colours of the cubes, each a name of ``_COLOURS``; with a single one the task is to find it."""
    max_disturbance: float = 0.03
    """Largest horizontal shift of the other cubes, m."""
    cube_size: float = 0.05
    """Edge, m."""
    row: tuple[float, float] = (-0.72, -0.164)
    """x and y of the middle of the places, m."""
    spacing: float = 0.15
    """Between the places, along y, m."""
    jitter: tuple[float, float] = (0.03, 0.03)
    """Largest random offset of a cube from its place along x and y, m."""

    def __init__(self, cfg: EmbodiedEnvCfg) -> None:
        colours = cfg.extensions.get("colours", type(self).colours)
        self.texts = tuple(f"{skill} the {colour} cube" for skill in self.skills for colour in colours)
        self._tokens = encode_instructions(self.texts)  # [S C, L]
        super().__init__(cfg)

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        attrs = RigidBodyAttributesCfg(
            mass=_MASS,
            static_friction=_FRICTION,
            dynamic_friction=_FRICTION,
            linear_damping=_DAMPING,
            angular_damping=_DAMPING,
        )
        shape = CubeCfg(size=(self.cube_size,) * 3)
        for i, colour in enumerate(self.colours):
            pos = (self.row[0], self.row[1] + (i - self._middle) * self.spacing, self.cube_size / 2)
            uid, rgba = f"{colour}_cube", _COLOURS[colour]
            self.sim.add_rigid_object(RigidObjectCfg(uid, shape=shape, attrs=attrs, rgba=rgba, init_pos=pos))

    def _init_sim_state(self) -> None:
        self.cubes = [self.sim.get_rigid_object(f"{colour}_cube") for colour in self.colours]
        self._tokens = self._tokens.to(self.device)
        self.named = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self.skill = torch.zeros_like(self.named)
        self._begun = torch.zeros(self.num_envs, len(self.cubes), 2, device=self.device)
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        count = len(self.cubes)
        with self.random.stream("cubes"):
            order = self.random.uniform(env_ids, 0.0, 1.0, count).argsort(dim=1)
            named = self.random.uniform(env_ids, 0.0, float(count), 1).long().squeeze(1)
            reach = constant(tuple(self.jitter) * count, self.device, torch.float32)
            shift = self.random.uniform(env_ids, -reach, reach, 2 * count).unflatten(1, (count, 2))
            skill = self.random.uniform(env_ids, 0.0, float(len(self.skills)), 1).long().squeeze(1)
        aside = (order - self._middle) * self.spacing
        places = torch.stack((torch.zeros_like(aside), aside), dim=2)
        begun = constant(tuple(self.row), self.device, torch.float32) + places + shift  # [n, C, 2]
        for i, cube in enumerate(self.cubes):
            pose = torch.cat((cube.initial_pos, cube.initial_quat)).repeat(len(env_ids), 1)
            pose[:, :2] = begun[:, i]
            cube.set_local_pose(pose, env_ids)
        self.named = self.named.index_copy(0, env_ids, named)
        self.skill = self.skill.index_copy(0, env_ids, skill)
        self._begun = self._begun.index_copy(0, env_ids, begun)
        super()._initialize_episode(env_ids)

    def instructions(self) -> list[str]:
        """Return each environment's instruction in words, N of them."""
        return [self.texts[i] for i in self._instruction().tolist()]

    def _instruction(self) -> Tensor:
        """Return the numbers of the instructions in ``texts``, [N] int64."""
        return self.skill * len(self.cubes) + self.named

    @property
    def _middle(self) -> float:
        """The number of the middle place; between two places if there is none."""
        return (len(self.colours) - 1) / 2

    def displacement(self) -> Tensor:
        """Return each cube's horizontal distance from its start, [N, C], m; do not write into it."""
        return self._displacement_from(self._begun)

    @cached_per_state
    def _displacement_from(self, begun: Tensor) -> Tensor:
        return torch.linalg.vector_norm(self.positions()[..., :2] - begun, dim=2)

    @cached_per_state
    def positions(self) -> Tensor:
        """Return the positions of the cubes' centres, [N, C, 3], m; do not write into it."""
        return torch.stack([cube.pos for cube in self.cubes], dim=1)

    def of_named(self, values: Tensor) -> Tensor:
        """Return the named cube's values [N, ...] of all cubes' [N, C, ...]."""
        index = self.named.view(-1, 1, *[1] * (values.dim() - 2)).expand(-1, 1, *values.shape[2:])
        return values.gather(1, index).squeeze(1)

    def _base_obs(self) -> dict[str, Tensor]:
        state = torch.cat((self.robot.get_qpos("arm"), self.robot.get_eef_pose()[:, :3, 3]), dim=1)
        return super()._base_obs() | {"state": state, "instruction": self._tokens[self._instruction()]}

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs = super()._extend_obs(obs)
        for uid in self.sim.sensors:
            image = obs.pop(f"sensor/{uid}/color", None)
            if image is not None:
                obs[f"image/{uid}"] = image
        return obs


# The scripted pushing expert's farthest push from a cube's centre, sideways, and its distance behind the row until
# then, m.
_ASIDE, _BEHIND_ROW = 0.012, 0.05


@register_env("PushColoredCubeRL", max_episode_steps=40, override=True, default_cfg=default_cfg("push_colored_cube"))
class PushColoredCubeEnv(ColoredCubesEnv):
    """One of several cubes, the one that the instruction names, is to be pushed away; the others are to stay.

    Success: the named cube is ``push_distance`` from where it began. Failure: another has moved ``max_disturbance``.
    """

    skills = ("push",)
    push_distance: float = 0.1
    """Horizontal distance of success, m."""

    def _init_sim_state(self) -> None:
        self._pushed = torch.zeros(self.num_envs, device=self.device)  # share of the push that was rewarded
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        self._pushed = self._pushed.index_fill(0, env_ids, 0.0)
        super()._initialize_episode(env_ids)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure, and the metrics ``pushed`` (the named cube, m) and ``disturbed`` (others, m)."""
        moved = self.displacement()
        pushed = self.of_named(moved)
        disturbed = moved.scatter(1, self.named.unsqueeze(1), 0.0).amax(dim=1)
        fail = disturbed >= self.max_disturbance
        return (pushed >= self.push_distance) & ~fail, fail, {"pushed": pushed, "disturbed": disturbed}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the step's progress in pushing the named cube, 1 for ``push_distance``, plus the config's terms.

        Failure only ends the episode: with a penalty, a policy that often pushes the wrong cube would first learn to
        touch none.
        """
        reward = super().get_reward(obs, action, info)
        share = (info["metrics"]["pushed"] / self.push_distance).clamp(max=1.0)
        push = share - self._pushed
        self._pushed = share
        info["rewards"]["push"] = push
        return reward + push

    def expert_action(self) -> Tensor:
        """Return the action of a scripted expert that knows the cubes' positions, [N, 2] for ``EefPlaneTerm``.

        The tool moves behind the row, then past the others to the named cube's line, then ahead along it.
        """
        tool, reach = self.robot.get_eef_pose()[:, :2, 3], expert_arm(self, EefPlaneTerm).scale
        aside = self.of_named(self.positions())[:, 1] - tool[:, 1]
        near = self._begun[..., 0].amax(dim=1) + self.cube_size / 2 + _BEHIND_ROW  # the line behind the row
        is_ahead = (tool[:, 0] < near) & (aside.abs() < 2 * _ASIDE)
        ahead = torch.where((aside.abs() < _ASIDE) | is_ahead, -1.0, ((near - tool[:, 0]) / reach).clamp(-1, 1))
        return torch.stack((ahead, (aside / reach).clamp(-1, 1)), dim=1)


_REACH, _PUSH, _LIFT = range(3)
# The share of a skill's progress that is nearness: 1 at the cube, and 1 - tanh(5 x 0.1) = 0.54 at 0.1 m from it.
_NEAR, _STEEPNESS = 0.3, 5.0
# Of the scripted expert, m: how high above the ground the tool travels, how far behind a cube it comes down to push it
# and at what height, what counts as over a place, next to a line and around a cube, and how far above success it lifts.
_HOVER, _BEHIND, _LOW = 0.12, 0.085, 0.03
_OVER, _BESIDE, _AROUND, _ABOVE = 0.012, 0.02, 0.015, 0.03
# Share of the way that the expert asks for in a step: the tool follows its target a step or two later, and all of it
# would make it swing.
_GAIN = 0.4
_OPEN, _CLOSED = -1.0, 1.0


@register_env("ManipulateCubesRL", max_episode_steps=40, override=True, default_cfg=default_cfg("manipulate_cubes"))
class ManipulateCubesEnv(ColoredCubesEnv):
    """One of several cubes, the one that the instruction names, is to be reached, pushed or lifted, as it says.

    Success of ``reach``: the tool stays within ``reach_tolerance`` of the place ``reach_height`` above the named cube
    for ``hold_steps`` steps. Of ``push``: the named cube is ``push_distance`` from where it began. Of ``lift``: the
    named cube is held between the fingers at ``lift_height`` or higher for ``hold_steps`` steps.

    Failure: a cube has moved by ``max_disturbance`` that is not to, or has risen by as much and is not to be lifted;
    or the tool has stayed above another cube as it should above the named one.
    """

    skills = ("reach", "push", "lift")
    jitter = (0.03, 0.02)
    fingers: tuple[str, str] = ("gripper_finger1_link", "gripper_finger2_link")
    """The robot's links on the +x and on the -x side of the tool of control part ``arm``, with ``sense_contacts``."""
    reach_height: float = 0.055
    """Height of the place to reach above a cube's centre, m."""
    reach_tolerance: float = 0.02
    """Largest distance of the tool from there, m."""
    push_distance: float = 0.1
    """Horizontal distance of a pushed cube from its start, m."""
    lift_height: float = 0.12
    """Height of a lifted cube's centre, m."""
    hold_steps: int = 5
    """Consecutive steps that the tool must stay, or the cube be held."""
    grip_force: float = 2.0
    """Least force on each finger along the line between them, N."""

    @classmethod
    @override
    def config_problems(cls, cfg: EmbodiedEnvCfg) -> list[str]:
        return finger_problems(cfg, cls.fingers, cls.__name__)

    def _init_sim_state(self) -> None:
        self.held_steps = torch.zeros(self.num_envs, len(self.colours), dtype=torch.int64, device=self.device)
        self._progress = torch.zeros(self.num_envs, device=self.device)  # that was rewarded
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.held_steps = self.held_steps.index_fill(0, env_ids, 0)
        self._progress = self._progress.index_copy(0, env_ids, _NEAR * self._nearness()[env_ids])

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        is_up = self.grips() & (self.positions()[..., 2] >= self.lift_height)
        is_held = torch.where(self._asks(_LIFT).unsqueeze(1), is_up, self.to_place() < self.reach_tolerance)
        self.held_steps = torch.where(is_held, self.held_steps + 1, 0)

    def _asks(self, skill: int) -> Tensor:
        """Return which instructions ask for a skill, [N] bool."""
        return self.skill == skill

    @cached_per_state
    def grips(self) -> Tensor:
        """Return whether both fingers press on the cube, [N, C] bool; do not write into it."""
        tool = self.robot.get_eef_pose()[:, None, :3, 3]
        is_between = torch.linalg.vector_norm(tool - self.positions(), dim=2) < self.cube_size
        return is_between & is_gripped(self, self.fingers, self.grip_force).unsqueeze(1)

    @cached_per_state
    def to_place(self) -> Tensor:
        """Return the tool's distance from the place above each cube, [N, C], m; do not write into it."""
        above = self.robot.get_eef_pose()[:, None, :3, 3] - self.positions()
        return torch.linalg.vector_norm(above - above.new_tensor([0.0, 0.0, self.reach_height]), dim=2)

    def rise(self) -> Tensor:
        """Return how far each cube is above the ground, [N, C], m."""
        return self.positions()[..., 2] - self.cube_size / 2

    def disturbance(self) -> Tensor:
        """Return how far any cube has moved that is not to, [N], m."""
        is_named = torch.nn.functional.one_hot(self.named, len(self.cubes)).bool()
        may_move = is_named & ~self._asks(_REACH).unsqueeze(1)
        may_rise = is_named & self._asks(_LIFT).unsqueeze(1)
        moved = self.displacement().masked_fill(may_move, 0.0)
        return torch.maximum(moved, self.rise().masked_fill(may_rise, 0.0)).amax(dim=1)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure, and metrics.

        They are ``pushed`` and ``lifted`` (the named cube, m), ``disturbed`` (the other cubes, m), ``gripped``
        (0, 1), and for each skill ``<skill>_asked`` and ``<skill>_success``, flags; their shares of the episodes give
        its success rate.
        """
        is_held, disturbed = self.held_steps >= self.hold_steps, self.disturbance()
        held, pushed = self.of_named(is_held), self.of_named(self.displacement())
        is_elsewhere = (self.held_steps >= self.hold_steps).sum(dim=1) > held.long()
        fail = (disturbed >= self.max_disturbance) | (self._asks(_REACH) & is_elsewhere)
        success = torch.where(self._asks(_PUSH), pushed >= self.push_distance, held) & ~fail
        metrics = {
            "pushed": pushed,
            "lifted": self.of_named(self.rise()),
            "disturbed": disturbed,
            "gripped": self.of_named(self.grips()).float(),
        }
        for number, skill in enumerate(self.skills):
            name, asked = skill.replace(" ", "_"), self._asks(number)
            metrics |= {f"{name}_asked": asked, f"{name}_success": asked & success}
        return success, fail, metrics

    def _nearness(self) -> Tensor:
        """Return how near the tool is to where the skill acts, 1 at best, [N]: above the named cube, or at it."""
        tool = self.robot.get_eef_pose()[:, :3, 3]
        at = torch.linalg.vector_norm(tool - self.of_named(self.positions()), dim=1)
        distance = torch.where(self._asks(_REACH), self.of_named(self.to_place()), at)
        return 1.0 - torch.tanh(_STEEPNESS * distance)

    def progress(self) -> Tensor:
        """Return the completed share of the instruction, 0 to 1, [N]."""
        held = self.of_named(self.held_steps) / self.hold_steps
        pushed = self.of_named(self.displacement()) / self.push_distance
        height = self.of_named(self.rise()) / (self.lift_height - self.cube_size / 2)
        lifted = self.of_named(self.grips()) * (1.0 + height.clamp(0.0, 1.0)) / 2
        done = torch.stack((held, pushed, lifted), dim=1).gather(1, self.skill.unsqueeze(1)).squeeze(1)
        return _NEAR * self._nearness() + (1.0 - _NEAR) * done.clamp(max=1.0)

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return the step's gain in ``progress``, plus the config's terms; failure only ends the episode."""
        reward = super().get_reward(obs, action, info)
        progress = self.progress()
        step, self._progress = progress - self._progress, progress
        info["rewards"]["progress"] = step
        return reward + step

    def expert_action(self) -> Tensor:
        """Return the action of a scripted expert that knows the cubes' positions, [N, 4].

        It reaches a place straight; to push or to lift, the tool travels above the cubes and comes down behind the
        named one, or around it.
        """
        arm = expert_arm(self, EefPositionTerm)
        tool, cube = self.robot.get_eef_pose()[:, :3, 3], self.of_named(self.positions())
        places = torch.stack(
            (cube + cube.new_tensor([0.0, 0.0, self.reach_height]), *self._waypoints(tool, cube)), dim=1
        )
        place = places.gather(1, self.skill.view(-1, 1, 1).expand(-1, 1, 3)).squeeze(1)
        move = (_GAIN * (place - tool) / arm.scale).clamp(-1.0, 1.0)
        is_around = torch.linalg.vector_norm(tool - cube, dim=1) < _AROUND
        is_open = self._asks(_LIFT) & ~is_around & ~self.of_named(self.grips())
        return torch.cat((move, torch.where(is_open, _OPEN, _CLOSED).unsqueeze(1)), dim=1)

    def _waypoints(self, tool: Tensor, cube: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tool's next position, from [N, 3], to push the cube at [N, 3], and to lift it: [N, 3] each."""
        behind = cube + cube.new_tensor([_BEHIND, 0.0, 0.0])
        is_low = (tool[:, 2] < 2 * _LOW) & ((tool - cube)[:, 1].abs() < _BESIDE) & (tool[:, 0] > cube[:, 0])
        is_over = torch.linalg.vector_norm((tool - behind)[:, :2], dim=1) < _OVER
        height = torch.where(is_low | is_over, _LOW, _HOVER)
        is_ahead = is_low & (tool[:, 2] < 1.5 * _LOW)
        push = torch.stack((torch.where(is_ahead, cube[:, 0] - _BEHIND, behind[:, 0]), cube[:, 1], height), dim=1)
        is_over = torch.linalg.vector_norm((tool - cube)[:, :2], dim=1) < _OVER
        height = torch.where(is_over, cube[:, 2], _HOVER).where(~self.of_named(self.grips()), self.lift_height + _ABOVE)
        return push, torch.cat((cube[:, :2], height.unsqueeze(1)), dim=1)
