"""Where articulations start, and whether they move from there. Units: m, kg, s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import pytest

from embodichain.lab.sim.cfg import ArticulationCfg, SimulationManagerCfg
from embodichain.lab.sim.model.scene import SceneBuilder
from embodichain.utils import ConfigError


def scene(cfg: ArticulationCfg) -> mujoco.MjModel:
    """The physics model of a scene with one articulation."""
    builder = SceneBuilder(SimulationManagerCfg())
    builder.add_articulation(cfg)
    return builder.compile().model


@pytest.mark.parametrize("own", ["", "<freejoint/>"])
def test_free_base_falls_and_a_fixed_one_stays_whatever_the_file_says(tmp_path: Path, own: str) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        f'<mujoco><worldbody><body name="lump">{own}<geom size="0.1" mass="1"/></body></worldbody></mujoco>'
    )
    heights = {}
    for fix_base in (True, False):
        model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=fix_base, init_pos=(0.0, 0.0, 2.0)))
        data = mujoco.MjData(model)
        mujoco.mj_resetDataKeyframe(model, data, 0)
        mujoco.mj_step(model, data, 10)
        mujoco.mj_forward(model, data)
        heights[fix_base] = float(data.body("a/lump").xpos[2])
    # 2 - 9.81 * 0.01^2 * (1 + 2 + ... + 10)
    assert heights == pytest.approx({True: 2.0, False: 2.0 - 9.81e-4 * 55})


@pytest.mark.parametrize("own", ["", "<freejoint/>"])
@pytest.mark.parametrize(
    ("pose", "expected"),
    [
        ({}, [1, 2, 3, 0, 1, 0, 0]),
        ({"init_rot": (0.0, 0.0, 180.0)}, [1, 2, 3, 0, 0, 1, 0]),  # half a turn about z after half a turn about x
        ({"init_pos": (0.0, 0.0, 5.0)}, [0, 0, 5, 0, 1, 0, 0]),
    ],
)
def test_free_base_starts_at_its_place_in_the_file_unless_the_config_has_another(
    tmp_path: Path, own: str, pose: dict[str, Any], expected: list[float]
) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        f'<mujoco><worldbody><body name="lump" pos="1 2 3" quat="0 1 0 0">{own}<geom size="0.1" mass="1"/></body>'
        "</worldbody></mujoco>"
    )
    model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False, **pose))
    assert model.key_qpos[0].tolist() == pytest.approx(expected, abs=1e-7)


def test_fixed_base_stands_by_its_offset_in_the_file_from_the_configured_place(tmp_path: Path) -> None:
    path = tmp_path / "lump.xml"
    path.write_text('<mujoco><worldbody><body name="lump" pos="0 0 1"><geom size="0.1"/></body></worldbody></mujoco>')
    model = scene(ArticulationCfg(uid="a", fpath=str(path), init_pos=(0.0, 0.0, 2.0)))
    assert model.body("a/lump").pos.tolist() == [0, 0, 3]


def test_room_that_a_file_reserves_is_no_matter_of_the_scene(tmp_path: Path) -> None:
    path = tmp_path / "lump.xml"
    path.write_text(
        '<mujoco><size nkey="2" njmax="50" nuser_geom="1"/><worldbody><body name="lump"><geom size="0.1"/></body>'
        "</worldbody></mujoco>"
    )
    model = scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))  # a warning would be an error here
    assert model.nkey == 1  # the scene's own


def test_free_base_of_two_roots_is_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_text(
        '<mujoco><worldbody><body name="one"><geom size="0.1"/></body><body name="two"><geom size="0.1"/></body>'
        "</worldbody></mujoco>"
    )
    with pytest.raises(ConfigError, match="articulation 'a': fix_base false needs one root, got one, two"):
        scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))


def test_free_base_with_joints_of_its_own_is_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "planar.xml"
    path.write_text(
        '<mujoco><worldbody><body name="torso"><joint name="rootx" type="slide"/><joint name="rooty" axis="0 1 0"/>'
        '<geom size="0.1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(ConfigError, match=r"'torso' has joints that move it: rootx, rooty\. Leave fix_base out"):
        scene(ArticulationCfg(uid="a", fpath=str(path), fix_base=False))
    assert scene(ArticulationCfg(uid="a", fpath=str(path))).nq == 2
