"""Progress panel of a training in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from embodichain.utils import logger

_PERIOD = 5.0  # s between two lines

Rows = list[tuple[str, str]]
"""Pairs of name and text."""

_EPISODES = {
    "charts/episode_reward_avg_100": ("return", "{:.2f}"),
    "charts/episode_length_avg_100": ("length", "{:.0f}"),
    "charts/success_rate_avg_100": ("success", "{:.0%}"),
    "eval/success_rate": ("eval", "{:.1%}"),
    "eval/avg_reward": ("eval return", "{:.2f}"),
}
_UPDATE = {
    "train/approx_kl": ("KL", "{:.4f}"),
    "train/clip_fraction": ("clip fraction", "{:.3f}"),
    "train/explained_variance": ("expl. variance", "{:.3f}"),
    "train/action_value": ("Q", "{:.4g}"),
    "train/critic_loss": ("critic loss", "{:.3g}"),
    "train/temperature": ("temperature", "{:.3g}"),
    "train/std": ("std", "{:.3f}"),
    "train/entropy": ("entropy", "{:.2f}"),
    "train/learning_rate": ("learning rate", "{:.2g}"),
}
_LINE = {"charts/SPS": ("steps/s", "{:,.0f}"), **_EPISODES}


def make_progress(iterations: int, done: int = 0, is_shown: bool = True) -> ProgressDisplay:
    """Return a live panel if the output is a terminal, else a display that prints plain lines.

    Args:
        done: number of iterations before a resume.
        is_shown: False on other ranks than 0.
    """
    if not is_shown:
        return ProgressDisplay()
    console = Console(stderr=True)
    return LivePanel(console, iterations, done) if console.is_terminal else PlainProgress(iterations, done)


def evaluation_text(
    num_episodes: int, num_ended: int | None = None, num_frames: int = 0, verb: str = "evaluating"
) -> str:
    """Return how far an evaluation is: ``"evaluating 37/200 episodes, video 220 frames"``."""
    if num_ended is None:
        return f"{verb} {num_episodes} episodes"
    video = f", video {num_frames} frames" if num_frames else ""
    return f"{verb} {num_ended}/{num_episodes} episodes{video}"


def panel_rows(scalars: Mapping[str, float]) -> dict[str, Rows]:
    """Return the panel's names and texts by column, of the latest metrics by their tags."""
    rewards = [name for name in scalars if name.startswith("rewards/")]
    return {
        "episodes": _formatted(_EPISODES, scalars),
        "update": _formatted(_UPDATE, scalars),
        "speed": _speed(scalars),
        "reward of a step": [(name.removeprefix("rewards/"), f"{scalars[name]:.4g}") for name in rewards],
    }


def _formatted(shown: Mapping[str, tuple[str, str]], scalars: Mapping[str, float]) -> Rows:
    return [(label, form.format(scalars[name])) for name, (label, form) in shown.items() if name in scalars]


def _speed(scalars: Mapping[str, float]) -> Rows:
    """Return steps a second, in all and of collecting and learning alone."""
    if "charts/SPS" not in scalars:
        return []
    parts = {name: scalars.get(f"time/{name}_seconds", 0.0) for name in ("collect", "update", "statistics")}
    total, rate = sum(parts.values()), scalars["charts/SPS"]
    rows = [("collecting", parts["collect"]), ("learning", parts["update"])]
    shares = [(label, f"{rate * total / part:,.0f} ({part / total:.0%})") for label, part in rows if part > 0]
    return [("steps/s", f"{rate:,.0f}"), *shares]


class EvaluationLog:
    """Says every five seconds, if it changed, how far an evaluation is, or what ``verb`` says is done with episodes."""

    def __init__(self, verb: str = "evaluating", say: Callable[[str], object] = logger.log_info) -> None:
        self._verb = verb
        self._say = say
        self._next = time.monotonic() + _PERIOD
        self._said = (0, 0)

    def update(self, num_episodes: int, num_ended: int, num_frames: int) -> None:
        """Say it, if it is time; called after every step."""
        state = (num_ended, num_frames)
        if (now := time.monotonic()) >= self._next and state != self._said:
            self._next, self._said = now + _PERIOD, state
            self._say(evaluation_text(num_episodes, num_ended, num_frames, self._verb))


