"""``embodichain play``: episodes as a video, or in the browser. Shapes: E episodes."""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from embodichain.agents.rl.build import build_task, evaluated, open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run, names_run
from embodichain.agents.rl.config.arguments import add_allow_import, add_overrides, allowed_imports
from embodichain.agents.rl.metrics.panel import EvaluationLog
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import load_run_config, scene_env, with_scene
from embodichain.agents.rl.trainer import viewer
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.agents.rl.vec_env import TaskEnv
from embodichain.commands import arguments
from embodichain.commands.view import AGENTS, config_camera
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import EventCfg
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.motion.commands import MotionCommand, motion_of
from embodichain.lab.gym.envs.managers.record import EpisodeVideo, Recording, VideoEvent, View
from embodichain.lab.sim.motion import MotionClip, body_states, link_bodies
from embodichain.tools.policy import check_is_free, recorded, write_into
from embodichain.utils import CommandFailedError, ConfigError, logger, replace
from embodichain.utils.video import VIDEO_SUFFIXES

EXAMPLES = ("latest", "latest/best --grid 3x3 --speed 0.25", "latest --viewer", "train_config.json --agent random")

_EPISODES = 3
_SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_SEED_OFFSET = 3_000_003  # other episodes than training's and evaluation's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "target", metavar="RUN", help=f"{arguments.RUN_HELP}; with --agent: a training config, by file, folder or name"
    )
    add_overrides(parser)
    parser.add_argument("--agent", choices=list(AGENTS), help="what acts instead of a policy, in a new environment")
    parser.add_argument("--viewer", action="store_true", help="in the browser, until Ctrl-C, instead of a video")
    parser.add_argument(
        "--episodes",
        type=arguments.number_of_episodes(),
        metavar="E",
        help=f"default: {_EPISODES}, or one in each cell of --grid; with --viewer: without end",
    )
    parser.add_argument(
        "--grid", type=arguments.grid, default=(1, 1), metavar="CxR", help="environments in columns and rows (1x1)"
    )
    parser.add_argument("--speed", type=float, choices=_SPEEDS, help="of the video (default: real time)")
    parser.add_argument(
        "--out",
        type=arguments.output_file_with(VIDEO_SUFFIXES),
        metavar="FILE",
        help="the video (default: in the run's folder; play.mp4)",
    )
    parser.add_argument(
        "--record",
        type=arguments.output_folder,
        metavar="FOLDER",
        help="write the video's episodes as a LeRobot dataset, too",
    )
    parser.add_argument(
        "--record-motion",
        type=arguments.output_file_with((".npz",)),
        metavar="FILE",
        help="write the first episode's motion as a clip that a MotionCommand can follow, too",
    )
    parser.add_argument("--seed", type=arguments.whole_number(0), default=0, help="of the episodes (default: 0)")
    parser.add_argument(
        "--size",
        nargs=2,
        type=arguments.pixels,
        metavar=("W", "H"),
        help="pixels, even numbers (default: 640 480, in a grid 320 240 each; of Gymnasium's: their own)",
    )
    arguments.add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and write the video or show the task until Ctrl-C; return 0."""
    if any(side % 2 for side in args.size or ()):
        raise ConfigError(f"--size {args.size[0]} {args.size[1]}: even numbers are needed")
    arguments.check_viewer(args)
    count = args.grid[0] * args.grid[1]
    seed, device = args.seed + _SEED_OFFSET, torch.device(args.device)
    if args.viewer:
        with _stage(args, count, lambda cfg: with_scene(cfg, "--viewer")) as (env, policy, _, _):
            viewer.play_live(scene_env(env), policy.eval(), device, seed, args.episodes)
        return 0
    if args.record is not None:
        check_is_free(args.record)
    episodes = args.episodes or (_EPISODES if count == 1 else count)
    stage = _stage(args, count, lambda cfg: recorded(cfg.with_images(), args.record, episodes))
    with stage as (env, policy, view, default):
        path = args.out or default
        write_into(env, args.record)
        evaluator, log = Evaluator(env, episodes, seed, device, path.parent), EvaluationLog("playing")
        scene = scene_env(env)
        fps = (args.speed or 1.0) * (env.render_fps if scene is None else 1.0 / scene.step_dt)  # type: ignore[attr-defined]
        with (
            closing(EpisodeVideo(path, env, fps, count, args.grid[0], episodes)) as video,
            _filmed(env, view, video, args) as motion,
        ):
            logger.log_info(f"playing {episodes} episodes")
            evaluator.run(policy, "", on_step=lambda: log.update(*evaluator.progress()[:2], video.frames))
        if motion is not None:
            motion.clip().save(args.record_motion)
    if not path.exists():  # another library's environments only warn
        raise CommandFailedError(f"no video was written: {path}")
    print(format_episodes(evaluator.table.columns()))
    print(f"video      {path}")
    if args.record is not None:
        print(f"dataset    {args.record}")
    if args.record_motion is not None:
        print(f"motion     {args.record_motion}")
    return 0


@contextmanager
def _stage(
    args: argparse.Namespace, count: int, change: Callable[[TaskCfg], TaskCfg]
) -> Iterator[tuple[TaskEnv, Policy, dict[str, object], Path]]:
    """Yield the environments, the policy, the config's camera, and the default path of the video.

    Args:
        count: number of environments.
        change: function from the run's config to the environment's.
    """
    if args.agent is None:
        saved = find_run(args.target)
        with open_run(saved, count, args.device, allowed_imports(args), args.overrides, change) as opened:
            camera = config_camera([opened.config.eval_env, opened.config.env])
            path = saved.folder / "videos" / f"play_step_{saved.content['global_step']}.mp4"
            yield opened.env, opened.policy, camera, path
        return
    if names_run(args.target):
        raise ConfigError(
            f"{args.target}: is a run, and --agent {args.agent} plays a config without a policy: leave --agent out, or "
            "name the run's config.json"
        )
    config = load_run_config(args.target, evaluated(args.overrides, count, args.device), allowed_imports(args))
    assert config.eval_env is not None
    torch.manual_seed(args.seed)
    env = build_task(config.env_id, replace(change(config.eval_env.without_records()), num_envs=count))
    with closing(env):
        camera = config_camera([config.eval_env, config.env])
        yield env, AGENTS[args.agent](env.single_action_space), camera, Path("play.mp4")


@contextmanager
def _filmed(
    env: Any, view: Mapping[str, object], episodes: EpisodeVideo, args: argparse.Namespace
) -> Iterator["MotionRecorder | None"]:
    """Add each state of the block's episodes to a video, before any reset; yield the recorder of ``--record-motion``.

    Args:
        view: parameters of the camera.
    """
    scene, recording = scene_env(env), Recording()
    motion = None if args.record_motion is None else MotionRecorder(scene)
    if scene is None:
        if args.size is not None:
            raise ConfigError(f"--size: {type(env).__name__} has its own size: set it by its kwargs, if it takes one")
        if args.grid != (1, 1):
            raise ConfigError("--grid: other libraries' environments show the first of them alone: leave --grid out")
        env.reset(seed=args.seed)
        env.image()  # where it fails, that is an error, and not the recording's warning
        env.film(episodes)
        yield None
        return
    width, height = args.size or ((640, 480) if args.grid == (1, 1) else (320, 240))
    follows = isinstance(scene.command_manager.terms.get("motion"), MotionCommand)
    with closing((ReferenceView if follows else View)(scene, (width, height), view)) as camera:
        recording.start(episodes)

        class Film(VideoEvent):
            def __call__(self, env: TermEnv, env_ids: torch.Tensor) -> None:
                episodes.add(camera.render)
                if motion is not None:
                    motion.add()

        Film.recording = recording
        scene.add_events({"play": EventCfg(Film, mode="interval", interval_step=1)})
        yield motion


class MotionRecorder:
    """Records the states of an environment's first episode, one for each call of :meth:`add`."""

    def __init__(self, env: EmbodiedEnv | None) -> None:
        if env is None or not env.robot.base.is_free:
            raise ConfigError("--record-motion: needs a robot with a free base")
        self._env = env
        self._bodies = torch.tensor(link_bodies(env.robot, env.sim.model), device=env.device)
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._episodes = 0

    def add(self) -> None:
        """Record the present state, if it is of the first episode."""
        env = self._env
        self._episodes += int(env.elapsed_steps[0] == 0)
        if self._episodes == 1:
            joints = torch.cat((env.robot.get_qpos(), env.robot.get_qvel()), dim=1)
            self._rows.append((joints[0].cpu(), body_states(env.sim.backend, self._bodies)[0].cpu()))

    def clip(self) -> MotionClip:
        """Return the recorded motion."""
        joints, bodies = (torch.stack(rows).numpy() for rows in zip(*self._rows, strict=True))
        return MotionClip.of(1.0 / self._env.step_dt, joints, bodies)


