"""Plays episodes into a video, or in the browser. Shapes: E episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from embodichain.agents.rl.build import build_task
from embodichain.agents.rl.checkpoint.saved_run import find_run, names_run
from embodichain.agents.rl.metrics.panel import EvaluationLog
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.task_env import TaskEnv, scene_env, with_scene
from embodichain.agents.rl.trainer import viewer
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs.managers import EventCfg, Functor
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.tools.agents import AGENTS
from embodichain.tools.open_run import evaluated, open_run
from embodichain.tools.record import check_is_free, recorded, write_into
from embodichain.tools.view import Camera, OwnCamera, SceneCamera, config_camera
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.errors import reason_of
from embodichain.utils.video import VideoWriter

_SIZE = (640, 480)
_SEED_OFFSET = 3_000_003  # other episodes than training's and evaluation's


class Played(NamedTuple):
    """A policy or agent to play.

    Attributes:
        target: a run, or with an agent a training config's file.
        agent: key of ``AGENTS`` that acts instead of a policy.
        seed: seed of the episodes.
        device: device of the policy and the environment.
        allowed_imports: prefixes of modules that the config may name.
        overrides: overrides of the config: ``env.rewards.reach.weight=2`` and the like.
    """

    target: str
    agent: str | None
    seed: int
    device: str
    allowed_imports: Sequence[str]
    overrides: Sequence[str]


def play_in_browser(played: Played, episodes: int | None) -> None:
    """Play until Ctrl-C, or for ``episodes``."""
    with _stage(played, lambda cfg: with_scene(cfg, "--viewer")) as (env, policy, _, _):
        scene = scene_env(env)
        assert scene is not None
        viewer.play_live(scene, policy.eval(), torch.device(played.device), played.seed + _SEED_OFFSET, episodes)


def play_video(
    played: Played, episodes: int, out: Path | None, size: tuple[int, int] | None, record: Path | None = None
) -> tuple[dict[str, np.ndarray], Path]:
    """Write a video of episodes.

    Args:
        out: the video; None: in the run's folder.
        size: width and height, pixels, both even; None: 640 x 480, or as another library's environment renders.
        record: folder for a LeRobot dataset of the episodes.

    Returns:
        The columns of an ``EpisodeTable`` [E], and the video's path.

    Raises:
        ConfigError: there is no such run or config, it cannot be built here, or video or dataset cannot be written.
        RenderingUnavailableError: there is no renderer.
    """
    if record is not None:
        check_is_free(record)
    stage, seed = _stage(played, lambda cfg: recorded(cfg.with_images(), record)), played.seed
    with stage as (env, policy, view, default), closing(_camera(env, view, size, seed)) as camera:
        path = out or default
        write_into(env, record)
        evaluator = Evaluator(env, episodes, seed + _SEED_OFFSET, torch.device(played.device), path.parent)
        with _writing(path), closing(VideoWriter(path, *camera.size, camera.fps)) as video:
            logger.log_info(f"playing {episodes} episodes")
            _film(evaluator, policy, camera, video)
    return evaluator.table.columns(), path


def _film(evaluator: Evaluator, policy: Policy, camera: Camera, video: VideoWriter) -> None:
    """Play the episodes, with an image of each state."""
    log, num_frames, env = EvaluationLog("playing"), 0, evaluator.env

    def show() -> None:
        nonlocal num_frames
        video.write(camera.render())
        num_frames += 1

    def on_step() -> None:
        total, ended, _ = evaluator.progress()
        log.update(total, ended, num_frames)

    if (scene := scene_env(env)) is not None:
        scene.add_events({"play": EventCfg(_film_with(show), mode="interval", interval_step=1)})
    else:
        env.show_states(show)  # type: ignore[attr-defined]
    evaluator.run(policy, "", on_step=on_step)


def _film_with(show: Callable[[], None]) -> type[Functor]:
    """Return an event that calls a function at the first state of an episode and after each step, before any reset."""

    class Film(Functor):
        is_global = only_reads = True

        def shows_first_state(self) -> bool:
            return bool((self.env.elapsed_steps == 0).any())

        def __call__(self, env: TermEnv, env_ids: torch.Tensor) -> None:
            show()

    return Film


def _camera(env: TaskEnv, view: dict[str, object], size: tuple[int, int] | None, seed: int) -> Camera:
    """Return the image source of an environment; raises as :func:`play_video`."""
    if (scene := scene_env(env)) is not None:
        return SceneCamera(scene, view, size or _SIZE)
    if size is not None:
        raise ConfigError(f"--size: {type(env).__name__} has its own size: set it by its kwargs, if it takes one")
    return OwnCamera(env, seed)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigError about the video."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--out {path}: the video cannot be written: {reason_of(error)}") from error


@contextmanager
def _stage(
    played: Played, change: Callable[[TaskCfg], TaskCfg]
) -> Iterator[tuple[TaskEnv, Policy, dict[str, object], Path]]:
    """Yield the environment, the policy, the config's camera, and the default path of the video.

    Args:
        change: function from the run's config to the environment's.
    """
    if played.agent is None:
        saved = find_run(played.target)
        opening = open_run(saved, 1, played.device, played.allowed_imports, played.overrides, change)
        with opening as opened:
            camera = config_camera([opened.config.eval_env, opened.config.env])
            path = saved.folder / "videos" / f"play_step_{saved.content['global_step']}.mp4"
            yield opened.env, opened.policy, camera, path
        return
    if names_run(played.target):
        raise ConfigError(
            f"{played.target}: is a run, and --agent {played.agent} plays a config without a policy: leave --agent "
            "out, or name the run's config.json"
        )
    config = load_run_config(played.target, evaluated(played.overrides, 1, played.device), played.allowed_imports)
    assert config.eval_env is not None
    torch.manual_seed(played.seed)
    env = build_task(config.env_id, replace(change(config.eval_env.without_records()), num_envs=1))
    with closing(env):
        camera = config_camera([config.eval_env, config.env])
        yield env, AGENTS[played.agent](env.single_action_space), camera, Path("play.mp4")


def format_episodes(columns: Mapping[str, np.ndarray]) -> str:
    """Return a line for each episode of the columns [E] of an ``EpisodeTable``."""
    lines = [
        f"episode {i}  return {total:8.3f}  length {int(length):4}"
        for i, (total, length) in enumerate(zip(columns["return"], columns["length"], strict=True))
    ]
    if "success" in columns:
        said = ("success" if success else "no success" for success in columns["success"])
        lines = [f"{line}  {text}" for line, text in zip(lines, said, strict=True)]
    return "\n".join(lines)
