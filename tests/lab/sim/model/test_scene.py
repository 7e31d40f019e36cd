"""From configs to a compiled model. Units: m, kg, s, N."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    ConstraintSolverCfg,
    JointDrivePropertiesCfg,
    MarkerCfg,
    RigidBodyAttributesCfg,
    RigidObjectCfg,
    RobotCfg,
    SimulationManagerCfg,
    SolverCfg,
    URDFCfg,
    URDFComponentCfg,
)
from embodichain.lab.sim.model.drives import mimics
from embodichain.lab.sim.model.scene import CompiledScene, SceneBuilder, compile_scene_file, scene_path, write_keyframe
from embodichain.lab.sim.shapes import CapsuleCfg, CubeCfg, CylinderCfg, MeshCfg, ShapeCfg, SphereCfg
from embodichain.utils import ConfigError
from tests.lab.scene_files import RAIL, rail_file
from tests.lab.scenes import HOME, simulate, ur10

GRIPPER = URDFCfg(components=[URDFComponentCfg(component_type="hand", urdf_path="DH_PGI_140_80/DH_PGI_140_80.urdf")])
SOFT = JointDrivePropertiesCfg(stiffness=100.0, damping=5.0)


def compiled(*entities: Any, **cfg: Any) -> CompiledScene:
    builder = SceneBuilder(SimulationManagerCfg(**cfg))
    for entity in entities:
        builder.add(entity)
    return builder.compile()


def thing(uid: str = "thing", shape: ShapeCfg | None = None, **cfg: Any) -> RigidObjectCfg:
    return RigidObjectCfg(uid=uid, shape=shape or CubeCfg(), **({"init_pos": (2.0, 0.0, 0.05)} | cfg))


# --- the scene --------------------------------------------------------------------------------------------------------


def test_simulation_settings_reach_the_model() -> None:
    model = compiled(physics_dt=0.005, gravity=(0.0, 1.0, -2.0)).model
    assert model.opt.timestep == 0.005
    assert model.opt.gravity.tolist() == [0, 1, -2]
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        (CubeCfg(size=(0.2, 0.4, 0.6)), mujoco.mjtGeom.mjGEOM_BOX, [0.1, 0.2, 0.3]),
        (SphereCfg(radius=0.2), mujoco.mjtGeom.mjGEOM_SPHERE, [0.2, 0, 0]),
        (CylinderCfg(radius=0.2, height=0.6), mujoco.mjtGeom.mjGEOM_CYLINDER, [0.2, 0.3, 0]),
        (CapsuleCfg(radius=0.2, height=0.6), mujoco.mjtGeom.mjGEOM_CAPSULE, [0.2, 0.3, 0]),
    ],
)
def test_full_lengths_become_the_engines_half_lengths(shape: ShapeCfg, kind: int, size: list[float]) -> None:
    geom = compiled(thing(shape=shape)).model.geom("thing")
    assert geom.type == kind
    np.testing.assert_allclose(geom.size, size)


def test_mass_is_the_configured_one_or_follows_from_the_density() -> None:
    # 0.1^3 m^3 of 500 kg/m^3 weigh 0.5 kg
    scene = compiled(
        thing("a", attrs=RigidBodyAttributesCfg(mass=3.0)),
        thing("b", attrs=RigidBodyAttributesCfg(mass=0.0, density=500.0)),
        thing("c", attrs=RigidBodyAttributesCfg(mass=2.0, enable_collision=False)),
    )
    for model in (scene.model, scene.visual_model):
        masses = [float(model.body(uid).mass[0]) for uid in "abc"]
        assert masses == pytest.approx([3.0, 0.5, 2.0])


def test_rotation_is_in_degrees_about_the_fixed_axes() -> None:
    # x by 90, then z by 90 degrees: (1/2, 1/2, 1/2, 1/2)
    quat = compiled(thing(init_rot=(90.0, 0.0, 90.0))).model.body("thing").quat
    np.testing.assert_allclose(quat, [0.5, 0.5, 0.5, 0.5], atol=1e-12)


def test_body_type_decides_who_moves_it() -> None:
    model = compiled(thing("d"), thing("k", body_type="kinematic"), thing("s", body_type="static")).model
    assert [int(model.body(uid).dofnum[0]) for uid in "dks"] == [6, 0, 0]
    assert [int(model.body(uid).mocapid[0]) >= 0 for uid in "dks"] == [False, True, False]


def test_friction_of_a_contact_with_the_ground_is_the_objects() -> None:
    model = compiled(thing(init_pos=(0, 0, 0.049), attrs=RigidBodyAttributesCfg(dynamic_friction=0.3))).model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    assert data.contact.friction[:, 0].tolist() == pytest.approx([0.3] * data.ncon)


def test_bodies_without_collision_touch_nothing() -> None:
    marker = MarkerCfg(uid="marker", shape=SphereCfg(radius=0.2), init_pos=(0.0, 0.0, 0.1))
    scene = compiled(marker, thing(init_pos=(0, 0, 0.04), attrs=RigidBodyAttributesCfg(enable_collision=False)))
    data = mujoco.MjData(scene.model)
    mujoco.mj_step(scene.model, data, 50)
    assert data.ncon == 0
    assert data.body("thing").xpos[2] < -0.5


def test_robot_touches_objects_and_the_ground_but_not_itself() -> None:
    # Folded: the forearm lies in the upper arm. The cube is at the flange.
    folded = [0.0, -1.57, 3.1, 0.0, 0.0, 0.0]
    scene = compiled(ur10(init_qpos=folded), thing(init_pos=(0.0, -0.16, 0.7), shape=CubeCfg(size=(0.4, 0.4, 0.4))))
    data = mujoco.MjData(scene.model)
    mujoco.mj_resetDataKeyframe(scene.model, data, 0)
    mujoco.mj_forward(scene.model, data)
    touching = {frozenset(scene.model.geom(int(g)).name.split("/")[0] for g in pair) for pair in data.contact.geom}
    assert touching == {frozenset({"thing", "arm"})}


def test_robot_touches_with_its_collision_links_alone() -> None:
    feet = compiled(RobotCfg("r", robot_type="Go2", fix_base=False, collision_links=[".*_foot"])).model
    # The physics has no other shapes than the four feet and the ground.
    assert sorted(feet.geom(i).name for i in range(feet.ngeom)) == [
        "ground",
        *(f"r/{leg}_foot_collision" for leg in ("FL", "FR", "RL", "RR")),
    ]


# --- two models of the same thing -------------------------------------------------------------------------------------


def test_visual_and_physics_model_have_the_same_states_and_poses() -> None:
    scene = compiled(
        ur10(urdf_cfg=GRIPPER, init_qpos=[*HOME, 0.02, 0.02], drive_pros=SOFT),
        thing("cube", init_pos=(1.0, 0.0, 0.5)),
        thing("table", body_type="static"),
        MarkerCfg(uid="goal", shape=CylinderCfg(), init_pos=(0.5, 0.0, 0.0)),
    )
    model, visual = scene.model, scene.visual_model
    assert visual.ngeom > model.ngeom
    for size in ("nq", "nv", "nu", "nbody", "njnt", "nmocap", "nsite", "nkey"):
        assert getattr(model, size) == getattr(visual, size), size
    names = [[m.body(i).name for i in range(m.nbody)] for m in (model, visual)]
    assert names[0] == names[1]
    rng = np.random.default_rng(0)
    one, two = mujoco.MjData(model), mujoco.MjData(visual)
    for _ in range(5):
        one.qpos[:] = two.qpos[:] = rng.uniform(-1, 1, model.nq)
        one.mocap_pos[:] = two.mocap_pos[:] = rng.uniform(-1, 1, (model.nmocap, 3))
        mujoco.mj_kinematics(model, one)
        mujoco.mj_kinematics(visual, two)
        np.testing.assert_array_equal(one.xpos, two.xpos)
        np.testing.assert_array_equal(one.xquat, two.xquat)


# --- robots -----------------------------------------------------------------------------------------------------------


def test_control_parts_are_patterns_in_joint_order() -> None:
    parts = {"wrist": ["wrist_.*"], "base": ["elbow_joint", "shoulder_pan_joint"]}
    scene = compiled(ur10(control_parts=parts))
    assert scene.parts["arm"] == {
        "wrist": ["wrist_1_joint", "wrist_2_joint", "wrist_3_joint"],
        "base": ["shoulder_pan_joint", "elbow_joint"],
    }


def test_keyframe_is_the_initial_state_and_its_targets() -> None:
    scene = compiled(ur10(), thing("k", body_type="kinematic", init_pos=(1.0, 2.0, 3.0), init_rot=(0.0, 0.0, 180.0)))
    model = scene.model
    assert model.key_qpos[0].tolist() == HOME
    assert model.key_ctrl[0].tolist() == HOME
    np.testing.assert_allclose(model.key_mpos[0], [1, 2, 3])
    np.testing.assert_allclose(model.key_mquat[0], [0, 0, 0, 1], atol=1e-12)


def test_acceleration_drive_is_scaled_by_the_joints_inertia() -> None:
    drive: dict[str, Any] = {"stiffness": 4.0, "damping": 0.5}
    force = compiled(ur10(drive_pros=JointDrivePropertiesCfg("force", **drive))).model
    accelerated = compiled(ur10(drive_pros=JointDrivePropertiesCfg("acceleration", **drive))).model
    np.testing.assert_allclose(accelerated.actuator_gainprm[:, 0], 4.0 * force.dof_M0)
    np.testing.assert_allclose(accelerated.actuator_biasprm[:, 2], -0.5 * force.dof_M0)


def test_only_drives_that_are_too_stiff_are_softened() -> None:
    drive = JointDrivePropertiesCfg(
        stiffness={".*": 100.0, "wrist_3_joint": 1e5}, damping={".*": 5.0, "wrist_3_joint": 1e3}
    )
    scene = compiled(ur10(drive_pros=drive))
    model = scene.model
    assert model.actuator_gainprm[:5, 0].tolist() == [100] * 5
    assert model.actuator_biasprm[:5, 2].tolist() == [-5] * 5
    stiffness, damping = float(model.actuator_gainprm[5, 0]), float(-model.actuator_biasprm[5, 2])
    assert stiffness / damping == pytest.approx(100.0)  # the ratio is kept: 1e5 / 1e3
    # The wrist's inertia is its armature, 0.25 kg m^2, and a little more; damping = inertia / 0.01 s.
    assert 25.0 < damping < 26.0
    assert scene.softened == {"arm/wrist_3_joint": f"arm/wrist_3_joint stiffness {stiffness:.4g} damping {damping:.4g}"}


def test_softened_drive_does_not_shake() -> None:
    model = compiled(ur10(drive_pros=JointDrivePropertiesCfg(stiffness=1e5, damping=1e3))).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.ctrl[:] += 0.3
    mujoco.mj_step(model, data, 300)
    assert np.abs(data.qvel).max() < 1e-2
    assert np.abs(data.qpos - data.ctrl).max() < 1e-2


def test_free_bodys_damping_is_rate_times_mass_and_inertia() -> None:
    attrs = RigidBodyAttributesCfg(mass=2.0, linear_damping=0.5, angular_damping=0.25)
    model = compiled(thing(shape=CubeCfg(size=(0.1, 0.2, 0.3)), attrs=attrs)).model
    # inertia about x: m (y^2 + z^2) / 12 = 2 * 0.13 / 12, and so on
    inertia = np.array([0.13, 0.10, 0.05]) * 2 / 12
    np.testing.assert_allclose(model.dof_damping, [1.0, 1.0, 1.0, *(0.25 * inertia)])


def test_visuals_of_a_users_file_cost_the_physics_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.xml"
    path.write_text(
        '<mujoco><option integrator="RK4" timestep="0.001"/><worldbody><body name="b"><geom size="0.1"/>'
        '<geom size="0.2" contype="0" conaffinity="0"/></body></worldbody><sensor><clock/></sensor></mujoco>'
    )
    scene = compiled(ArticulationCfg(uid="a", fpath=str(path), init_pos=(0.0, 0.0, 1.0)))
    assert (scene.model.ngeom, scene.visual_model.ngeom) == (2, 3)  # with the ground
    assert scene.model.opt.timestep == 0.01  # the scene's, without a word about the file's
    assert scene.model.nsensor == 0


def test_robot_touches_articulation_but_it_not_itself() -> None:
    loose = JointDrivePropertiesCfg(stiffness=0.0, damping=0.0)
    cabinet = ArticulationCfg(uid="cabinet", fpath="drawer_cabinet", init_pos=(-0.4, -0.16, 0.1), drive_pros=loose)
    scene = compiled(ur10(), cabinet)
    data = mujoco.MjData(scene.model)
    mujoco.mj_resetDataKeyframe(scene.model, data, 0)
    mujoco.mj_forward(scene.model, data)
    bodies = scene.model.geom_bodyid[data.contact.geom]
    owners = {frozenset(scene.model.body(b).name.split("/")[0] for b in pair) for pair in bodies}
    assert owners == {frozenset({"arm", "cabinet"})}


def test_what_mujoco_lacks_is_listed_in_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    attrs = RigidBodyAttributesCfg(max_linear_velocity=1.0, restitution=0.1, static_friction=0.9, enable_ccd=True)
    drive = JointDrivePropertiesCfg(stiffness=100.0, damping=5.0, max_velocity=2.0)
    compiled(thing(attrs=attrs), ur10(drive_pros=drive, solver_cfg={"arm": SolverCfg(class_type="URSolver")}))
    assert capsys.readouterr().err == (
        "[WARNING] without counterpart in MuJoCo, not used: arm.drive_pros.max_velocity (by physics), "
        "arm.solver_cfg.arm.class_type, thing.attrs.enable_ccd, thing.attrs.max_linear_velocity, "
        "thing.attrs.restitution, thing.attrs.static_friction\n"
    )


def test_scene_without_such_things_warns_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    compiled(thing(attrs=RigidBodyAttributesCfg(dynamic_friction=0.4)), ur10())  # static_friction as by default
    assert capsys.readouterr().err == ""


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ([thing("a"), thing("a")], "uid 'a' is used twice; there are already: a"),
        ([thing("ground")], "uid 'ground' cannot be used"),
        ([thing(shape=MeshCfg("none.obj"))], r"rigid object 'thing'\.shape\.fpath: no such mesh file: /.*none\.obj"),
        (
            [ur10(drive_pros=JointDrivePropertiesCfg(stiffness={"elbow": 1.0}))],
            r"robot 'arm'\.drive_pros\.stiffness: unknown joint 'elbow'\. Did you mean 'elbow_joint'\? Known: ",
        ),
        ([ur10(control_parts={"arm": ["joint["]})], r"'joint\[' is no regular expression"),
        (
            [ur10(fpath="ur11")],
            "robot 'arm'.fpath: asset 'ur11' is neither .* Did you mean 'ur10'.* Bundled: cart_pole, ",
        ),
        ([RobotCfg(uid="r")], "robot 'r': needs an arm"),
        ([RobotCfg(uid="r", urdf_cfg=GRIPPER)], "robot 'r': a 'hand' needs an arm"),
        (
            [ur10(solver_cfg={"amr": SolverCfg()})],
            r"robot 'arm'\.solver_cfg: unknown control part 'amr'\. Did you mean 'arm'",
        ),
        (
            [ur10(sense_contacts=["wrist_4_link"])],
            r"robot 'arm'\.sense_contacts: unknown link 'wrist_4_link'\. Did you mean 'wrist_3_link'",
        ),
        ([ArticulationCfg(uid="a", fpath=__file__)], "articulation 'a'.fpath: cannot read"),
        ([thing(shape=MeshCfg(__file__))], "the scene cannot be compiled"),
    ],
)
def test_mistake_is_a_config_error_with_its_place(entities: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compiled(*entities)


# b = 0.5 + 2 (a - 0.1) and c = 1 - b + b^2, from zero positions 0.1, 0.2 and 0; the file says so in the other order.
CHAIN = """
<mujoco><compiler angle="radian"/><worldbody>
  <body><joint name="a" ref="0.1"/><geom size="0.1"/></body>
  <body><joint name="b" ref="0.2"/><geom size="0.1"/></body>
  <body><joint name="c"/><geom size="0.1"/></body>
  <body><joint name="d" range="0.3 1" limited="true"/><geom size="0.1"/></body>
