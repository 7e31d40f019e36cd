"""``embodichain compare``."""

import base64
import json
import re
import shutil
from pathlib import Path

import pytest

from embodichain.cli import main
from tests.agents.rl.runs import write_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(1, 6):
        write_run(Path(f"good_{seed}"), [0.1, 0.8 + 0.02 * seed], seed=seed)
        write_run(Path(f"poor_{seed}"), [0.0, 0.1 * seed], seed=seed, algorithm={"gamma": 0.5, "clip_coef": 0.2})
        for kind in ("good", "poor"):
            Path(f"{kind}_{seed}/summary.json").write_text('{"a": 1}', encoding="utf-8")


def folders(*kinds: str, count: int = 5) -> list[str]:
    return [f"{kind}_{seed}" for kind in kinds for seed in range(1, count + 1)]


def compare(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["compare", *argv]) == 0
    return capsys.readouterr().out


def test_runs_are_grouped_and_a_clear_winner_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(compare(capsys, *folders("good", "poor"), "--json"))
    good, poor = result["groups"]
    assert (good["group"], poor["group"]) == ("tiny (gamma 0.9)", "tiny (gamma 0.5)")
    assert (good["runs"], good["tasks"], good["mean"]) == (5, ["CartPoleRL"], pytest.approx(0.86))
    # 0.1 ... 0.5: (0.75 x 0.2 + 0.3 + 0.75 x 0.4) / 2.5
    assert poor["interquartile_mean"] == pytest.approx(0.3)
    (found,) = result["comparisons"]
    assert found["verdict"] == "tiny (gamma 0.9) is higher"
    assert result["notes"] == []


def test_named_groups_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("poor_2/summary.json").unlink()
    shutil.copytree("good_1", "again_1")
    out = compare(capsys, "mine=good_1,again_1", "theirs=poor_1,poor_2")
    assert "mine: several runs of one seed are no independent runs" in out
    assert "theirs: not finished: poor_2" in out
    config = json.loads(Path("poor_1/config.json").read_text(encoding="utf-8"))
    config["gym_config"]["env"] = {"rewards": {"new": {}}}
    Path("poor_1/config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "the runs have different rewards" in compare(capsys, "a=good_1", "b=poor_1")


@pytest.mark.parametrize("arguments", [["good_1", "./good_1"], ["a=good_1,good_2", "b=good_1", "a=good_1"]])
def test_run_that_is_named_twice_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *arguments]) == 2
    assert (
        capsys.readouterr().err == f"error: {arguments[-1].removeprefix('a=')}: is named twice; each run counts once\n"
    )


def test_page_has_a_band_for_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    compare(capsys, *folders("good", "poor"), "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    charts = [base64.b64decode(text).decode() for text in re.findall('data:image/svg.xml;base64,([^"]*)', page)]
    assert (
        sum(chart.count("fill-opacity: 0.18") for chart in charts) == 4
    )  # success in evaluation and in training, two groups each
    assert "is higher" in page


