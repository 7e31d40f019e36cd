from __future__ import annotations

from pathlib import Path

import pytest

from embodichain.lab.sim.cfg import RobotCfg
from embodichain.lab.sim.objects.mirrored_joints import mirror_joints, mirrored_name, partners
from embodichain.utils import ConfigError
from tests.lab.quadruped import JOINTS, quadruped, robot_data
from tests.lab.scenes import simulate


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("FL_hip_joint", "FR_hip_joint"),
        ("RL_calf", "RR_calf"),
        ("left_hip_yaw", "right_hip_yaw"),
        ("LeftAnkle", "RightAnkle"),
        ("L_knee", "R_knee"),
        ("knee_r", "knee_l"),
        ("LF_HAA", "RF_HAA"),
        ("fl.hx", "fr.hx"),
        ("waist_yaw", "waist_yaw"),
        ("FLEX", "FLEX"),
        ("curl", "curl"),
    ],
)
def test_name_of_the_other_side_exchanges_left_and_right(name: str, other: str) -> None:
    assert mirrored_name(name) == other
    assert mirrored_name(other) == name


def test_name_whose_partner_is_not_there_is_its_own() -> None:
    assert partners(["left_hip", "waist", "right_hip", "left_lamp"]) == [2, 1, 0, 3]


def mirror(path: str, names: list[str], **changes: object) -> tuple[list[int], list[int]]:
    sim = simulate(RobotCfg(**robot_data(path, **changes)))
    return mirror_joints(sim.backend.model, sim.get_robot("dog"), names, "here")


OTHER = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]


def test_signs_follow_from_the_axes(tmp_path: Path) -> None:
    # hips about x and -x keep their value, as do joints about y on both sides
    assert mirror(quadruped(tmp_path), JOINTS) == (OTHER, [1] * 12)
    # about x on both sides they change it; about y and -y, too
    changes = {"-1 0 0": "1 0 0", 'name="FL_calf" axis="0 1 0" range="-2.7 -0.5"': 'name="FL_calf" axis="0 -1 0"'}
    signs = [-1, 1, -1, -1, 1, -1, -1, 1, 1, -1, 1, 1]
    assert mirror(quadruped(tmp_path, "other", changes), JOINTS) == (OTHER, signs)


def test_signs_do_not_depend_on_where_the_base_stands(tmp_path: Path) -> None:
    for fix_base in (True, False):
        moved = {"init_pos": [1.0, 2.0, 0.5], "init_rot": [10.0, 20.0, 70.0], "fix_base": fix_base}
        assert mirror(quadruped(tmp_path), JOINTS, **moved) == (OTHER, [1] * 12)


def test_oblique_axes_that_are_mirror_images_have_a_sign(tmp_path: Path) -> None:
    # The mirror image of a turn about (3, 4, 0) is one about (-3, 4, 0): given on the right as its opposite.
    changes = {'FL_hip" axis="1 0 0"': 'FL_hip" axis="3 4 0"', 'FR_hip" axis="-1 0 0"': 'FR_hip" axis="3 -4 0"'}
    assert mirror(quadruped(tmp_path, changes=changes), ["FR_hip", "FL_hip"]) == ([1, 0], [-1, -1])


def test_joint_in_the_middle_is_its_own_partner(tmp_path: Path) -> None:
    # A tail that turns about z changes sides; one that slides along y, too, and one along x does not.
    tail = '<body name="tail{0}" pos="-0.3 0 0"><joint name="tail{0}" {1}/><geom size="0.01" mass="0.1"/></body>'
    kinds = ('axis="0 0 1"', 'axis="0 1 0" type="slide"', 'axis="1 0 0" type="slide"')
    bodies = "".join(tail.format(i, kind) for i, kind in enumerate(kinds))
    path = quadruped(tmp_path, changes={"</body></worldbody>": bodies + "</body></worldbody>"})
    names = ["tail0", "tail1", "tail2"]
    assert mirror(path, names, init_qpos=None, init_pos=[0.0, 0.0, 1.0]) == ([0, 1, 2], [-1, -1, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {'FL_hip" axis="1 0 0"': 'FL_hip" axis="3 4 0"'},
            r"^here: the axes of 'FL_hip' and 'FR_hip' are no mirror images: \(0\.6, 0\.8, 0\) and \(-1, 0, 0\) in the",
        ),
        (
            {'"FL_hip" pos="0.2 ': '"FL_hip" pos="0.3 '},
            r"^here: 'FL_hip' and 'FR_hip' are no mirror images: at \(0\.3, 0\.08, 0\) and \(0\.2, -0\.08, 0\) m in",
        ),
        ({'joint name="FL_hip"': 'joint name="fore"'}, r"^here: 'fore' is not in the middle: at \(0\.2, 0\.08, 0\) m"),
        (
            {'joint name="FL_hip"': 'joint name="FL_hip" ref="0.3"'},
            r"^here: the positions of 'FL_hip' and 'FR_hip' in which the model is drawn .*: 0\.3 and 0$",
        ),
    ],
)
def test_joints_that_are_no_mirror_images_are_refused_in_one_line(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    first = "fore" if "fore" in str(changes) else "FL_hip"
    with pytest.raises(ConfigError, match=message):
        mirror(quadruped(tmp_path, changes=changes), [first, "FR_hip"], init_pos=[0.0, 0.0, 1.0])
