"""The notice of a run that takes hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from embodichain.agents.rl.metrics.panel import make_progress


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def notices(
    seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], done: int = 0, env_id: str = ""
) -> list[str]:
    """Return what is said in 103 iterations that take so many seconds each."""
    clock = [50.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = make_progress(103, done, config={"gym_config": {"id": env_id}} if env_id else None)
    for iteration in range(done + 1, 104):
        clock[0] += seconds
        progress.update(iteration, {})
    return [line for line in capsys.readouterr().err.splitlines() if "at this speed" in line]


def test_run_of_hours_says_so_once_and_names_the_quickstart_of_its_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # After three iterations of 108 s, 100 are left: 10800 s, 3 hours.
    (line,) = notices(108.0, monkeypatch, capsys, env_id="PushCubeRL")
    assert line == (
        "[INFO] at this speed the training takes 3.0 hours on this machine. PushCubeRL in minutes: embodichain train "
        "push_cube"
    )
    # Of a run that is resumed, the time left counts: 50 iterations of 216 s.
    (line,) = notices(216.0, monkeypatch, capsys, done=50, env_id="OwnRL")
    assert line == "[INFO] at this speed the training takes 3.0 hours on this machine"
    assert len(notices(108.0, monkeypatch, capsys)) == 1


def test_run_of_two_hours_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert notices(72.0, monkeypatch, capsys, env_id="PushCubeRL") == []  # 100 x 72 s = 2 hours