def test_success_of_a_task_without_one_names_the_return_instead(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good_1/metrics.jsonl").write_text('{"step": 1, "wall_time": 1, "eval/avg_reward": 1}\n')
    assert main(["compare", "good_1"]) == 2
    assert capsys.readouterr().err == (
        "error: good_1: 'eval/success_rate' was never logged: the task has no success. Take --metric eval/avg_reward\n"
    )


def test_runs_without_an_iteration_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good_2/metrics.jsonl").write_text("")
    note = "note: left out, since no iteration has been logged there yet: good_2"
    out = compare(capsys, "good_1", "good_2")
    assert note in out
    assert out.splitlines()[3].split()[1] == "1"  # one run of the group
    assert note in compare(capsys, "a=good_1", "b=good_2")
    assert main(["compare", "b=good_2"]) == 2
    assert capsys.readouterr().err == "error: good_2: no iteration has been logged yet\n"


@pytest.mark.parametrize("argument", ["b=", "=good_1", "b=good_1,,good_2"])
def test_group_without_a_name_or_a_run_is_an_error(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a=good_1", argument]) == 2
    message = f"error: '{argument}': must be a run, or a group of the form NAME=RUN,RUN,...\n"
    assert capsys.readouterr().err == message


def test_run_that_ended_in_nan_has_no_last_value(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("broken"), [0.9, 0.9], seed=9, rows=[{"train/loss": 0.9}, {"train/loss": None}])
    assert main(["compare", "broken", "--metric", "train/loss"]) == 2
    assert "broken: the last value of 'train/loss' is not finite" in capsys.readouterr().err


def test_runs_without_the_metric_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("stopped"), [None, None], seed=9)
    out = compare(capsys, "good_1", "stopped")
    assert "note: left out, since 'eval/success_rate' was never logged there: stopped" in out
    assert "one run has no interval; train with other seeds, too" in out
    assert out.splitlines()[3].split()[-4:] == ["-", "0.82", "0.82", "0.82"]


def test_groups_that_differ_in_much_have_numbers_and_a_legend(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = {"lr_schedule": "linear", "learning_rate": 0.0003, "entropy_coef": 0.01, "gamma": 0.99}
    write_run(Path("other_1"), [0.0, 0.5], seed=1, algorithm=schedule)
    result = json.loads(compare(capsys, "good_1", "other_1", "--json"))
    assert [group["group"] for group in result["groups"]] == ["tiny 1", "tiny 2"]
    legend = [note for note in result["notes"] if note.startswith("tiny 2: ")]
    assert "gamma 0.99, lr_schedule linear, learning_rate 0.0003" in legend[0]


def test_runs_with_other_events_or_processes_are_other_groups(capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in (("good_2", "eval"), ("good_3", "train")):
        config = json.loads(Path(name, "config.json").read_text(encoding="utf-8"))
        config["trainer"]["events"] = {kind: {"push": {}}}
        Path(name, "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, count in (("good_4", 2), ("good_5", 1)):
        Path(name, "machine.json").write_text(json.dumps({"processes": count}), encoding="utf-8")
    result = json.loads(compare(capsys, "good_1", "good_2", "good_3", "good_4", "good_5", "--json"))
    assert [group["runs"] for group in result["groups"]] == [2, 1, 1, 1]


def test_runs_with_other_recordings_and_loggers_are_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    camera, shown = {"func": "record_camera_data"}, {"dataset": {"all": {"func": "LeRobotRecorder"}}}
    for name, events, env in (("good_1", {}, {"dataset": {}}), ("good_2", {"camera": camera}, shown)):
        path = Path(name) / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["trainer"] |= {"loggers": [dict.fromkeys(events, "x")], "events": {"train": events}}
        config["gym_config"]["env"] = env | {"events": events}
        path.write_text(json.dumps(config), encoding="utf-8")
    (group,) = json.loads(compare(capsys, "good_1", "good_2", "--json"))["groups"]
    assert group["runs"] == 2


def test_runs_of_other_tasks_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("other_1"), [0.0, 0.5], seed=1, name="other")
    config = json.loads(Path("other_1/config.json").read_text(encoding="utf-8"))
    config["gym_config"] = {"id": "ReachRL", "robot": {"uid": "arm"}}
    Path("other_1/config.json").write_text(json.dumps(config), encoding="utf-8")
    result = json.loads(compare(capsys, "good_1", "poor_1", "other_1", "--json"))
    assert [group["group"] for group in result["groups"]] == ["tiny (gamma 0.9)", "tiny (gamma 0.5)", "other"]
    assert [(one["first"], one["second"]) for one in result["comparisons"]] == [
        ("tiny (gamma 0.9)", "tiny (gamma 0.5)")
    ]
    assert "tiny (gamma 0.9) and other: not compared: they are not of the same tasks" in result["notes"]
