"""UniLab's Go2 (``go2_joystick_flat``, PPO, MuJoCo): for the Python of an environment of its own, see ``legs.py``.

    python -m benchmarks.peers.with_unilab model FOLDER                 writes the robot into FOLDER
    python -m benchmarks.peers.with_unilab evaluate MODEL CHECKPOINT... prints a line of JSON for each checkpoint

The wheel has the robot's MJCF without its meshes, which UniLab downloads when a scene of its own folder is loaded. Only
the visual geoms have meshes, so the robot is written without those geoms, and UniLab is given that file instead.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
import unilab
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rsl_rl.runners import OnPolicyRunner
from torch import Tensor
from unilab.base.config_adapter import create_env
from unilab.rl import RslRlVecEnvAdapter
from unilab.scripts.train_rsl_rl import build_ppo_env_cfg_override
from unilab.training import algo_config_dict, ensure_registries

from benchmarks.peers.walking import EPISODES, Motion, measure, motion_of

PACKAGE = Path(unilab.__file__).parent
FILES = ("scene_flat.xml", "go2.xml")
MESHES = re.compile(r'<mesh\b[^>]*/>|<geom\b(?=[^>]*class="visual")[^>]*/>')


def write_model(folder: Path) -> None:
    """Write the scene without meshes; ``scene_flat.xml`` includes the other file."""
    for name in FILES:
        text = (PACKAGE / "assets/robots/go2" / name).read_text(encoding="utf-8")
        (folder / name).write_text(MESHES.sub("", text), encoding="utf-8")


class UniLabWalker:
    """UniLab's training environment, with its random initial velocities and gains, and its command ranges."""

    def __init__(self, cfg: DictConfig) -> None:
        ensure_registries()
        self._env = create_env(cfg, num_envs=EPISODES, env_cfg_override=build_ppo_env_cfg_override(cfg))
        self._vec_env = RslRlVecEnvAdapter(self._env, device="cpu")
        self._runner = OnPolicyRunner(self._vec_env, algo_config_dict(cfg), log_dir=None, device="cpu")
        self.dt: float = self._env.step_dt

    def load(self, checkpoint: str) -> None:
        """Use the policy of a checkpoint."""
        self._runner.load(checkpoint)
        self._policy = self._runner.get_inference_policy(device="cpu")

    def reset(self) -> Tensor:
        """Begin the episodes; the environment draws the commands, and draws none anew before its time limit of 20 s."""
        self._obs, _ = self._vec_env.reset()
        command: Tensor = self._env.command_manager.get_command("twist").clone()
        return command

    def step(self) -> Motion:
        """Make one control step."""
        self._obs, _, done, _ = self._vec_env.step(self._policy(self._obs))
        state = self._env._backend.get_state_views(("qpos", "qvel"))
        return motion_of(state["qpos"].float(), state["qvel"].float(), done)


@torch.inference_mode()
def evaluate(model: str, checkpoints: list[str]) -> None:
    """Print what ``measure`` returns for each checkpoint."""
    torch.set_num_threads(1)  # the physics has the cores
    with initialize_config_dir(str(PACKAGE / "conf/ppo"), version_base="1.3"):
        scene = f"env.scene.model_file={Path(model).resolve()}"
        cfg = compose("config", ["task=go2_joystick_flat/mujoco", scene, "training.device=cpu"])
    walker = UniLabWalker(cfg)
    for checkpoint in checkpoints:
        walker.load(checkpoint)
        print(f"point {json.dumps(measure(walker))}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "model":
        write_model(Path(sys.argv[2]))
    else:
        evaluate(sys.argv[2], sys.argv[3:])
