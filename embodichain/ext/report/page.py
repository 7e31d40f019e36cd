"""A run's report: one HTML file that needs no other file."""

from __future__ import annotations

import base64
import dataclasses
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.models.registry import get_policy_cfg_class
from embodichain.agents.rl.run_data import RunData, read_run
from embodichain.agents.rl.trainer.evaluation import wilson_interval
from embodichain.ext.report.charts import COLOURS, Series, line_chart, number
from embodichain.utils import ConfigError
from embodichain.utils.configclass import MISSING
from embodichain.utils.files import write_atomically
from embodichain.utils.machine import format_megabytes
from embodichain.utils.module_utils import import_options
from embodichain.utils.printing import format_finite

_LARGEST_VIDEO = 8_000_000  # bytes that are put into the page; a larger one is linked
_MOST_VIDEOS = 3
_LEARNING = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "critic_loss",
    "actor_loss",
    "action_value",
    "temperature",
    "std",
    "learning_rate",
)
_FEW_LINES = 8
"""Style of reports: light or dark, as the reader's system is, and printable."""

STYLE = """
:root{--back:#fff;--card:#f6f7f9;--text:#1c2128;--dim:#5b6470;--line:#d9dde3}
@media(prefers-color-scheme:dark){:root{--back:#14171c;--card:#1d2128;--text:#e6e9ee;--dim:#9aa4b2;--line:#343b46}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
header,main{max-width:1060px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:28px;margin:0}
h2{font-size:19px;margin:34px 0 10px;border-bottom:1px solid var(--line);padding-bottom:4px}
p{margin:6px 0;color:var(--dim)}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin-top:8px}
a{color:#0072b2}
@media(prefers-color-scheme:dark){a{color:#56b4e9}}
.tiles,.cards{display:grid;gap:14px}
.tiles{grid-template-columns:repeat(auto-fit,minmax(170px,1fr))}
.cards{grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr))}
.tile,.card,figure{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:0;padding:12px}
.tile b{display:block;font-size:24px}
.tile span,figcaption{color:var(--dim);font-size:13px}
.plot b{font-size:13px}
.chart{width:100%;height:auto;display:block;color:var(--dim)}
.chart path{stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:var(--dim);margin:2px 0 0 12%}
.legend i{display:inline-block;width:12px;height:4px;border-radius:2px;margin-right:5px;vertical-align:middle}
video{width:100%;border-radius:6px;background:#000}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;min-width:50%}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500}
td.bar{width:220px}td.bar span{display:block;height:10px;border-radius:3px;margin-top:6px}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:8px 12px;overflow-x:auto}
code{font-size:13px}
summary{cursor:pointer;margin:10px 0}
main{padding-bottom:60px}
"""
REPORT = "report.html"
_NOT_SETTINGS = ("gym_config", "exp_name", "events", "import_modules")


def make_page(run: RunData) -> str:
    """Return the page."""
    sections = [
        ("Result", _result(run)),
        ("Learning", _learning(run)),
        ("Reward", _rewards(run)),
        ("Metrics", cards([_chart(run, name, name.removeprefix("metrics/")) for name in run.names("metrics/")])),
        ("Evaluations", _evaluations(run)),
        ("Videos", _videos(run)),
        ("The update", _update(run)),
        ("What to do next", _commands(run)),
        ("Config", _config(run)),
        ("Machine and versions", _machine(run)),
    ]
    shown = [(title, content) for title, content in sections if content]
    links = "".join(f'<a href="#{_anchor(title)}">{escape(title)}</a>' for title, _ in shown)
    body = "".join(
        f'<section id="{_anchor(title)}"><h2>{escape(title)}</h2>{content}</section>' for title, content in shown
    )
    return document(run.name, f"<p>{escape(_subtitle(run))}</p><nav>{links}</nav>", body)


