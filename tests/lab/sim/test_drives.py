"""Which joints a config means, and the drives they get."""

from __future__ import annotations

import mujoco
import pytest

from embodichain.lab.sim.cfg import JointDrivePropertiesCfg
from embodichain.lab.sim.drives import match_driven, match_names, set_drives
from embodichain.utils import ConfigError

NAMES = ["ab", "abc", "b"]


def test_names_are_matched_whole_and_returned_in_their_own_order() -> None:
    assert match_names(["b", "ab"], NAMES, "here") == ["ab", "b"]
    assert match_names(["a.*"], NAMES, "here") == ["ab", "abc"]
    with pytest.raises(ConfigError, match="here: unknown joint 'a'"):
        match_names(["a"], NAMES, "here")


def test_pattern_leaves_out_joints_without_a_drive_and_may_not_match_only_such() -> None:
    assert match_driven(["a.*", "b"], NAMES, {"abc"}, "here") == ["ab", "b"]
    with pytest.raises(ConfigError, match=r"here: abc cannot be driven: .* Driven are: ab, b"):
        match_driven(["b", "abc"], NAMES, {"abc"}, "here")


def test_drive_is_a_position_actuator_with_the_name_of_its_joint() -> None:
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint name="x/q"/><joint name="p" axis="1 0 0"/><geom size="1"/></body>'
        "</worldbody></mujoco>"
    )
    drive = JointDrivePropertiesCfg(stiffness={"q": 3.0}, damping=0.5, max_effort=7.0, friction=0.25)
    set_drives(spec, {"q": "x/q", "p": "p"}, {"p"}, drive, "here")
    model = spec.compile()
    assert [model.actuator(i).name for i in range(model.nu)] == ["x/q"]
    assert model.actuator_gainprm[0, 0] == 3
    assert model.actuator_biasprm[0, :3].tolist() == [0, -3, -0.5]
    assert model.actuator_forcerange[0].tolist() == [-7, 7]
    assert model.dof_frictionloss.tolist() == [0.25, 0]