class ProgressDisplay:
    """Shows the progress of a training; this one shows nothing."""

    def update(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Show the metrics after an iteration."""

    def evaluating(self, num_episodes: int, num_ended: int | None = None, num_frames: int = 0) -> None:
        """Show how far an evaluation is; ``num_ended`` is None: it has begun."""

    def close(self) -> None:
        """Stop showing."""


class PlainProgress(ProgressDisplay):
    """A line at most every five seconds and hundredth of the iterations, after each evaluation, and at the end."""

    def __init__(self, iterations: int, done: int = 0) -> None:
        self._iterations = iterations
        self._done = done
        self._start = time.monotonic()
        self._next, self._next_iteration = 0.0, 0
        self._evaluation = EvaluationLog()

    def update(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """See ``ProgressDisplay``."""
        elapsed = time.monotonic() - self._start
        if (elapsed < self._next or iteration < self._next_iteration) and iteration < self._iterations:
            return
        self._next, self._next_iteration = elapsed + _PERIOD, iteration + self._iterations // 100
        left = elapsed / (iteration - self._done) * (self._iterations - iteration)
        # Of an evaluation one number: the return where there is no success.
        hidden = "eval/avg_reward" if "eval/success_rate" in scalars else ""
        chosen = {name: form for name, form in _LINE.items() if name != hidden}
        shown = "  ".join(f"{label} {text}" for label, text in _formatted(chosen, scalars))
        print(f"iteration {iteration}/{self._iterations}  ETA {left:.0f} s  {shown}", flush=True)

    def evaluating(self, num_episodes: int, num_ended: int | None = None, num_frames: int = 0) -> None:
        """See ``ProgressDisplay``; every five seconds."""
        if num_ended is None:
            self._evaluation = EvaluationLog(say=partial(print, flush=True))
            self._next, self._next_iteration = 0.0, 0
            print(evaluation_text(num_episodes), flush=True)
        else:
            self._evaluation.update(num_episodes, num_ended, num_frames)


class LivePanel(ProgressDisplay):
    """A progress bar with the time left, and below it the latest metrics, drawn in place."""

    def __init__(self, console: Console, iterations: int, done: int = 0) -> None:
        columns = (
            TextColumn("[bold]iteration {task.completed}/{task.total}"),
            BarColumn(bar_width=32),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("", total=iterations, completed=done)
        self._live = Live(self._draw({}), console=console, refresh_per_second=4)
        self._live.start()

    def update(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """See ``ProgressDisplay``."""
        self._progress.update(self._task, completed=iteration, description="")
        self._live.update(self._draw(scalars))

    def evaluating(self, num_episodes: int, num_ended: int | None = None, num_frames: int = 0) -> None:
        """See ``ProgressDisplay``."""
        self._progress.update(self._task, description=evaluation_text(num_episodes, num_ended, num_frames))

    def close(self) -> None:
        """Stop drawing; what was drawn last stays."""
        self._live.stop()

    def _draw(self, scalars: Mapping[str, float]) -> RenderableType:
        columns = {heading: rows for heading, rows in panel_rows(scalars).items() if rows}
        if not columns:
            return Panel(self._progress, expand=False)
        tables = []
        for heading, rows in columns.items():
            table = Table.grid(padding=(0, 1))
            table.add_column(style="dim")
            table.add_column(justify="right")
            for row in ((f"[bold not dim]{heading}", ""), *rows):
                table.add_row(*row)
            tables.append(table)
        grid = Table.grid(padding=(0, 3))
        grid.add_row(*tables)
        return Panel(Group(self._progress, "", grid), expand=False)
