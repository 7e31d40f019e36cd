"""Coloured cubes, of which an instruction names one.

Shapes: N environments, n in ``env_ids``, C cubes, S skills, L words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.cfg import RigidBodyAttributesCfg, RigidObjectCfg
from embodichain.lab.sim.objects import cached_per_state
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils.device import constant
from embodichain.utils.instructions import encode_instructions

Colour = Literal["red", "green", "blue"]
_COLOURS: dict[Colour, tuple[float, float, float, float]] = {
    "red": (0.85, 0.12, 0.1, 1.0),
    "green": (0.1, 0.65, 0.15, 1.0),
    "blue": (0.1, 0.2, 0.85, 1.0),
}
_MASS, _FRICTION, _DAMPING = 0.3, 0.6, 2.0  # kg, coefficient, 1/s


def _uid(colour: str) -> str:
    return f"{colour}_cube"


class ColoredCubesEnv(EmbodiedEnv):
    """The scene, instructions and observation of tasks with coloured cubes; a task writes success and reward.

    Which cube the instruction names, which of the task's ``skills`` it asks for, which colour stands at which of the
    places, and where exactly, is drawn for each episode.

    The observation is a robot's: ``image/<camera>`` [N, H, W, 3] uint8, ``state`` [N, J + 3] (positions of the
    arm's joints, rad, and of its tool, m), ``instruction`` [N, L] int64 (tokens of ``embodichain.utils.instructions``),
    and the base entries ``robot/*``. Where the cubes are is not in it.

    Attributes:
        named: the cube that the instruction names, [N] int64.
        skill: the skill that it asks for, [N] int64.
    """

    base_entries = (*EmbodiedEnv.base_entries, "state", "instruction")
    added_uids = tuple(_uid(colour) for colour in _COLOURS)
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
            uid, rgba = _uid(colour), _COLOURS[colour]
            self.sim.add_rigid_object(RigidObjectCfg(uid, shape=shape, attrs=attrs, rgba=rgba, init_pos=pos))

    def _init_sim_state(self) -> None:
        self.cubes = [self.sim.get_rigid_object(_uid(colour)) for colour in self.colours]
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

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs = super()._extend_obs(obs)
        for uid in self.sim.sensors:
            image = obs.pop(f"sensor/{uid}/color", None)
            if image is not None:
                obs[f"image/{uid}"] = image
        obs["state"] = torch.cat((self.robot.get_qpos("arm"), self.robot.get_eef_pose()[:, :3, 3]), dim=1)
        obs["instruction"] = self._tokens[self._instruction()]
        return obs


# The scripted expert's farthest push from a cube's centre, sideways, and its distance behind the row until
# then, m.
_BESIDE, _BEHIND = 0.012, 0.05


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
        tool = self.robot.get_eef_pose()[:, :2, 3]
        aside = self.of_named(self.positions())[:, 1] - tool[:, 1]
        near = self._begun[..., 0].amax(dim=1) + self.cube_size / 2 + _BEHIND  # the line behind the row
        is_ahead = (tool[:, 0] < near) & (aside.abs() < 2 * _BESIDE)
        ahead = torch.where((aside.abs() < _BESIDE) | is_ahead, -1.0, ((near - tool[:, 0]) / self._reach).clamp(-1, 1))
        return torch.stack((ahead, (aside / self._reach).clamp(-1, 1)), dim=1)

    @property
    def _reach(self) -> float:
        """The tool's largest shift in a step, m."""
        return float(next(iter(self.cfg.actions.values())).params.get("scale", 0.02))
