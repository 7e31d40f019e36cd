"""The live panel of a training."""

import io

import pytest
from rich.console import Console

from embodichain.agents.rl.metrics.panel import EvaluationLog, LivePanel, PlainProgress, make_progress, panel_rows

METRICS = {
    "charts/SPS": 1000.0,
    "time/collect_seconds": 3.0,
    "time/update_seconds": 0.9,
    "time/statistics_seconds": 0.1,
    "charts/episode_reward_avg_100": 1.0,
    "charts/success_rate_avg_100": 0.5,
    "eval/success_rate": 0.955,
    "train/approx_kl": 0.0123,
    "train/std": 0.6,
    "train/learning_rate": 3e-4,
    "train/policy_loss": -0.1,
    "rewards/near": 0.25,
    "rewards/smooth": -0.001,
}


def test_rows_are_what_was_logged() -> None:
    rows = panel_rows(METRICS)
    assert rows["episodes"] == [("return", "1.00"), ("success", "50%"), ("eval", "95.5%")]
    assert rows["update"] == [("KL", "0.0123"), ("std", "0.600"), ("learning rate", "0.0003")]
    # 1000 steps/s over 4 s are 4000 steps: 4000 / 3 s of collecting, 4000 / 0.9 s of learning
    assert rows["speed"] == [("steps/s", "1,000"), ("collecting", "1,333 (75%)"), ("learning", "4,444 (22%)")]
    assert rows["reward of a step"] == [("near", "0.25"), ("smooth", "-0.001")]
    assert panel_rows({}) == {"episodes": [], "update": [], "speed": [], "reward of a step": []}


def test_panel_shows_iteration_and_metrics() -> None:
    out = io.StringIO()
    panel = LivePanel(Console(file=out, force_terminal=True, width=160), 4, done=1)
    panel.evaluating(200)
    panel._live.refresh()
    assert "evaluating 200 episodes" in out.getvalue()
    panel.evaluating(200, 37, 220)
    panel._live.refresh()
    assert "evaluating 37/200 episodes, video 220 frames" in out.getvalue()
    panel.update(3, METRICS)
    panel.close()
    assert "evaluating" not in out.getvalue().rpartition("iteration 3/4")[2]
    shown = out.getvalue()
    assert "iteration 3/4" in shown
    for part in ("ETA", "95.5%", "near", "collecting", "learning rate"):
        assert part in shown


# --- the terminal ---

LINE = {"charts/SPS": 1234.5, "charts/episode_reward_avg_100": 1.0, "eval/success_rate": 0.955, "train/loss": 7.0}


def test_where_there_is_no_terminal_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress(4)
    progress.evaluating(200)
    assert capsys.readouterr().out == "evaluating 200 episodes\n"
    progress.update(1, LINE)
    progress.close()
    line = capsys.readouterr().out
    assert line.startswith("iteration 1/4  ETA 0 s  ")
    assert line.endswith("steps/s 1,234  return 1.00  eval 95.5%\n")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("embodichain.agents.rl.metrics.panel.time.monotonic", lambda: now[0])
    return now


def test_evaluation_says_each_five_seconds_what_has_changed(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress, log = PlainProgress(5), EvaluationLog()
    progress.evaluating(200)
    for step in range(9):  # of 2 s each: after 6 s and 12 s there is a line, and none after 18 s
        clock[0] += 2.0
        ended = 1 if step < 3 else 2
        progress.evaluating(200, ended, 220)
        log.update(200, ended, 0)
    out, err = capsys.readouterr()
    lines = [f"evaluating {ended}/200 episodes" for ended in (1, 2)]
    assert out.splitlines() == ["evaluating 200 episodes", *(f"{line}, video 220 frames" for line in lines)]
    assert err.splitlines() == [f"[INFO] {line}" for line in lines]


def test_plain_lines_come_every_five_seconds_and_hundredth(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    for iterations, count, seconds in ((5, 5, 2.0), (1000, 40, 6.0)):
        progress = PlainProgress(iterations)
        for iteration in range(1, count + 1):
            clock[0] += seconds
            progress.update(iteration, {})
            if iteration == 15:
                progress.evaluating(200)
    # after 2, then 7 or more (8), then the last one (10); time left: 4, 1 and 0 iterations of 2 s
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == ["iteration 1/5  ETA 8 s", "iteration 4/5  ETA 2 s", "iteration 5/5  ETA 0 s"]
    of_long = [line.split()[1] for line in lines[3:]]
    assert of_long == ["1/1000", "11/1000", "200", "16/1000", "26/1000", "36/1000"]  # 16: the evaluation's result
