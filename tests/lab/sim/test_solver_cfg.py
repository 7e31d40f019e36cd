"""The settings of the constraint solver, and what they leave as it is."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import ConstraintSolverCfg, JointDrivePropertiesCfg, RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.model.scene import SceneBuilder
from embodichain.utils import ConfigError
from embodichain.utils.validation import from_dict


def model_with(solver: ConstraintSolverCfg, *robots: RobotCfg) -> mujoco.MjModel:
    """The physics model of a scene with these settings."""
    builder = SceneBuilder(SimulationManagerCfg(physics_dt=0.005, solver=solver))
    for robot in robots:
        builder.add_articulation(robot)
    return builder.compile().model


def test_solver_settings_reach_the_model_and_the_default_is_the_engines() -> None:
    model = model_with(ConstraintSolverCfg("elliptic", iterations=10, ls_iterations=20, tolerance=1e-6))
    assert model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert (model.opt.iterations, model.opt.ls_iterations, model.opt.tolerance) == (10, 20, 1e-6)
    assert model_with(ConstraintSolverCfg(warm_start=False)).opt.disableflags == mujoco.mjtDisableBit.mjDSBL_WARMSTART
    assert model_with(ConstraintSolverCfg(islands=False)).opt.disableflags == mujoco.mjtDisableBit.mjDSBL_ISLAND
    default, engine = model_with(ConstraintSolverCfg()).opt, mujoco.MjSpec().compile().opt
    for name in ("cone", "iterations", "ls_iterations", "tolerance", "disableflags"):
        assert getattr(default, name) == getattr(engine, name)


def test_without_a_warm_start_and_islands_feet_push_as_hard() -> None:
    drives = JointDrivePropertiesCfg(stiffness=40.0, damping=1.0)
    robot = RobotCfg("r", robot_type="Go2", fix_base=False, drive_pros=drives, collision_links=[".*_foot"])
    forces = []
    for usual in (True, False):
        model = model_with(ConstraintSolverCfg(warm_start=usual, islands=usual), robot)
        data = mujoco.MjData(model)
        mujoco.mj_resetDataKeyframe(model, data, 0)
        mujoco.mj_step(model, data, 100)
        forces.append(data.efc_force.copy())
    np.testing.assert_allclose(forces[0], forces[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cone": "eliptic"}, r"sim_cfg\.solver\.cone: .* 'pyramidal' or 'elliptic', got 'eliptic'"),
        ({"iterations": 0}, r"sim_cfg\.solver\.iterations: .* greater than or equal to 1, got 0"),
        ({"tolerance": -1.0}, r"sim_cfg\.solver\.tolerance: .* greater than or equal to 0, got -1"),
        ({"warmstart": False}, r"sim_cfg\.solver\.warmstart: unknown key\. Did you mean 'warm_start'\?"),
    ],
)
def test_mistake_names_its_place(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(SimulationManagerCfg, {"solver": given}, "sim_cfg")
