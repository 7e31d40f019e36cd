"""Tasks for reinforcement learning. Importing this package registers them."""

from __future__ import annotations

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.scene_env import SceneEnv
from embodichain.lab.gym.envs.tasks.rl.cart_pole import CartPoleEnv
from embodichain.lab.gym.envs.tasks.rl.colored_cubes import PushColoredCubeEnv
from embodichain.lab.gym.envs.tasks.rl.locomotion import G1FlatEnv, Go2FlatEnv, Go2RoughEnv, LocomotionEnv
from embodichain.lab.gym.envs.tasks.rl.manipulate_cubes import ManipulateCubesEnv
from embodichain.lab.gym.envs.tasks.rl.open_drawer import OpenDrawerEnv
from embodichain.lab.gym.envs.tasks.rl.pick_cube import PickCubeEnv
from embodichain.lab.gym.envs.tasks.rl.push_cube import PushCubeEnv
from embodichain.lab.gym.envs.tasks.rl.reach import ReachEnv
from embodichain.lab.gym.registry import get_env_spec, register_env
from embodichain.utils.configclass import replace

__all__ = [
    "CartPoleEnv",
    "G1FlatEnv",
    "Go2FlatEnv",
    "Go2RoughEnv",
    "LocomotionEnv",
    "ManipulateCubesEnv",
    "OpenDrawerEnv",
    "PickCubeEnv",
    "PushColoredCubeEnv",
    "PushCubeEnv",
    "ReachEnv",
    "build_env",
]


register_env("SceneRL", override=True)(SceneEnv)


def build_env(id: str, base_env_cfg: EmbodiedEnvCfg) -> EmbodiedEnv:
    """Build a registered environment.

    Args:
        id: task's name.
        base_env_cfg: task's config; a missing ``max_episode_steps`` is the registered one.

    Raises:
        ConfigError: no environment of that name, or the config does not fit it.
    """
    spec = get_env_spec(id)
    if base_env_cfg.max_episode_steps is None and spec.max_episode_steps is not None:
        base_env_cfg = replace(base_env_cfg, max_episode_steps=spec.max_episode_steps)
    env: EmbodiedEnv = spec.cls(base_env_cfg)
    return env
