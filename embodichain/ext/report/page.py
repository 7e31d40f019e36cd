"""A run's report: one HTML file that needs no other file."""

import argparse
import base64
import io
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from embodichain.agents.rl.checkpoint.saved_run import find_run_folder
from embodichain.agents.rl.trainer.evaluation import wilson_interval
from embodichain.commands.arguments import add_run
from embodichain.tools.run_data import RunData, read_run
from embodichain.utils import border, device, module_utils, write_atomically

REPORT = "report.html"
_LARGEST_VIDEO = 8_000_000  # bytes that are put into the page; a larger one is linked
_MOST_VIDEOS = 3
_LEARNING = (
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance"),
    *("critic_loss", "actor_loss", "action_value", "temperature", "std", "learning_rate"),
)
_FEW_LINES = 8  # lines of a chart of reward terms

Chart = tuple[str, str]
"""A title and the image as a data URI; "" without a point."""
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A section of a page; without any content it is left out.

    Attributes:
        tiles: values and what they are.
        videos: names and addresses.
        headings, rows: table of texts.
        commands: purposes and commands to paste.
        details: text to unfold.
    """

    title: str
    about: str = ""
    tiles: Pairs = ()
    charts: Sequence[Chart] = ()
    videos: Pairs = ()
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    commands: Pairs = ()
    details: str = ""


def render_page(title: str, about: str, sections: Sequence[Section]) -> str:
    """Return an HTML page, light or dark as the reader's system is."""
    shown = [s for s in sections if s.tiles or s.charts or s.videos or s.rows or s.commands or s.details]
    environment = Environment(loader=PackageLoader("embodichain.ext.report", "."), autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(title=title, about=about, sections=shown)


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a run's folder; return its path."""
    page = make_page(read_run(folder))
    path = folder / REPORT
    write_atomically(path, lambda file: file.write(page.encode()))
    return path


def make_page(run: RunData) -> str:
    """Return the page."""
    algorithm, policy = run.config["algorithm"]["name"], run.config["policy"]["name"]
    task = run.config.get("gym_config", {}).get("id", "?")
    about = f"{task}: {algorithm}, {policy}, seed {run.config['trainer'].get('seed')}: {run.folder.name}"
    metrics = [_chart(run, name, name.removeprefix("metrics/")) for name in run.names("metrics/")]
    sections = [
        Section("Result", tiles=_result(run)),
        Section("Learning", charts=_learning(run)),
        _rewards(run),
        Section("Metrics", charts=metrics),
        _evaluations(run),
        Section("Videos", videos=_videos(run)),
        Section("The update", charts=_update(run)),
        Section("What to do next", commands=_commands(run)),
        Section("Config", details=json.dumps(run.config, indent=2, ensure_ascii=False)),
        Section("Machine and versions", rows=_machine(run)),
    ]
    return render_page(run.name, about, sections)


def reward_shares(run: RunData) -> list[tuple[str, float, float, float]]:
    """Return name, first value, last value and last share of each reward term, the largest share first.

    First and last are means over a tenth of the iterations; a share is of the sum of the last values' sizes.
    """
    rows = []
    for name in run.names("rewards/"):
        _, values = run.series(name)
        if len(values):
            few = max(1, len(values) // 10)
            rows.append((name.removeprefix("rewards/"), float(values[:few].mean()), float(values[-few:].mean())))
    total = sum(abs(last) for _, _, last in rows) or 1.0
    return sorted(((*row, abs(row[2]) / total) for row in rows), key=lambda row: -row[3])


def _result(run: RunData) -> list[tuple[str, str]]:
    last, summary = run.rows[-1], run.summary
    tiles = []
    rate, interval = summary.get("success_rate"), summary.get("success_interval_95")
    if rate is not None and interval is not None:
        low, high = interval
        episodes = summary.get("episodes", "?")
        tiles.append((f"{rate:.1%}", f"success of {episodes} episodes (95 %: {low:.1%} to {high:.1%})"))
    elif summary.get("episodes") and "avg_reward" in summary:
        tiles.append((border.format_finite(summary["avg_reward"]), f"return, mean of {summary['episodes']} episodes"))
    elif last.get("charts/success_rate_avg_100") is not None:
        tiles.append((f"{last['charts/success_rate_avg_100']:.0%}", "success in training, last 100 episodes"))
    if last.get("charts/episode_reward_avg_100") is not None:
        tiles.append((f"{last['charts/episode_reward_avg_100']:.4g}", "return in training, last 100 episodes"))
    tiles.append((number(last["step"]), f"environment steps, {len(run.rows)} iterations"))
    seconds = last.get("time/train_seconds")
    if seconds is not None:
        tiles.append((_duration(seconds), "collecting and learning"))
        tiles.append((number(last["step"] / max(seconds, 1e-9)), "environment steps a second"))
    return tiles if summary else [*tiles, ("unfinished", "this training is unfinished or still running")]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _learning(run: RunData) -> list[Chart]:
    success = [
        Series("training, with exploration", *run.series("charts/success_rate_avg_100")),
        Series("evaluation", *run.series("eval/success_rate"), has_points=True),
    ]
    returns = [
        Series("training", *run.series("charts/episode_reward_avg_100")),
        Series("evaluation", *run.series("eval/avg_reward"), has_points=True),
    ]
    lengths = [Series("length", *run.series("charts/episode_length_avg_100"))]
    steps, seconds = run.series("time/train_seconds")
    # Not every Gymnasium environment knows success.
    has_success = any(len(one.x) for one in success) or not any(len(one.x) for one in returns)
    name, headline = ("success rate", success) if has_success else ("return", returns)
    over_time = [replace(one, x=np.interp(one.x, steps, seconds)) for one in headline if len(steps)]
    return [
        *([line_chart("success rate", success, is_share=True)] if has_success else []),
        line_chart("return", returns),
        line_chart("episode length, steps", lengths),
        line_chart(f"{name} over time", over_time, "s of training", is_share=has_success),
    ]


def _rewards(run: RunData) -> Section:
    shares = reward_shares(run)
    lines = [Series(name, *run.series(f"rewards/{name}")) for name, *_ in shares]
    about = (
        "Weighted terms, mean of a step. First and last: means over a tenth of the training. Shares: of the last sizes."
        " 'embodichain rewards' says more."
    )
    return Section(
        "Reward",
        about,
        charts=[line_chart("reward terms", lines[i : i + _FEW_LINES]) for i in range(0, len(lines), _FEW_LINES)],
        headings=["term", "first", "last", "share"],
        rows=[[name, f"{first:.4g}", f"{last:.4g}", f"{share:.1%}"] for name, first, last, share in shares],
    )


def _evaluations(run: RunData) -> Section:
    rows = []
    for row in run.rows:
        rate, episodes = row.get("eval/success_rate"), int(row.get("eval/episodes") or 0)
        if (rate is None and row.get("eval/avg_reward") is None) or (rate is not None and not 0 <= rate <= 1):
            continue
        cells = [f"{row['step']:,}", str(episodes or ""), "" if rate is None else f"{rate:.1%}", ""]
        if rate is not None and episodes:
            low, high = wilson_interval(rate, episodes)
            cells[3] = f"{low:.1%} to {high:.1%}"
        cells += [
            f"{row[name]:.4g}" if row.get(name) is not None else "" for name in ("eval/avg_reward", "eval/avg_length")
        ]
        rows.append([*cells, _duration(row.get("time/train_seconds", 0.0))])
    headings = ["steps", "episodes", "success", "95 % interval", "return", "length", "training"]
    about = "The same episodes every time, without exploration."
    return Section("Evaluations", about, headings=headings, rows=rows)


def _videos(run: RunData) -> list[tuple[str, str]]:
    last = run.rows[-1]["step"]  # later evaluations are from before a resume from an earlier checkpoint
    files = [path for path in (run.folder / "videos").glob("*.mp4") if path.is_file()]
    steps = {path: re.search(r"_step_(\d+)$", path.stem) for path in files}
    files = [path for path, step in steps.items() if step is None or int(step[1]) <= last]
    found = sorted(files, key=lambda path: path.stat().st_mtime)[-_MOST_VIDEOS:]
    addresses = []
    for path in reversed(found):
        is_large = path.stat().st_size > _LARGEST_VIDEO
        content = "" if is_large else base64.b64encode(path.read_bytes()).decode()
        addresses.append((path.name, f"videos/{path.name}" if is_large else f"data:video/mp4;base64,{content}"))
    return addresses


def _update(run: RunData) -> list[Chart]:
    logged = [name for name in _LEARNING if len(run.series(f"train/{name}")[0])]
    parts = [Series(name, *run.series(f"time/{name}_seconds")) for name in ("collect", "update")]
    charts = [_chart(run, f"train/{name}", name.replace("_", " ")) for name in logged]
    return [*charts, line_chart("seconds of an iteration", parts)]


def _chart(run: RunData, metric: str, title: str) -> Chart:
    return line_chart(title, [Series(title, *run.series(metric))])


def _commands(run: RunData) -> list[tuple[str, str]]:
    folder, env = shlex.quote(str(run.folder)), run.config.get("gym_config", {})
    before_name = str(env.get("id", "")).split(":")[:-1]  # "gymnasium" and a package that registers it, or nothing
    more = 2 * int(run.config["trainer"].get("iterations", 1))
    renders = not before_name or "render_mode" in env.get("kwargs", {})
    commands = [
        ("evaluate it on other episodes", f"embodichain eval {folder}"),
        ("make a video" if renders else "make a video, if the environment can render", f"embodichain play {folder}"),
        ("continue the training", f"embodichain resume {folder} trainer.iterations={more}"),
        ("export it for a robot", f"embodichain export {folder} --format onnx"),
    ]
    if run.names("rewards/") and len(run.series("charts/success_rate_avg_100")[0]):
        commands.append(("analyse the reward", f"embodichain rewards {folder}"))
    allowing = module_utils.import_options([*run.config["trainer"].get("import_modules", []), *before_name[1:]])
    return [(about, f"{command} {allowing}".rstrip()) for about, command in commands]


def _machine(run: RunData) -> list[tuple[str, str]]:
    rows = [(key.replace("_", " "), _plain(value)) for key, value in run.machine.items() if value not in (None, [], {})]
    if rows and "peak_memory_mb" in run.summary:
        rows.append(("peak memory", device.format_megabytes(run.summary["peak_memory_mb"])))
    return rows


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# Okabe and Ito, "Color Universal Design", 2008: distinguishable with colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a300")
_MOST_POINTS = 300
_INKED = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color", "text.color")
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "embodichain",  # the same chart is the same file
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,  # names are no formulas
    **dict.fromkeys(_INKED, "#7d8590"),  # readable on white and on black
}

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        x, y: coordinates of its points, in the order of x.
        low, high: edges of a band around it, as long as y; empty: none.
        has_points: draw the points, too.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers = field(default_factory=tuple)
    high: Numbers = field(default_factory=tuple)
    has_points: bool = False


def line_chart(
    title: str, series: Sequence[Series], x_label: str = "environment steps", is_share: bool = False
) -> Chart:
    """Return a chart, with a legend where there are several lines.

    Args:
        series: the lines; points that are not finite are left out.
        is_share: y is a share, from 0 to 100 %.
    """
    lines = [one for one in map(_thin, series) if len(one.x)]
    if not lines:
        return title, ""
    file = io.StringIO()
    with rc_context(_STYLE):
        figure = Figure((6.4, 3.2), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        for i, one in enumerate(lines):
            colour = COLOURS[i % len(COLOURS)]
            marker = "o" if one.has_points or len(one.x) == 1 else ""
            axes.plot(one.x, one.y, color=colour, marker=marker, markersize=5, label=one.name)
            if len(one.low):
                axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
        axes.set_xlabel(x_label)
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.locator_params(nbins=6)
        axes.xaxis.set_major_formatter(lambda x, _: number(x))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0) if is_share else lambda y, _: number(y))
        if is_share:
            axes.set_ylim(-0.02, 1.02)
        if len(lines) > 1:
            axes.legend()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return title, "data:image/svg+xml;base64," + base64.b64encode(file.getvalue().encode()).decode()


def number(value: float) -> str:
    """Return a number for people: 1.2M, 350k, 0.03."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.3g}"


def _thin(one: Series) -> Series:
    """Drop points that are not finite, and average neighbours where there are too many to be seen."""
    columns = [np.asarray(values, float) for values in (one.x, one.y, one.low, one.high)]
    finite = np.isfinite(columns[0]) & np.isfinite(columns[1])
    columns = [values[finite] if len(values) else values for values in columns]
    if len(columns[0]) > _MOST_POINTS and not one.has_points:
        cuts = np.linspace(0, len(columns[0]), _MOST_POINTS + 1).astype(int)
        columns = [
            np.array([values[a:b].mean() for a, b in pairwise(cuts)]) if len(values) else values for values in columns
        ]
    x, y, low, high = columns
    return Series(one.name, x, y, low, high, one.has_points)


EXAMPLES = ("latest", "outputs/push_cube_ppo_20260101_120000")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report; return 0."""
    print(write_report(find_run_folder(args.target)))
    return 0
