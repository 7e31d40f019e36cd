"""Arguments that several commands have."""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.arguments import device_here
from embodichain.agents.rl.config.trainer_cfg import MOST_EPISODES
from embodichain.agents.rl.trainer.viewer import check_viewer_is_installed
from embodichain.utils import ConfigError
from embodichain.utils.files import json_text

CONFIG_HELP = (
    "training config: a file (JSON or YAML), a folder with one, or the name of a shipped one such as push_cube, "
    "push_cube/grpo or PushCubeRL ('embodichain list envs')"
)
RUN_HELP = (
    "a run's folder (its latest checkpoint; with /best its best one), a checkpoint's file, or 'latest' or 'best' of "
    "the run in ./outputs that saved last"
)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the argument RUN."""
    parser.add_argument("target", metavar="RUN", help=RUN_HELP)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare the option ``--device``."""
    parser.add_argument(
        "--device", type=device_here, default="cpu", help="of the policy: cpu, cuda:0, auto (default: %(default)s)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare the option ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def check_viewer(args: argparse.Namespace) -> None:
    """Refuse ``--viewer`` together with output options, or without viser."""
    if not args.viewer:
        return
    for option in ("out", "size", "speed", "record", "record_motion"):
        if getattr(args, option, None) is not None:
            raise ConfigError(f"--{option.replace('_', '-')}: nothing is written with --viewer")
    check_viewer_is_installed("--viewer")


def print_result(args: argparse.Namespace, result: Any, text: Callable[[Any], str]) -> None:
    """Print plain data as JSON with ``--json``, else as formatted by ``text``."""
    print(json_text(result, indent=2) if args.json else text(result))


def format_columns(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts in columns; texts of over 48 letters after the first column are cut in the middle."""
    cut = [[row[0], *(t if len(t) <= 48 else f"{t[:21]} ... {t[-21:]}" for t in row[1:])] for row in rows]
    widths = [max(map(len, column)) + 2 for column in zip(*cut, strict=True)]
    return "\n".join("".join(f"{t:{width}}" for t, width in zip(row, widths, strict=True)).rstrip() for row in cut)


def whole_number(lowest: int = 1, highest: float = math.inf) -> Callable[[str], int]:
    """Return a type for ``add_argument``: a whole number from ``lowest`` on, to ``highest``."""

    def read(text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or not lowest <= int(text) <= highest:
            end = "on" if highest == math.inf else f"to {highest}"
            raise argparse.ArgumentTypeError(f"must be a whole number from {lowest} {end}, got '{text}'")
        return int(text)

    return read


pixels = whole_number(16, 16384)
"""Type for ``add_argument``: a side of an image; OpenGL's largest is 16384 on most machines."""


def grid(text: str) -> tuple[int, int]:
    """Type for ``add_argument``: columns and rows of a grid, such as ``3x3``."""
    if not re.fullmatch("[1-8]x[1-8]", text):
        raise argparse.ArgumentTypeError(f"must be columns x rows, such as 3x3, at most 8x8, got '{text}'")
    return int(text[0]), int(text[2])


def number_of_episodes(lowest: int = 1) -> Callable[[str], int]:
    """Return a type for ``add_argument``: a number of episodes that fits the memory."""
    return whole_number(lowest, MOST_EPISODES)


def output_file(text: str) -> Path:
    """Type for ``add_argument``: the path of a file to write, which is not a folder."""
    if text.endswith(os.sep) or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"must be a file, but '{text}' is a folder")
    return Path(text)


def output_file_with(suffixes: Sequence[str]) -> Callable[[str], Path]:
    """Return a type for ``add_argument``: the path of a file to write, with one of the suffixes."""

    def read(text: str) -> Path:
        path = output_file(text)
        if path.suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(f"must end with one of {', '.join(suffixes)}, got '{text}'")
        return path

    return read


def output_folder(text: str) -> Path:
    """Type for ``add_argument``: the path of a folder to write into, which need not exist."""
    if os.path.exists(text) and not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"must be a folder, but '{text}' is a file")
    return Path(text)


def parse_pairs(pairs: list[str], place: str) -> dict[str, float]:
    """Read ``name=number`` pairs; ``place`` is the option's name for messages."""
    try:
        numbers = {name: float(text) for name, _, text in (pair.partition("=") for pair in pairs)}
        if not all(map(math.isfinite, numbers.values())):
            raise ValueError("not finite")
        return numbers
    except ValueError as error:
        raise ConfigError(f"{place}: must be of the form name=0.5: {error}") from error


def checked_path(text: str | None, check: Callable[[str], Path]) -> Path | None:
    """Return the path that ``--out`` names, of the kind that ``check`` takes; None for None."""
    try:
        return None if text is None else check(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"argument --out: {error}") from error
