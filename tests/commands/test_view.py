"""What ``view`` and ``play`` show of environments whose scene is a file."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.cli import main
from embodichain.commands.robot_files import format_robot, names_robot, robot_task
from embodichain.commands.view import action_numbers, format_spaces, opened_robot, opened_scene
from embodichain.lab.gym.envs.managers.record import View
from tests.agents.rl.fakes import tiny_config, write_config
from tests.lab.scene_files import rail_env
from tests.lab.scenes import needs_gl

HOPPER = """<mujoco><option gravity="0 0 -2"/><worldbody><light/><body name="stair" pos="2 0 0"><geom size="1"/></body>
  <body name="base" pos="0 0 0.5"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="3"/><site name="fan"/>
    <body name="leg"><joint name="hip" axis="0 1 0" range="-90 90"/><geom size="0.05" pos="0 0 -0.2" mass="0.5"/></body>
  </body></worldbody>
  <actuator><motor joint="hip" gear="50" ctrlrange="-0.2 0.2"/><motor name="fan" site="fan" ctrlrange="0 5"/></actuator>
  <keyframe><key qpos="0 0 0.5 1 0 0 0 0.3" ctrl="0 2"/></keyframe></mujoco>"""


@needs_gl
def test_the_default_camera_moves_with_the_body_that_moves(tmp_path: Path) -> None:
    env: Any = rail_env(tmp_path, 1)
    env.reset()

    with closing(View(env, (16, 12))) as camera:
        # The middle between the cart's top at 1.1 m and the pendulum's end at 1 - 0.5 - 0.02 m.
        assert camera.fixed.target == pytest.approx((0, 0, 0.79))
        here = camera.render()
        env.sim.backend.write("qpos", slice(0, 1), env.qpos[:, :1] + 100.0)  # nothing else is in the scene
        assert (camera.render() == here).all()


@needs_gl
def test_a_config_can_name_the_body_to_follow(tmp_path: Path) -> None:
    env: Any = rail_env(tmp_path, 1)
    env.reset()
    view: dict[str, object] = {"eye": (0, -1, 1), "target": (0, 0, 1), "follow_uid": "cart"}

    with closing(View(env, (16, 12), view)) as camera:
        here = camera.render()
        env.sim.backend.write("qpos", slice(0, 1), env.qpos[:, :1] + 100.0)
        assert np.ptp(here) > 0  # the cart is in the image
        assert (camera.render() == here).all()


@needs_gl
def test_the_middle_of_a_lens_stays_where_it_is_in_other_sizes(tmp_path: Path) -> None:
    view: dict[str, object] = {"eye": (0, -1, 1), "target": (0, 0, 1), "intrinsics": (600, 500, 200, 300)}
    env: Any = rail_env(tmp_path, 1)
    with closing(View(env, (400, 240), view)) as camera:  # of 640 x 480
        assert camera.fixed.intrinsics == (300, 250, 200 - 60, 120 + 30)


def test_the_table_names_the_actuators(tmp_path: Path) -> None:
    text = format_spaces("SceneRL", rail_env(tmp_path))

    assert "SceneRL: a step is 0.02 s" in text
    assert "push: control of the actuator: -0.5 to 1" in text


def test_scene_of_a_config_for_a_gpu_is_built_on_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = tiny_config(trainer__device="cuda:0", trainer__sim_device="cuda:0")
    path = Path(write_config(tmp_path, config))
    with opened_scene(path, ["env.sim_steps_per_control=2"], 1, []) as (_, env, _):
        assert (env.device.type, env.cfg.sim_steps_per_control) == ("cpu", 2)


def test_robots_file_is_shown_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "hopper.xml").write_text(HOPPER)
    with opened_robot(tmp_path / "hopper.xml", [], 1, []) as (_, env, _):
        lines = [" ".join(line.split()) for line in format_robot(env).splitlines()]
        drive = env.robot.cfg.drive_pros
        starts = {number.moves: number.start for number in action_numbers(env)}
        assert env.sim.model.opt.gravity.tolist() == [0, 0, -2]
    assert lines[0] == "2 links, 3.5 kg, free base, 1 joints, 1 driven"
    # The effort is at most gear * control = 50 * 0.2 Nm.
    assert "hip -1.571 to 1.571 rad yes -10 to 10 Nm 0.3 rad" in lines
    assert {"fan 0 to 5", "base 3 kg", "leg 0.5 kg", "lights of the file are not used: 1"} <= {*lines}
    # The limit is reached 0.6 rad from the target: 10 / 0.6. The leg's inertia is 0.5 (0.2^2 + 2/5 0.05^2) = 0.0205:
    # 1.4 sqrt(16.7 * 0.0205) = 0.818.
    assert (drive.stiffness, drive.damping) == ({"hip": 16.7}, {"hip": 0.818})
    assert starts == pytest.approx({"hip": 0.3, "fan": 2.0})  # sliders begin at the keyframe


def test_robot_of_a_file_without_a_ground_stands_on_ours(tmp_path: Path) -> None:
    text = HOPPER.partition("<keyframe>")[0].replace('pos="0 0 0.5"', 'pos="0 0 0.1"')
    (tmp_path / "low.xml").write_text(f"{text}</mujoco>")
    # The leg's end is at 0.1 - 0.2 - 0.05 = -0.15 m.
    assert robot_task(str(tmp_path / "low.xml"))["robot"]["init_pos"] == [0, 0, 0.25]


def test_name_of_a_config_is_not_taken_for_an_asset() -> None:
    assert [names_robot(name) for name in ("go2", "x.urdf", "menagerie/x", "cart_pole")] == [True, True, True, False]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.xml", "<mujoco><worldbody><geom size='-1'/></worldbody></mujoco>", "cannot compile"),
        (
            "still.xml",
            "<mujoco><worldbody><body name='b'><geom size='1'/></body></worldbody></mujoco>",
            "neither a hinge",
        ),
        ("absent.xml", None, "neither an existing file"),
    ],
)
def test_file_that_is_no_robot_is_one_line(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    for command in (["view"], ["new", "task", "tidy_hop", "--into", str(tmp_path), "--robot"]):
        assert main([*command, str(tmp_path / name)]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith("error: robot: ")
        assert message in error
    assert not (tmp_path / "tidy_hop").exists()
