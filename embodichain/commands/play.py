"""``embodichain play``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import torch

from embodichain.agents.rl.build import without_records
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.commands.agents import AGENTS
from embodichain.commands.arguments import RUN_HELP, add_device, output_file, whole_number
from embodichain.commands.live import check_live_arguments, play_live
from embodichain.commands.pictures import Photographer, config_camera
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.tools.open_run import open_run
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.module_utils import add_allow_import, allowed_imports
from embodichain.utils.video import VideoWriter

EXAMPLES = ("latest", "latest/best --episodes 5 --out best.mp4", "latest --viewer", "train_config.json --agent random")

_EPISODES = 3
_SEED_OFFSET = 3_000_003  # episodes that neither training nor evaluation has seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("target", metavar="RUN", help=f"{RUN_HELP}; with --agent: a training config's file")
    parser.add_argument("--agent", choices=list(AGENTS), help="no policy: what acts instead in a task alone")
    parser.add_argument("--viewer", action="store_true", help="in the browser, until Ctrl-C, instead of a video")
    parser.add_argument(
        "--episodes", type=whole_number(), metavar="E", help=f"default: {_EPISODES}; with --viewer: without end"
    )
    parser.add_argument(
        "--out", type=output_file, metavar="FILE", help="the video (default: in the run's folder; play.mp4)"
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of the episodes (default: 0)")
    parser.add_argument(
        "--size", nargs=2, type=whole_number(16), default=[640, 480], metavar=("W", "H"), help="pixels, even numbers"
    )
    add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and write the video or show the task until Ctrl-C; return 0.

    Raises:
        ConfigError: there is no such run or config, it cannot be built here, or the video cannot be written.
        RenderingUnavailableError: there is nothing to draw with.
    """
    if any(side % 2 for side in args.size):
        raise ConfigError(f"--size {args.size[0]} {args.size[1]}: even numbers are needed")
    check_live_arguments(args, "--out")
    seed, device = args.seed + _SEED_OFFSET, torch.device(args.device)
    if args.viewer:
        with _stage(args) as (env, policy, _, _):
            play_live(env, policy.eval(), device, seed, args.episodes)
        return 0
    episodes = args.episodes or _EPISODES
    with (
        _stage(args) as (env, policy, camera, path),
        closing(Photographer(env, camera, tuple(args.size))) as photographer,
    ):
        fps = 1.0 / env.step_dt
        evaluator = Evaluator(env, episodes, seed, device, path.parent)
        with _writing(path), closing(VideoWriter(path, args.size[0], args.size[1], fps)) as video:
            logger.log_info(f"playing {episodes} episodes")
            evaluator.run(policy, "", on_step=lambda: video.write(photographer.shoot()))
    print(_text(evaluator.table.columns()))
    print(f"video      {path}")
    return 0


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigError about the video."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--out {path}: the video cannot be written: {error}") from error


@contextmanager
def _stage(args: argparse.Namespace) -> Iterator[tuple[EmbodiedEnv, Policy, dict[str, object], Path]]:
    """Give the environment, what acts in it, the config's camera, and the video's path."""
    if args.agent is None:
        saved = find_run(args.target)
        with open_run(saved, 1, args.device, allowed_imports(args)) as opened:
            camera = config_camera([opened.config.eval_env, opened.config.env])
            path = args.out or saved.folder / "videos" / f"play_step_{saved.content['global_step']}.mp4"
            yield opened.env, opened.policy, camera, path
        return
    overrides = ["trainer.enable_eval=true", "trainer.num_eval_envs=1", f"trainer.device={args.device}"]
    config = load_run_config(args.target, overrides, allowed_imports(args))
    assert config.eval_env is not None
    torch.manual_seed(args.seed)
    env = build_env(config.env_id, replace(without_records(config.eval_env), num_envs=1))
    try:
        camera = config_camera([config.eval_env, config.env])
        yield env, AGENTS[args.agent](env.single_action_space), camera, args.out or Path("play.mp4")
    finally:
        env.close()


def _text(columns: dict[str, np.ndarray]) -> str:
    rows = zip(columns["success"], columns["return"], columns["length"], strict=True)
    return "\n".join(
        f"episode {i}  return {total:8.3f}  length {int(length):4}  {'success' if success else 'no success'}"
        for i, (success, total, length) in enumerate(rows)
    )
