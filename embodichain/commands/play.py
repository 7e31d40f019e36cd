"""``embodichain play``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import (
    RUN_HELP,
    add_device,
    add_overrides,
    check_viewer,
    number_of_episodes,
    output_file_with,
    output_folder,
    pixels,
    whole_number,
)
from embodichain.tools.agents import AGENTS
from embodichain.tools.play import Played, format_episodes, play_in_browser, play_video
from embodichain.utils import ConfigError
from embodichain.utils.module_utils import add_allow_import, allowed_imports
from embodichain.utils.video import VIDEO_SUFFIXES

EXAMPLES = ("latest", "latest/best --episodes 5 --out best.mp4", "latest --viewer", "train_config.json --agent random")

_EPISODES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "target", metavar="RUN", help=f"{RUN_HELP}; with --agent: a training config, by file, folder or name"
    )
    add_overrides(parser)
    parser.add_argument("--agent", choices=list(AGENTS), help="what acts instead of a policy, in a new environment")
    parser.add_argument("--viewer", action="store_true", help="in the browser, until Ctrl-C, instead of a video")
    parser.add_argument(
        "--episodes", type=number_of_episodes(), metavar="E", help=f"default: {_EPISODES}; with --viewer: without end"
    )
    parser.add_argument(
        "--out",
        type=output_file_with(VIDEO_SUFFIXES),
        metavar="FILE",
        help="the video (default: in the run's folder; play.mp4)",
    )
    parser.add_argument(
        "--record", type=output_folder, metavar="FOLDER", help="write the video's episodes as a LeRobot dataset, too"
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of the episodes (default: 0)")
    parser.add_argument(
        "--size",
        nargs=2,
        type=pixels,
        metavar=("W", "H"),
        help="pixels, even numbers (default: 640 480; of Gymnasium's: their own)",
    )
    add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and write the video or show the task until Ctrl-C; return 0."""
    if any(side % 2 for side in args.size or ()):
        raise ConfigError(f"--size {args.size[0]} {args.size[1]}: even numbers are needed")
    check_viewer(args)
    played = Played(args.target, args.agent, args.seed, args.device, allowed_imports(args), args.overrides)
    if args.viewer and args.record is not None:
        raise ConfigError("--record: not with --viewer, which has no end")
    if args.viewer:
        play_in_browser(played, args.episodes)
        return 0
    size = args.size and tuple(args.size)
    columns, path = play_video(played, args.episodes or _EPISODES, args.out, size, args.record)
    print(format_episodes(columns))
    print(f"video      {path}")
    if args.record is not None:
        print(f"dataset    {args.record}")
    return 0
