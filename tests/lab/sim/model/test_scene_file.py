"""A whole scene from one file: the physics is that of the file, and nothing else."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.model.scene_file import compile_scene_file, scene_path
from embodichain.utils import ConfigError
from tests.lab.scene_files import RAIL, rail_file


def test_the_physics_model_has_what_the_file_has_and_nothing_else(tmp_path: Path) -> None:
    model = compile_scene_file(rail_file(tmp_path)).model
    own = mujoco.MjModel.from_xml_string(RAIL)

    assert (model.nbody, model.ngeom, model.nlight, model.ncam) == (own.nbody, own.ngeom, own.nlight, own.ncam)
    assert model.opt.timestep == 0.005
    assert model.opt.gravity.tolist() == [0, 0, -2]
    assert model.opt.integrator == own.opt.integrator


def test_a_file_without_keyframes_begins_in_its_reference_pose(tmp_path: Path) -> None:
    text = RAIL.replace('axis="1 0 0"', 'axis="1 0 0" ref="0.3"')

    model = compile_scene_file(rail_file(tmp_path, text)).model

    assert model.nkey == 1
    assert model.key_qpos[0].tolist() == [0.3, 0.0]


def test_a_file_begins_in_its_first_keyframe(tmp_path: Path) -> None:
    text = RAIL.replace("</mujoco>", '<keyframe><key qpos="1 2"/><key qpos="3 4"/></keyframe></mujoco>')

    model = compile_scene_file(rail_file(tmp_path, text)).model

    assert model.key_qpos.tolist() == [[1, 2], [3, 4]]


def test_the_model_for_rendering_has_a_camera_and_room_for_large_images(tmp_path: Path) -> None:
    scene = compile_scene_file(rail_file(tmp_path))

    assert (scene.visual_model.ncam, scene.model.ncam) == (1, 0)
    assert (scene.visual_model.vis.global_.offwidth, scene.visual_model.vis.global_.offheight) == (1920, 1080)


def test_gymnasiums_scenes_are_found_by_name_and_compile_without_warnings() -> None:
    assert scene_path("gymnasium/half_cheetah.xml").name == "half_cheetah.xml"
    # The file has the deprecated total mass of 14 kg, of which MuJoCo warns: a user can do nothing about it.
    assert np.isclose(compile_scene_file("gymnasium/half_cheetah.xml").model.body_mass.sum(), 14.0)


def test_a_warning_about_a_users_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = RAIL.replace("<mujoco>", '<mujoco><compiler settotalmass="3"/>')

    compile_scene_file(rail_file(tmp_path, text))

    assert "rail.xml': " in caplog.text
    assert "settotalmass" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gymnasium/half_cheeta.xml",
            "in gymnasium. Did you mean 'gymnasium/half_cheetah.xml'",
        ),
        ("gone.xml", "no such file: .*gone.xml"),
    ],
)
def test_a_scene_that_is_not_there_is_an_error_of_one_line(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        scene_path(name)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "<mujoco", ""])
def test_a_file_that_mujoco_refuses_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^scene '.*rail.xml': ") as error:
        compile_scene_file(rail_file(tmp_path, text))

    assert "\n" not in str(error.value)
