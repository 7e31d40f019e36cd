"""What ``view`` and ``play`` show of environments whose scene is a file."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from embodichain.commands.view import SceneCamera, format_spaces, opened_scene
from tests.agents.rl.fakes import tiny_config, write_config
from tests.lab.scene_files import rail_env

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")


@needs_gl
def test_the_default_camera_moves_with_the_body_that_moves(tmp_path: Path) -> None:
    env = rail_env(tmp_path, 1)
    env.reset()

    with closing(SceneCamera(env, {}, (16, 12))) as camera:
        # 2.6 times the least radius, 0.4 m, from the bodies' common origin, 0.1 m above them.
        assert camera.pose.target == pytest.approx((0, 0, 1.1))
        assert np.linalg.norm(np.subtract(camera.pose.eye, camera.pose.target)) == pytest.approx(2.6 * 0.4)
        here = camera.render()
        env.sim.backend.write("qpos", slice(0, 1), env.qpos[:, :1] + 100.0)  # nothing else is in the scene
        assert (camera.render() == here).all()


@needs_gl
def test_a_config_can_name_the_body_to_follow(tmp_path: Path) -> None:
    env = rail_env(tmp_path, 1)
    env.reset()
    view: dict[str, object] = {"eye": (0, -1, 1), "target": (0, 0, 1), "follow_uid": "cart"}

    with closing(SceneCamera(env, view, (16, 12))) as camera:
        here = camera.render()
        env.sim.backend.write("qpos", slice(0, 1), env.qpos[:, :1] + 100.0)
        assert np.ptp(here) > 0  # the cart is in the image
        assert (camera.render() == here).all()


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
