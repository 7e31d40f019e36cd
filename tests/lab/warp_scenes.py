"""Environments on MuJoCo Warp, on the processor. Shapes: N environments.

Kernels are compiled for a scene's sizes, so the tests share few scenes. The first run on a machine waits for them
(a minute in all, without optimization); they are kept in Warp's cache, `~/.cache/warp`.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import replace
from embodichain.utils.utility import load_json

if importlib.util.find_spec("warp") and not torch.cuda.is_available():
    import warp

    warp.config.optimization_level = 0
needs_warp = pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is None, reason="needs the extra gpu")

CONFIGS = Path(__file__).parents[2] / "configs" / "agents" / "rl"
PUSH, CART, DRAWER = "push_cube/gym_config.json", "basic/cart_pole/gym_config.json", "open_drawer/gym_config.json"
PICK = "pick_cube/gym_config.json"
ENGINES = {"batch": "cpu", "warp": "warp:cpu"}
"""What is compared everywhere; on a machine with a GPU there is `cuda`, too."""


def env_on(engine: str, config: str, num_envs: int = 3, env: dict[str, Any] | None = None, **cfg: Any) -> EmbodiedEnv:
    """Build the environment of a shipped config on an engine, with changes of its ``env`` block and typed config."""
    data = load_json(CONFIGS / config)
    data["env"] = data["env"] | (env or {})
    typed = config_to_cfg(data)
    sim_cfg = replace(typed.sim_cfg, sim_device={**ENGINES, "cuda": "cuda:0"}[engine], num_threads=1)
    return build_env(data["id"], base_env_cfg=replace(typed, num_envs=num_envs, sim_cfg=sim_cfg, **cfg))