def document(title: str, below_title: str, body: str) -> str:
    """Return a whole HTML page from its title and the HTML below it and in its main part."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><header><h1>{escape(title)}</h1>{below_title}</header>"
        f"<main>{body}</main></body></html>\n"
    )


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


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table of texts; the first column is the rows' name."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _subtitle(run: RunData) -> str:
    algorithm, policy = run.config["algorithm"]["name"], run.config["policy"]["name"]
    task = run.config.get("gym_config", {}).get("id", "?")
    return f"{task}: {algorithm}, {policy}, seed {run.config['trainer'].get('seed')}: {run.folder.name}"


def _result(run: RunData) -> str:
    last, summary = run.rows[-1], run.summary
    tiles = []
    rate, interval = summary.get("success_rate"), summary.get("success_interval_95")
    if rate is not None and interval is not None:
        low, high = interval
        episodes = summary.get("episodes", "?")
        tiles.append((f"{rate:.1%}", f"success of {episodes} episodes (95 %: {low:.1%} to {high:.1%})"))
    elif summary.get("episodes") and "avg_reward" in summary:
        tiles.append((format_finite(summary["avg_reward"]), f"return, mean of {summary['episodes']} episodes"))
    elif last.get("charts/success_rate_avg_100") is not None:
        tiles.append((f"{last['charts/success_rate_avg_100']:.0%}", "success in training, last 100 episodes"))
    if last.get("charts/episode_reward_avg_100") is not None:
        tiles.append((f"{last['charts/episode_reward_avg_100']:.4g}", "return in training, last 100 episodes"))
    tiles.append((number(last["step"]), f"environment steps, {len(run.rows)} iterations"))
    seconds = last.get("time/train_seconds")
    if seconds is not None:
        tiles.append((_duration(seconds), "collecting and learning"))
        tiles.append((number(last["step"] / max(seconds, 1e-9)), "environment steps a second"))
    if not summary:
        tiles.append(("unfinished", "this training is unfinished or still running"))
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(about)}</span></div>' for value, about in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _learning(run: RunData) -> str:
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
    charts = [
        *([line_chart("success rate", success, is_share=True)] if has_success else []),
        line_chart("return", returns),
        line_chart("episode length, steps", lengths),
        line_chart(f"{name} over time", over_time, "s of training", is_share=has_success),
    ]
    return cards(charts)


def _rewards(run: RunData) -> str:
    shares = reward_shares(run)
    if not shares:
        return ""
    lines = [Series(name, *run.series(f"rewards/{name}")) for name, *_ in shares]
    bars = "".join(
        f"<tr><td>{escape(name)}</td><td>{first:.4g}</td><td>{last:.4g}</td><td>{share:.1%}</td>"
        f'<td class="bar"><span style="width:{share:.1%};background:{COLOURS[i % len(COLOURS)]}"></span></td></tr>'
        for i, (name, first, last, share) in enumerate(shares)
    )
    head = "<th>term</th><th>first</th><th>last</th><th>share</th><th></th>"
    explained = (
        "Weighted terms, mean of a step. First and last: means over a tenth of the training. Shares: of the last sizes."
    )
    charts = [line_chart("reward terms", lines[i : i + _FEW_LINES]) for i in range(0, len(lines), _FEW_LINES)]
    return (
        f"{cards(charts)}<p>{explained} <code>embodichain rewards</code> says more.</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{bars}</tbody></table></div>'
    )


def _evaluations(run: RunData) -> str:
    episodes = run.config["trainer"].get("num_eval_episodes", 0)
    rows = []
    for row in run.rows:
        rate = row.get("eval/success_rate")
        if (rate is None and row.get("eval/avg_reward") is None) or (rate is not None and not 0 <= rate <= 1):
            continue
        cells = [f"{row['step']:,}", "", ""]
        if rate is not None:
            low, high = wilson_interval(rate, episodes)
            cells[1:] = [f"{rate:.1%}", f"{low:.1%} to {high:.1%}"]
        cells += [
            f"{row[name]:.4g}" if row.get(name) is not None else "" for name in ("eval/avg_reward", "eval/avg_length")
        ]
        rows.append([*cells, _duration(row.get("time/train_seconds", 0.0))])
    if not rows:
        return ""
    about = f"<p>{episodes} episodes each, the same ones every time, without exploration.</p>"
    return about + table(["steps", "success", "95 % interval", "return", "length", "training"], rows)


def _videos(run: RunData) -> str:
    files = [path for path in (run.folder / "videos").glob("*.mp4") if path.is_file()]
    found = sorted(files, key=lambda path: path.stat().st_mtime)[-_MOST_VIDEOS:]
    parts = []
    for path in reversed(found):
        source = f"videos/{path.name}"
        if path.stat().st_size <= _LARGEST_VIDEO:
            source = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()
        parts.append(
            f'<figure><video controls autoplay muted loop playsinline src="{escape(source)}"></video>'
            f"<figcaption>{escape(path.name)}</figcaption></figure>"
        )
    return f'<div class="cards">{"".join(parts)}</div>' if parts else ""


def _update(run: RunData) -> str:
    logged = [name for name in _LEARNING if len(run.series(f"train/{name}")[0])]
    charts = [_chart(run, f"train/{name}", name.replace("_", " ")) for name in logged]
    parts = [Series(name, *run.series(f"time/{name}_seconds")) for name in ("collect", "update")]
    if any(len(part.x) for part in parts):
        charts.append(line_chart("seconds of an iteration", parts))
    return cards(charts)


def _chart(run: RunData, metric: str, title: str) -> str:
    return line_chart(title, [Series(title, *run.series(metric))])


def cards(charts: Sequence[str]) -> str:
    """Return charts side by side, "" without any."""
    inner = "".join(f'<div class="card">{chart}</div>' for chart in charts)
    return f'<div class="cards">{inner}</div>' if charts else ""


def _commands(run: RunData) -> str:
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
    allowing = import_options([*run.config["trainer"].get("import_modules", []), *before_name[1:]])
    return "".join(
        f"<p>{escape(about)}</p><pre>{escape(f'{command} {allowing}'.rstrip())}</pre>" for about, command in commands
    )


def _config(run: RunData) -> str:
    rows = differences_from_defaults(run.config)
    whole = escape(json.dumps(run.config, indent=2, ensure_ascii=False))
    return (
        "<p>What differs from the defaults:</p>"
        + table(["setting", "value", "default"], rows)
        + f"<details><summary>the whole config, as it was resolved</summary><pre>{whole}</pre></details>"
    )


def _machine(run: RunData) -> str:
    if not run.machine:
        return ""
    rows = [(key.replace("_", " "), _plain(value)) for key, value in run.machine.items() if value not in (None, [], {})]
    if "peak_memory_mb" in run.summary:
        rows.append(("peak memory", format_megabytes(run.summary["peak_memory_mb"])))
    return table(["", ""], rows)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a run's folder; return its path.

    Raises:
        ConfigError: the folder is not a run's.
        OSError: the report cannot be written.
    """
    page = make_page(read_run(folder))
    path = folder / REPORT
    write_atomically(path, lambda file: file.write(page.encode()))
    return path


