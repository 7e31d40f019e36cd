"""Tasks for reinforcement learning. Importing this package registers them."""

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg, SceneEnv
from embodichain.lab.gym.envs.tasks.rl.basic import CartPoleEnv, OpenDrawerEnv, PushCubeEnv, ReachEnv, RobotEnv
from embodichain.lab.gym.envs.tasks.rl.colored_cubes import ManipulateCubesEnv, PushColoredCubeEnv
from embodichain.lab.gym.envs.tasks.rl.locomotion import G1FlatEnv, Go2FlatEnv, Go2RoughEnv, LocomotionEnv
from embodichain.lab.gym.envs.tasks.rl.microduck import MicroDuckEnv, MicroDuckStandUpEnv
from embodichain.lab.gym.envs.tasks.rl.motion import G1MotionEnv, MotionEnv
from embodichain.lab.gym.envs.tasks.rl.pick_cube import PickCubeEnv
from embodichain.lab.gym.registry import make, register_env

__all__ = [
    "CartPoleEnv",
    "G1FlatEnv",
    "G1MotionEnv",
    "Go2FlatEnv",
    "Go2RoughEnv",
    "LocomotionEnv",
    "ManipulateCubesEnv",
    "MicroDuckEnv",
    "MicroDuckStandUpEnv",
    "MotionEnv",
    "OpenDrawerEnv",
    "PickCubeEnv",
    "PushColoredCubeEnv",
    "PushCubeEnv",
    "ReachEnv",
    "RobotEnv",
    "build_env",
]


register_env("SceneRL", override=True)(SceneEnv)


def build_env(id: str, base_env_cfg: EmbodiedEnvCfg) -> EmbodiedEnv:
    """Build a registered environment from its config; a missing ``max_episode_steps`` is the registered one."""
    return make(id, base_env_cfg)
