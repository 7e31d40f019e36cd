"""What of a training config a Gymnasium environment cannot do, and what of our tools."""

from __future__ import annotations

from typing import Any

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env import GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import OWN_FORM
from embodichain.utils import ConfigError


def gymnasium_problems(trainer: TrainerCfg, algorithm: Any, cfg: GymnasiumEnvCfg) -> list[str]:
    """Return the errors of settings that a Gymnasium environment does not allow, a line each.

    Args:
        algorithm: its settings, or None if they are wrong.
    """
    needs_scene = {
        "trainer.viewer": trainer.viewer,
        "trainer.enable_rt": trainer.enable_rt,
        "trainer.sim_device": trainer.sim_device not in (None, "auto", "cpu"),
        "algorithm.cfg.demonstrations": getattr(algorithm, "demonstrations", None) is not None,
    }
    found = [f"{key}: {_no_scene(cfg)}" for key, is_set in needs_scene.items() if is_set]
    for kind, terms in vars(trainer.events).items():
        found += [
            f'trainer.events.{kind}.{name}: {_no_scene(cfg)}; it has no events, and "render_mode": "rgb_array" in '
            "its kwargs records videos of evaluations"
            for name in terms
        ]
    if getattr(algorithm, "group_size", 1) > 1 and cfg.vectorization == OWN_FORM:
        found.append(
            "algorithm.cfg.group_size: the members of a group begin equal episodes, which the environment's own vector "
            "form cannot: use vectorization 'sync' or 'async'"
        )
    return found


def with_scene(cfg: EmbodiedEnvCfg | GymnasiumEnvCfg, place: str) -> EmbodiedEnvCfg:
    """Return the config of an environment of ours, for a tool that needs its scene.

    Args:
        place: the tool, for the message.

    Raises:
        ConfigError: it is a Gymnasium environment's.
    """
    if isinstance(cfg, GymnasiumEnvCfg):
        raise ConfigError(f"{place}: {_no_scene(cfg)}")
    return cfg


def _no_scene(cfg: GymnasiumEnvCfg) -> str:
    return f"needs an environment with a scene of EmbodiChain's, and '{cfg.id}' is Gymnasium's"
