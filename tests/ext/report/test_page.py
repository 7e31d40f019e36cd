"""The report of a run, as a file and in a browser."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from embodichain.ext.report.page import COLOURS, Series, line_chart, number, reward_shares, write_report
from embodichain.tools.run_data import read_run
from tests.agents.rl.runs import write_run

TERMS = [
    {"rewards/reach": 0.3, "rewards/cost": -0.1 * (i + 1), "metrics/height": 0.2, "charts/episode_length_avg_100": i}
    for i in range(10)
]
SUCCESS = [None, 0.2, None, 0.4, None, 0.6, None, 0.8, None, 1.0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = write_run(tmp_path / "tiny_20260101_120000", SUCCESS, rows=TERMS)
    (run / "videos" / "cam_step_1000.mp4").write_bytes(b"not really a video")
    summary = {"success_rate": 1.0, "success_interval_95": [0.72, 1.0], "episodes": 10, "peak_memory_mb": 512.0}
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    machine = {"processor": "an abacus <of wood>", "cores": 2, "versions": {"torch": "2.13.0"}}
    (run / "machine.json").write_text(json.dumps(machine), encoding="utf-8")
    return run


def refers_to(text: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]*)"', text)


def test_report_has_its_parts_and_needs_nothing_from_elsewhere(folder: Path) -> None:
    path = write_report(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    anchors = [target for target in refers_to(text) if target.startswith("#")]
    assert all(f'id="{anchor[1:]}"' in text for anchor in anchors)
    own = ("#", "data:video/mp4;base64,", "data:image/svg+xml;base64,")
    assert [target for target in refers_to(text) if not target.startswith(own)] == []
    for part in (
        "100.0%", "success of 10 episodes", "reward terms", "height", "72.0% to 100.0%", "cam_step_1000.mp4",
        f"embodichain resume {folder}", f"embodichain export {folder} --format onnx", "gamma",
        "an abacus &lt;of wood&gt;", "torch 2.13.0", "512 MB",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("data:image/svg+xml") >= 6


def test_interval_of_an_evaluation_is_of_its_own_episodes(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"eval/episodes": 10', '"eval/episodes": 4', 1), encoding="utf-8")
    report = write_report(folder).read_text(encoding="utf-8")
    assert "3.1% to 66.3%" in report  # 20 % of 4; of 10 it would be 5.7 to 51.0
    assert "16.8% to 68.7%" in report  # 40 % of 10


def test_videos_of_steps_that_a_resume_went_back_behind_are_left_out(folder: Path) -> None:
    for name in ("cam_step_999999", "cam_train_from_step_1000"):
        (folder / "videos" / f"{name}.mp4").write_bytes(b"not really a video")
    text = write_report(folder).read_text(encoding="utf-8")
    assert [name for name in ("cam_step_1000", "cam_step_999999", "from_step_1000") if f"{name}.mp4" in text] == [
        "cam_step_1000",
        "from_step_1000",
    ]


def test_large_video_is_linked(folder: Path) -> None:
    (folder / "videos" / "cam_step_1000.mp4").write_bytes(bytes(8_000_001))
    assert 'src="videos/cam_step_1000.mp4"' in write_report(folder).read_text(encoding="utf-8")


def test_unfinished_run_has_a_report_that_says_so(tmp_path: Path) -> None:
    text = write_report(write_run(tmp_path / "a", [None, None])).read_text(encoding="utf-8")
    assert "unfinished or still running" in text
    assert "Evaluations</h2>" not in text


def commands_of(folder: Path) -> list[tuple[str, str]]:
    text = unescape(write_report(folder).read_text(encoding="utf-8"))
    return re.findall("<p>([^<]*)</p><pre>embodichain (.*?)</pre>", text)


def test_commands_are_those_that_work_on_the_run(tmp_path: Path) -> None:
    ours = write_run(tmp_path / "ours", SUCCESS, rows=TERMS)
    assert commands_of(ours)[1] == ("make a video", f"play {ours}")
    assert commands_of(ours)[-1] == ("analyse the reward", f"rewards {ours}")
    assert commands_of(write_run(tmp_path / "no terms", SUCCESS))[0][1] == f"eval '{tmp_path}/no terms'"
    assert "rewards" not in str(commands_of(tmp_path / "no terms"))

    config = json.loads((ours / "config.json").read_text(encoding="utf-8"))
    config["gym_config"] = {"id": "gymnasium:their_envs.fast:Runner-v0"}
    config["trainer"]["import_modules"] = ["my_lab.terms"]
    (ours / "config.json").write_text(json.dumps(config), encoding="utf-8")
    allowing = "--allow-import my_lab.terms --allow-import their_envs.fast"
    assert commands_of(ours)[1] == ("make a video, if the environment can render", f"play {ours} {allowing}")
    config["gym_config"]["kwargs"] = {"render_mode": "rgb_array"}
    (ours / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert commands_of(ours)[1][0] == "make a video"


def test_shares_of_reward_terms(folder: Path) -> None:
    # The last tenth is the last iteration: 0.3 and -1.0, of 1.3 together.
    (first, second) = reward_shares(read_run(folder))
    assert (first[0], second[0]) == ("cost", "reach")
    assert first[1:] == pytest.approx((-0.1, -1.0, 1 / 1.3))
    assert second[1:] == pytest.approx((0.3, 0.3, 0.3 / 1.3))


# --- in a browser ---


def test_browser_shows_the_report_without_an_error_or_a_request(folder: Path, browser: Any) -> None:
    path = write_report(folder)
    page = browser.new_page(viewport={"width": 800, "height": 600}, color_scheme="dark")
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    charts = page.locator("figure img").all()
    assert len(charts) >= 6
    for chart in charts:
        box = chart.bounding_box()
        assert box["width"] > 200
        assert box["x"] + box["width"] <= 800  # nothing sticks out of the page
        assert chart.evaluate("image => image.naturalWidth") > 0  # it could be read
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    page.locator("nav a", has_text="Config").click()
    assert page.locator("summary").is_visible()


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0.0301, 12, 1500, 1_228_800, -2e9)] == ["0.0301", "12", "1.5k", "1.229M", "-2G"]


def svg_of(*arguments: Any, **options: Any) -> str:
    _, address = line_chart("x", *arguments, **options)
    return base64.b64decode(address.removeprefix("data:image/svg+xml;base64,")).decode()


def points(svg: str, colour: str = COLOURS[0]) -> list[tuple[float, float]]:
    """Return the points of the line of a colour, in units of the SVG, y downwards."""
    path = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: none; stroke: {colour}', svg)[0]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]


def test_line_goes_through_its_points_and_names_break_nothing() -> None:
    svg = svg_of([Series("<script>", [0, 50, 100], [0, 0.5, 0.4]), Series("$b", [0, 100], [0.4, 0.4])], is_share=True)
    ET.fromstring(svg)
    assert "<script>" not in svg
    (x0, y0), (x1, y1), (x2, y2) = points(svg)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y2 - y0 == pytest.approx(0.8 * (y1 - y0), abs=0.1)
    assert y1 < y0  # upwards
    assert [y for _, y in points(svg, COLOURS[1])] == pytest.approx([y2, y2])
    assert "100%" in svg


def test_infinite_points_are_left_out_and_many_averaged() -> None:
    assert len(points(svg_of([Series("a", range(4), [1, float("nan"), float("inf"), 2])]))) == 2
    wave = [float(i % 2) for i in range(6000)]  # 20 points into one: 0.5
    line = points(svg_of([Series("a", range(6000), wave)]))
    assert len({y for _, y in line}) == 1


def test_band_and_single_point_are_drawn_and_nothing_is_empty() -> None:
    svg = svg_of([Series("a", [0, 1], [1, 2], low=[0, 1], high=[2, 3])])
    assert svg.count("fill-opacity: 0.18") == 1
    assert re.search(rf"<use [^>]*fill: {COLOURS[0]}", svg_of([Series("a", [7], [3])]))
    assert line_chart("reward terms", []) == ("reward terms", "")
