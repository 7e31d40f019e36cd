"""The curriculum of a terrain's levels. Shapes: N environments, n in ``env_ids``, C size of a command."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError


class _Commands(Protocol):
    def get_command(self, name: str) -> Tensor: ...


class _CommandEnv(TermEnv, Protocol):
    @property
    def command_manager(self) -> _Commands: ...


def terrain_levels(env: _CommandEnv, env_ids: Tensor, command_name: str = "base_velocity") -> dict[str, Tensor]:
    """Move environments [n], whose episodes have ended, to harder or easier cells of the terrain.

    One level up where the robot is more than half a cell from its start; one down where it is less than half of the
    way that its last command would have led in a whole episode (Rudin et al., "Learning to walk in minutes using
    massively parallel deep reinforcement learning", 2022). Those that climb beyond the last level come to a random one.
    An environment without an episode behind it stays, and one whose physics diverged.

    Args:
        command_name: of a command whose first two numbers are the velocity along x and y, m/s.

    Returns:
        ``terrain_level`` [N], of every environment.

    Raises:
        ConfigError: the scene has no terrain, or its episodes no time limit.
    """
    terrain, steps = env.sim.terrain, env.cfg.max_episode_steps
    if terrain is None:
        raise ConfigError("terrain_levels: the scene has no 'terrain'")
    if steps is None:
        raise ConfigError("terrain_levels: needs max_episode_steps, the length of a whole episode")
    walked = terrain.walked[env_ids]
    commanded = env.command_manager.get_command(command_name)[env_ids, :2].norm(dim=1) * steps * env.step_dt
    up = walked > terrain.cfg.cell_size / 2
    down = (walked > 0.0) & (walked < commanded / 2) & ~up
    draw = env.random.uniform(env_ids, 0.0, 1.0, 1).squeeze(1)
    terrain.move(env_ids, up, down, draw)
    return {"terrain_level": terrain.levels.float()}
