"""The comparison of trained legs: the errors by hand, the goal, and the processes. UniLab itself is not installed."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.peers import legs, physics
from benchmarks.peers.walking import COMMANDS, EPISODE_SECONDS, Motion, measure, motion_of, time_to_goal
from embodichain.agents.rl.run_config import load_run_config, with_scene


def motion(velocity: list[list[float]], up: list[float], height: list[float], ended: list[bool]) -> Motion:
    return Motion(torch.tensor(velocity), torch.tensor(up), torch.tensor(height), torch.tensor(ended))


class ScriptedWalker:
    """Two robots that are told (1, 0, 0.5) and (0, 0, 0); a control step takes 5 s, so that an episode has two."""

    dt = 5.0

    def __init__(self, motions: list[Motion]) -> None:
        self.motions: Iterator[Motion] = iter(motions)

    def reset(self) -> Tensor:
        return torch.tensor([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]])

    def step(self) -> Motion:
        return next(self.motions)


def test_errors_are_means_over_the_steps_before_a_fall() -> None:
    steps = [
        motion([[0.7, 0.4, 0.1], [0.0, 0.0, 0.2]], [1.0, 0.9], [0.3, 0.3], [False, False]),
        motion([[1.0, 0.0, 0.5], [9.0, 9.0, 9.0]], [1.0, 0.4], [0.3, 0.3], [False, False]),  # 0.4: 66 degrees
    ]
    # distances |(-0.3, 0.4)| = 0.5, 0 and 0; yaw 0.4, 0.2 and 0; the second step of the second robot is a fall
    result = measure(ScriptedWalker(steps))
    assert result == pytest.approx({"error_xy": 0.5 / 3, "error_yaw": 0.6 / 3, "falls": 0.5})


@pytest.mark.parametrize(
    ("up", "height", "ended"), [(0.49, 0.3, False), (1.0, 0.14, False), (1.0, 0.3, True)], ids=["tilt", "low", "ended"]
)
def test_tilted_low_and_ended_episodes_are_falls_and_stay_so(up: float, height: float, ended: bool) -> None:
    still = [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
    first = motion(still, [1.0, up], [0.3, height], [False, ended])
    result = measure(ScriptedWalker([first, motion(still, [1.0, 1.0], [0.3, 0.3], [False, False])]))
    assert result == pytest.approx({"error_xy": 0.0, "error_yaw": 0.0, "falls": 0.5})


def test_velocity_is_in_the_frame_of_the_base() -> None:
    # turned by 90 degrees to the left, moving along the world's x: to its right; lying on its left side, up is level
    half = math.sqrt(0.5)
    qpos = torch.tensor([[0.0, 0.0, 0.3, half, 0.0, 0.0, half, 9.0], [0.0, 0.0, 0.1, half, -half, 0.0, 0.0, 9.0]])
    qvel = torch.tensor([[2.0, 0.0, 0.0, 0.0, 0.0, 0.7, 9.0], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 9.0]])
    found = motion_of(qpos, qvel, torch.zeros(2, dtype=torch.bool))
    # on its left side, the base's y axis points downwards
    torch.testing.assert_close(found.velocity, torch.tensor([[0.0, -2.0, 0.7], [0.0, -1.0, 0.0]]))
    torch.testing.assert_close(found.up, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(found.height, torch.tensor([0.3, 0.1]))


def point(seconds: float, xy: float, yaw: float, falls: float) -> dict[str, float]:
    return {"seconds": seconds, "error_xy": xy, "error_yaw": yaw, "falls": falls}


def test_goal_needs_every_measure_at_two_points_in_a_row() -> None:
    good, slow, falls = (0.15, 0.2, 0.03), (0.15, 0.21, 0.0), (0.1, 0.1, 0.04)
    curve = [point(10, *good), point(20, *falls), point(30, *good), point(40, *good), point(50, *slow)]
    assert time_to_goal(curve) == 30
    assert time_to_goal(curve[:3]) == math.inf
    assert time_to_goal([point(10, math.nan, math.nan, 1.0)] * 2) == math.inf


def test_chosen_checkpoints_are_spread_and_end_with_the_last() -> None:
    written = [(float(k), Path(str(k))) for k in range(10)]
    assert [seconds for seconds, _ in legs.spread(written, 3)] == [3.0, 6.0, 9.0]
    assert legs.spread(written, 10) == written


def test_checkpoints_come_in_the_order_of_their_writing_without_the_late_ones(tmp_path: Path) -> None:
    for name, seconds in (("10", 30), ("5", 20), ("15", 41)):
        (tmp_path / f"model_{name}.pt").touch()
        os.utime(tmp_path / f"model_{name}.pt", (1000.0 + seconds, 1000.0 + seconds))
    found = legs.written_in(tmp_path, "model_*.pt", 1000.0, 40.0)
    assert found == [(20.0, tmp_path / "model_5.pt"), (30.0, tmp_path / "model_10.pt")]


def test_training_is_stopped_with_its_children_at_the_end_of_its_budget() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    assert legs.stop_after(process, 0.01)
    assert process.returncode == -signal.SIGTERM
    # one that has failed by then
    assert not legs.stop_after(subprocess.Popen(["false"], start_new_session=True), 60.0)


@pytest.mark.parametrize("code", ["raise SystemExit('it broke')", "print('it broke')"], ids=["failed", "no checkpoint"])
def test_training_that_fails_shows_its_log(code: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"failed:\n(?s:.*)it broke"):
        legs.train([sys.executable, "-c", code], tmp_path, 60.0, "*.pt")


def test_results_show_the_curves_and_say_how_much_sooner(capsys: pytest.CaptureFixture[str]) -> None:
    reached = [point(20, 0.1, 0.1, 0.0), point(40, 0.1, 0.1, 0.0)]
    late = [point(50, 0.1, 0.1, 0.0), point(60, 0.1, 0.1, 0.0)]
    rates = [{"engine": "mjbatch", "mujoco": "3.14.0", "rate": 11000.0, "rates": [10000.0, 11000.0, 12000.0]}]
    legs.print_results({legs.OURS: {7: reached}, legs.UNILAB: {7: late}}, rates)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["this", "library", "7", "20", "0.100", "0.100", "0.0%"]
    assert "UniLab's time by ours: 2.50" in lines  # 50 s / 20 s
    assert lines[-1] == "mjbatch          11,000   (MuJoCo 3.14.0; rounds: 10,000, 11,000, 12,000)"
    legs.print_results({legs.OURS: {7: reached[:1]}, legs.UNILAB: {7: late}}, rates)
    assert "UniLab's time by ours: 0.00" in capsys.readouterr().out  # we never get there


def test_commands_of_the_comparison_replace_those_of_the_config() -> None:
    run = load_run_config(legs.CONFIG, legs.fixed_commands())
    env = with_scene(run.env, "test")
    command = env.commands[legs.COMMAND]
    assert command.params == {name: list(values) for name, values in COMMANDS.items()} | {
        "standing_share": 0,
        "heading": None,
    }
    # no episode ends, and no command changes, before the comparison's last step
    assert command.resampling_time[0] > EPISODE_SECONDS
    assert env.max_episode_steps is not None
    assert env.max_episode_steps * env.sim_cfg.physics_dt > EPISODE_SECONDS


def test_physics_rate_is_measured_from_a_keyframe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = tmp_path / "scene.xml"
    scene.write_text(
        '<mujoco><worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody><actuator><position joint="j"/>'
        '</actuator><keyframe><key qpos="0.5" ctrl="0.5"/></keyframe></mujoco>'
    )
    monkeypatch.setattr(physics, "NUM_ENVS", 2)
    assert physics.measure(str(scene), 1) > 0.0
