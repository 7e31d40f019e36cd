"""Commands that policies follow, and their manager. Shapes: N environments, n in ``env_ids``, C length of a command."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import checks, types
from embodichain.lab.gym.envs.managers.base import CommandTerm, Manager, Term, TermEnv
from embodichain.lab.gym.envs.managers.cfg import CommandCfg
from embodichain.lab.sim.rows import changing_rows
from embodichain.utils import ConfigError, unknown_name


class UniformCommand(CommandTerm):
    """Numbers with names of their own, such as angles of joints; uniform draws.

    Args:
        ranges: ``[lowest, highest]`` of each number, by its name and unit.
        zero_share: share of draws that are zeros throughout.
    """

    @override
    def configure(
        self, ranges: Annotated[dict[str, types.Range1], Field(min_length=1)], zero_share: types.Share = 0.0
    ) -> None:
        self.numbers, self.size = tuple(ranges), len(ranges)
        self._low, self._high = (list(ends) for ends in zip(*ranges.values(), strict=True))
        self._zero_share = zero_share

    @override
    def limits(self) -> tuple[list[float], list[float]]:
        return self._low, self._high

    @override
    def draw(self, env_ids: Tensor) -> Tensor:
        low, high = (self.command.new_tensor([*ends, end]) for ends, end in ((self._low, 0.0), (self._high, 1.0)))
        drawn = self.env.random.uniform(env_ids, low, high, self.size + 1)
        return drawn[:, :-1].masked_fill(drawn[:, -1:] < self._zero_share, 0.0)


class UniformVelocityCommand(CommandTerm):
    """Velocities of the base: forwards and to the left (m/s, base frame), and yaw rate (rad/s); uniform draws.

    With ``heading`` the yaw rate turns the base towards a drawn heading: stiffness times the angle that is left, within
    the yaw rate's range. A share of the draws commands to stand still.

    Args:
        lin_vel_x: ``[lowest, highest]`` velocity forwards, m/s.
        lin_vel_y: ``[lowest, highest]`` velocity to the left, m/s.
        ang_vel_z: ``[lowest, highest]`` yaw rate, rad/s.
        standing_share: share of draws that are (0, 0, 0).
        heading: ``[lowest, highest]`` heading to turn to, rad, world frame; None: the yaw rate itself is drawn.
        heading_stiffness: yaw rate per angle, 1/s.
    """

    size = 3
    numbers = ("forwards, m/s", "to the left, m/s", "yaw rate, rad/s")

    @override
    def configure(
        self,
        lin_vel_x: types.Range1 = (-1.0, 1.0),
        lin_vel_y: types.Range1 = (-0.5, 0.5),
        ang_vel_z: types.Range1 = (-1.0, 1.0),
        standing_share: types.Share = 0.1,
        heading: types.Range1 | None = None,
        heading_stiffness: NonNegativeFloat = 0.5,
    ) -> None:
        low, high = zip(lin_vel_x, lin_vel_y, ang_vel_z, strict=True)
        self._low, self._high = (torch.tensor(bound, device=self.device) for bound in (low, high))
        self.range_scale: Tensor = torch.ones((), device=self.device)
        """[] factor of the ranges, which a curriculum may change."""
        self._standing_share = standing_share
        self._heading_range = heading
        self._stiffness = heading_stiffness
        self._heading = torch.zeros(self.num_envs, device=self.device)
        self._stands = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    @override
    def limits(self) -> tuple[list[float], list[float]]:
        return self._low.tolist(), self._high.tolist()

    @override
    def draw(self, env_ids: Tensor) -> Tensor:
        share = self.env.random.uniform(env_ids, 0.0, 1.0, 5)
        command = torch.lerp(self._low, self._high, share[:, :3]) * self.range_scale
        stands = share[:, 3] < self._standing_share
        self._stands = self._stands.index_copy(0, env_ids, stands)
        if self._heading_range is not None:
            low, high = self._heading_range
            self._heading = self._heading.index_copy(0, env_ids, low + (high - low) * share[:, 4])
        return command.masked_fill(stands[:, None], 0.0)

    @override
    def follow(self) -> None:
        if self._heading_range is None:
            return
        left = self._heading - self.env.robot.base.heading()
        left = torch.remainder(left + math.pi, 2 * math.pi) - math.pi
        rate = torch.clamp(self._stiffness * left, self._low[2] * self.range_scale, self._high[2] * self.range_scale)
        rate = rate.masked_fill(self._stands, 0.0)
        self.command = torch.cat((self.command[:, :2], rate[:, None]), dim=1)


class CommandManager(Manager):
    """Holds the commands by name; observations, rewards and metrics read them."""

    def __init__(self, cfgs: Mapping[str, CommandCfg], env: TermEnv) -> None:
        built = checks.build_terms(cfgs, env, "env.commands")
        super().__init__(env, built)
        self.terms: dict[str, CommandTerm] = {term.name: term.func for term in built}
        self._advances = [term.calling(term.func.advance) for term in built]
        self._moves = [term.calling(term.func.move) for term in built if type(term.func).move is not CommandTerm.move]

    def get_command(self, name: str) -> Tensor:
        """Return the command that the next action is to follow, [N, C]; ConfigError without one of that name."""
        return self.get_term(name).command

    def get_tracked(self, name: str) -> Tensor:
        """Return the command that the last action followed, [N, C]; rewards and metrics are about this one."""
        return self.get_term(name).tracked

    def get_term(self, name: str) -> CommandTerm:
        """Return a command's term; ConfigError where there is none of that name."""
        if name not in self.terms:
            raise ConfigError(f"env.commands: {unknown_name('command', name, self.terms)}")
        return self.terms[name]

    def advance(self) -> None:
        """Let a control step pass, after its physics."""
        self._call(self._advances)

    def move(self, done: Tensor) -> Tensor | None:
        """Put robots where new commands want them, after a step's rewards; return which, [N] bool; None: none."""
        if not self._moves:
            return None
        mask = torch.stack(self._call(self._moves, done)).any(dim=0)
        return mask if self._env.sim.backend.is_asynchronous or mask.any() else None

    def _call(self, terms: Sequence[Term[CommandCfg]], *given: Any) -> list[Any]:
        """Call terms for the environments that make the present step."""
        if not terms:
            return []
        env, results = self._env, []
        rows: AbstractContextManager[None] = nullcontext()
        if len(env.stepping_ids) < env.num_envs:  # within a chunk of actions
            stepping = torch.zeros_like(env.elapsed_steps, dtype=torch.bool).index_fill(0, env.stepping_ids, True)
            rows = changing_rows(self.functors, stepping)
        with env.random.stream("commands", tick=env.elapsed_steps), rows:
            for term in terms:
                env.random.turn_to(term.stream)
                results.append(term(*given))
        return results
