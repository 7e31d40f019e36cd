"""Curriculum terms, ``func(env, env_ids, **params)``, where episodes have ended, and their manager.

Shapes: N environments, n in ``env_ids``.
"""

from collections.abc import Mapping

import torch
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import checks, types
from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term, TermEnv
from embodichain.lab.gym.envs.managers.cfg import CurriculumCfg, FunctorCfg
from embodichain.lab.sim.rows import chosen_rows
from embodichain.utils import ConfigError


class command_range(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Widen a velocity command's ranges as episodes get long enough, and return their present share of the whole, [].

    With each set of episodes that end, the share changes by ``step`` times their number over N: upwards where they
    lasted for ``long_share`` of the time limit, else downwards.

    Args:
        initial: share of the ranges at the start of the training.
        step: change of the share per episode of every environment.
        long_share: share of the time limit from which an episode counts as long.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._share: Tensor | None = None  # []; None before the first call

    @override
    def __call__(
        self,
        env: TermEnv,
        env_ids: Tensor,
        command: types.CommandName = types.BASE_VELOCITY,
        initial: types.PositiveShare = 0.3,
        step: PositiveFloat = 0.1,
        long_share: types.PositiveShare = 0.8,
    ) -> Tensor:
        limit = env.cfg.max_episode_steps
        if limit is None:
            raise ConfigError("func: 'command_range' needs a time limit: set the environment's max_episode_steps")
        term = env.command_manager.get_term(command)
        if not hasattr(term, "range_scale"):
            raise ConfigError(f"params.command: '{command}' has no ranges to widen: {type(term).__name__}")
        if self._share is None:
            self._share = torch.tensor(initial, device=env.device)
        is_long = env.elapsed_steps[env_ids] >= long_share * limit
        change = ((2.0 * is_long.float() - 1.0) * chosen_rows(env_ids)).sum() * (step / env.num_envs)
        self._share = (self._share + change).clamp(initial, 1.0)
        term.range_scale = self._share
        return self._share


def terrain_levels(env: TermEnv, env_ids: Tensor, command: types.CommandName = types.BASE_VELOCITY) -> Tensor:
    """Move environments to harder or easier cells of the terrain, and return the level of each, [N].

    One level up where the robot is more than half a cell from its start; one down where it is less than half of the
    way that its last command would have led in a whole episode (Rudin et al., "Learning to walk in minutes using
    massively parallel deep reinforcement learning", 2022). Beyond the last one it moves to a random one.
    A diverged environment stays. A robot that is commanded to turn for long walks in circles, and is
    moved down however well it does: let the command hold a heading.

    Args:
        command: command's name in ``env.commands``; its first two numbers are the velocity along x and y, m/s.
    """
    if env.cfg.group_size > 1:
        raise ConfigError(
            f"func: 'terrain_levels' moves environments one by one, and the {env.cfg.group_size} of a group begin alike"
        )
    terrain, steps = env.sim.terrain, env.cfg.max_episode_steps
    if terrain is None:
        raise ConfigError("func: 'terrain_levels' needs the scene's 'terrain'")
    if steps is None:
        raise ConfigError("func: 'terrain_levels' needs a time limit: set the environment's max_episode_steps")
    walked = terrain.distance_walked(env.robot.base)
    commanded = torch.linalg.vector_norm(env.command_manager.get_tracked(command)[:, :2], dim=1) * steps * env.step_dt
    up = walked > terrain.cfg.cell_size / 2
    down = (walked < commanded / 2) & ~up
    diverged = env.sim.backend.diverged()
    if diverged is not None:
        up, down = up & ~diverged, down & ~diverged
    draw = env.random.uniform(env_ids, 0.0, 1.0, 1).squeeze(1)
    terrain.move(env_ids, up[env_ids], down[env_ids], draw)
    return terrain.levels.float()


class CurriculumManager(Manager):
    """Calls the terms ``func(env, env_ids, **params)`` where episodes have ended, before the next ones begin.

    The state is then still the episodes' last. A term returns a metric: a number for all environments
    ([]) or one for each ([N]); it becomes the metric ``curriculum/<name>``. So that a metric is there from the first
    step on, each term is called once for no environments (n = 0) when the environment is built.
    """

    state_names = ("_metrics",)

    def __init__(self, cfgs: Mapping[str, CurriculumCfg], env: TermEnv) -> None:
        self._terms: list[Term[CurriculumCfg]] = checks.build_terms(cfgs, env, "env.curriculum")
        super().__init__(env, self._terms)
        self._metrics: dict[str, Tensor] = {}
        for term in self._terms:
            self._call(term, env.all_env_ids[:0])

    def end_episodes(self, env_ids: Tensor) -> None:
        """Call the terms for environments [n], which ended an episode."""
        for term in self._terms:
            self._call(term, env_ids)

    def metrics(self) -> dict[str, Tensor]:
        """Return the terms' last results, [N] by metric name."""
        return {name: value.float().expand(self._env.num_envs) for name, value in self._metrics.items()}

    def _call(self, term: Term[CurriculumCfg], env_ids: Tensor) -> None:
        env = self._env
        with env.random.stream(term.stream, tick=env.elapsed_steps):
            value = term(env, env_ids)
        if not (isinstance(value, Tensor) and value.shape in ((), (env.num_envs,))):
            raise checks.wrong_return(term.place, term.func, value, f"[] or [N] = [{env.num_envs}]")
        self._metrics[f"curriculum/{term.name}"] = value
