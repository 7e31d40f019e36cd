"""Builds the scene of a config, renders it or shows it in the browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import torch

from embodichain.agents.rl.build import without_records
from embodichain.agents.rl.run_config import RunConfig
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.tools.live.run import HandAgent, play_live
from embodichain.tools.play.camera import SceneCamera, config_camera
from embodichain.tools.validate.run import read_config
from embodichain.utils.configclass import replace


@contextmanager
def opened_scene(
    path: Path, seed: int, allowed_imports: Sequence[str]
) -> Iterator[tuple[str, EmbodiedEnv, dict[str, object]]]:
    """Give the task's name, one environment of a training or environment config, and the config's camera.

    Raises:
        ConfigError: the config is wrong.
    """
    config = read_config(path, [], allowed_imports)
    cfgs: list[EmbodiedEnvCfg | None]
    if isinstance(config, RunConfig):
        env_id, cfg, cfgs = config.env_id, config.env, [config.env, config.eval_env]
    else:
        (env_id, cfg), cfgs = config, [config[1]]
    env = build_env(env_id, replace(without_records(cfg), num_envs=1, group_size=1, seed=seed))
    with closing(env):
        yield env_id, env, config_camera(cfgs)


def render_scene(env: EmbodiedEnv, view: dict[str, object], size: tuple[int, int], seed: int) -> np.ndarray:
    """Return an image [H, W, 3] uint8 of the beginning of an episode.

    Raises:
        RenderingUnavailableError: there is nothing to render with.
    """
    env.reset(seed=seed)
    with closing(SceneCamera(env, view, size)) as camera:
        return camera.render()


def show_scene(env: EmbodiedEnv, seed: int) -> None:
    """Show the scene in the browser, with a slider for each number of the action, until Ctrl-C."""
    play_live(env, HandAgent(env), torch.device("cpu"), seed)