def differences_from_defaults(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return path, value and default, as JSON, of the settings that differ from their default.

    These are settings of ``trainer``, ``policy`` and ``algorithm.cfg``. The default is empty if there is none, or if
    the algorithm or policy is not registered here.
    """
    rows = _block("trainer", config["trainer"], TrainerCfg, _NOT_SETTINGS)
    policy, algorithm = config["policy"], config["algorithm"]
    rows += _block("policy", policy, _find(get_policy_cfg_class, policy.get("name", "")), ("name", "actor", "critic"))
    for network in ("actor", "critic"):
        if policy.get(network):
            rows.append((f"policy.{network}", json.dumps(policy[network]), ""))
    algo = _find(get_algo_class, algorithm.get("name", ""))
    return rows + _block("algorithm.cfg", algorithm.get("cfg") or {}, algo and algo.cfg_class, ("device",))


def _find(find: Any, name: str) -> Any:
    try:
        return find(name)
    except ConfigError:  # of a module that is not imported here
        return None


def _block(place: str, values: dict[str, Any], cfg_class: Any, left_out: tuple[str, ...]) -> list[tuple[str, str, str]]:
    defaults = _defaults(cfg_class) if cfg_class is not None else {}
    rows = []
    for key, value in values.items():
        text, default = json.dumps(value), json.dumps(defaults[key]) if key in defaults else ""
        if key not in left_out and text != default:
            rows.append((f"{place}.{key}", text, default))
    return rows


def _defaults(cfg_class: Any) -> dict[str, Any]:
    """Return a config class's defaults as plain data."""
    defaults = {}
    for field in dataclasses.fields(cfg_class):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if value is MISSING or value is dataclasses.MISSING:
            continue
        plain = getattr(value, "to_dict", lambda value=value: value)()
        defaults[field.name] = json.loads(json.dumps(plain))
    return defaults