</worldbody><equality>
  <joint joint1="c" joint2="b" polycoef="1 -1 1 0 0"/><joint joint1="b" joint2="a" polycoef="0.5 2 0 0 0"/>
</equality><keyframe><key/></keyframe></mujoco>"""


def test_keyframe_moves_mimic_joints_after_their_leaders() -> None:
    model = mujoco.MjModel.from_xml_string(CHAIN)
    assert [(follower, leader) for follower, leader, _ in mimics(model)] == [(1, 0), (2, 1)]
    write_keyframe(model, {"a": 0.4}, {}, {})
    # b = 0.2 + 0.5 + 2 * 0.3 = 1.3; b moved by 1.1, so c = 1 - 1.1 + 1.21; d: the limit next to 0
    np.testing.assert_allclose(model.key_qpos[0], [0.4, 1.3, 1.11, 0.3])


def test_initial_collisions_are_one_warning_with_depths(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(
        RigidObjectCfg("cube", shape=CubeCfg(), init_pos=(2.0, 0.0, 0.045)),
        RigidObjectCfg("ball", shape=SphereCfg(radius=0.05), init_pos=(2.0, 0.0, 0.125)),
        RigidObjectCfg("resting", shape=CubeCfg(), init_pos=(3.0, 0.0, 0.05)),
    )
    # The cube's lower face is 5 mm below the ground; the ball's lowest point, at 0.075, 20 mm below its upper face.
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "initial poses are in collision: " in message
    assert "'ball' and 'cube' by 20.0 mm" in message
    assert "'ground' and 'cube' by 5.0 mm" in message
    assert "resting" not in message


def test_a_file_without_keyframes_begins_in_its_reference_pose(tmp_path: Path) -> None:
    text = RAIL.replace('axis="1 0 0"', 'axis="1 0 0" ref="0.3"')
    model = compile_scene_file(rail_file(tmp_path, text)).model
    assert model.nkey == 1
    assert model.key_qpos[0].tolist() == [0.3, 0.0]


def test_scene_files_visual_model_has_room_for_large_images(tmp_path: Path) -> None:
    scene = compile_scene_file(rail_file(tmp_path))
    assert (scene.visual_model.ncam, scene.model.ncam) == (1, 0)
    assert (scene.visual_model.vis.global_.offwidth, scene.visual_model.vis.global_.offheight) == (1920, 1080)


def test_gymnasiums_scenes_are_found_by_name() -> None:
    assert scene_path("gymnasium/half_cheetah.xml").name == "half_cheetah.xml"
    # The file has the deprecated total mass of 14 kg, of which MuJoCo warns: a user can do nothing about it.
    assert np.isclose(compile_scene_file("gymnasium/half_cheetah.xml").model.body_mass.sum(), 14.0)


def test_a_warning_about_a_users_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = RAIL.replace("<mujoco>", '<mujoco><compiler settotalmass="3"/>')
    compile_scene_file(rail_file(tmp_path, text))
    assert "rail.xml': " in caplog.text
    assert "settotalmass" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"), [("gymnasium/cheetah.xml", "no scene .* in gymnasium"), ("gone.xml", "no such file")]
)
def test_missing_scene_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scene_path(name)


@pytest.mark.parametrize("text", ["<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "<mujoco"])
def test_a_file_that_mujoco_refuses_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^scene '.*rail.xml': ") as error:
        compile_scene_file(rail_file(tmp_path, text))
    assert "\n" not in str(error.value)


def test_solver_settings_reach_the_model() -> None:
    def opt_of(**solver: Any) -> Any:
        return compiled(solver=ConstraintSolverCfg(**solver)).model.opt

    opt = opt_of(cone="elliptic", iterations=10, ls_iterations=20, tolerance=1e-6)
    assert opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert (opt.iterations, opt.ls_iterations, opt.tolerance) == (10, 20, 1e-6)
    assert opt_of(warm_start=False).disableflags == mujoco.mjtDisableBit.mjDSBL_WARMSTART
    assert opt_of(islands=False).disableflags == mujoco.mjtDisableBit.mjDSBL_ISLAND
    default, engine = opt_of(), mujoco.MjSpec().compile().opt
    for name in ("cone", "iterations", "ls_iterations", "tolerance", "disableflags"):
        assert getattr(default, name) == getattr(engine, name)