class ReferenceView(View):
    """A view of the robot with the translucent reference of its ``MotionCommand``."""

    @override
    def render(self, env_id: int = 0) -> np.ndarray:
        env = self.env
        motion, backend, row = motion_of(env), env.sim.backend, env.all_env_ids[env_id : env_id + 1]
        image, pose, state = super().render(env_id), self.pose(env_id), backend.copy_rows(row)
        motion.place(row, motion.frame[row], torch.zeros(1, env.robot.dof + 12, device=env.device))
        reference = self._renderer.render(env_id, pose)
        backend.put_rows(row, state)
        return (0.65 * image + 0.35 * reference).astype(np.uint8)


def format_episodes(columns: Mapping[str, np.ndarray]) -> str:
    """Return a line for each episode of the columns [E] of an ``EpisodeTable``, with the termination that ended it."""
    ended = re.compile("metrics/termination/(.*) at the end")
    ends = {found[1]: values for name, values in columns.items() if (found := ended.fullmatch(name))}
    lines = [
        f"episode {i}  return {total:8.3f}  length {int(length):4}"
        for i, (total, length) in enumerate(zip(columns["return"], columns["length"], strict=True))
    ]
    if "success" in columns:
        said = ("success" if success else "no success" for success in columns["success"])
        lines = [f"{line}  {text}" for line, text in zip(lines, said, strict=True)]
    # NaN: the environment's steps did not have it yet.
    whys = (", ".join(name for name, values in ends.items() if values[i] == 1) for i in range(len(lines)))
    lines = [f"{line}: {why}" if why else line for line, why in zip(lines, whys, strict=True)]
    return "\n".join(lines)
