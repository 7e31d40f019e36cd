"""What every scene has; lights in the sun's place are in tests/lab/sim/objects/test_light.py."""

from __future__ import annotations

import mujoco
import pytest

from embodichain.lab.sim.cfg import EmissionLightCfg
from embodichain.lab.sim.model.surroundings import add_surroundings, ambient_of


def test_ground_leaves_the_friction_to_the_object() -> None:
    spec = mujoco.MjSpec()
    add_surroundings(spec)
    assert spec.geom("ground").friction[0] == 0.0


def test_ambient_light_of_full_intensity_is_that_of_every_scene() -> None:
    spec = mujoco.MjSpec()
    add_surroundings(spec)
    assert ambient_of(EmissionLightCfg()) == pytest.approx(list(spec.visual.headlight.ambient))
    assert ambient_of(EmissionLightCfg(intensity=0.0)) == [0.0, 0.0, 0.0]
