"""What a right config asks for, in a line."""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

from embodichain.agents.rl.run_config import RunConfig
from embodichain.lab.gym.envs import EmbodiedEnvCfg


def format_config(config: RunConfig | tuple[str, EmbodiedEnvCfg]) -> str:
    """Return what ``read_config`` has read, for the screen."""
    if not isinstance(config, RunConfig):
        env_id, cfg = config
        kinds = {"observation": cfg.observations, "reward": cfg.rewards, "event": cfg.events, "action": cfg.actions}
        counts = ", ".join(f"{len(cast(Sized, terms))} {kind}" for kind, terms in kinds.items())
        return f"{env_id} with terms: {counts}"
    trainer, num_envs = config.trainer, config.env.num_envs
    return (
        f"{config.algorithm_name} with the policy {config.policy.name} on {config.env_id}: {trainer.iterations} "
        f"iterations x {trainer.buffer_size} steps x {num_envs} environments = "
        f"{trainer.iterations * trainer.buffer_size * num_envs:,} environment steps"
    )
