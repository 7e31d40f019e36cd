"""What random masses, frictions, drives and sizes are, and whose. Shapes: N environments."""

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim.cfg import RobotCfg
from embodichain.lab.sim.objects.body_physics import BodyPhysics
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_config_file
from tests.lab.gym.envs.managers.randomization.test_spatial import assert_fills
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.legs import GO2, legs_env
from tests.lab.scenes import BOX, actions_for, cart_cfg, env_of, simulate, state

N = 64
BOX_CFG = {"uid": "box"}
BALL = {"uid": "ball", "shape": {"shape_type": "Sphere", "radius": 0.05}, "init_pos": [0.0, 2.0, 0.05]}
DRAWS: dict[str, dict[str, Any]] = {
    "randomize_rigid_object_mass": {"entity_cfg": BOX_CFG, "mass_range": [0.5, 2.0]},
    "randomize_rigid_object_center_of_mass": {"entity_cfg": BOX_CFG, "com_pos_offset_range": [[-0.02] * 3, [0.02] * 3]},
    "randomize_rigid_object_friction": {"entity_cfg": BOX_CFG, "friction_range": [0.2, 1.0]},
    "randomize_joint_drive": {
        "entity_cfg": {"uid": "Cart"},
        "stiffness_range": [0.5, 2.0],
        "damping_range": [0.8, 1.2],
    },
    "randomize_rigid_object_scale": {"entity_cfg": BOX_CFG, "scale_factor_range": [[0.5], [1.5]]},
    "randomize_rigid_objects_scale": {"entity_cfgs": [BOX_CFG, {"uid": "ball"}], "scale_factor_range": [[0.5], [1.5]]},
}


def env_with(func: str, num_envs: int = N, **params: Any) -> EmbodiedEnv:
    events = {"draw": {"func": func, "mode": "reset", "params": params}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": events}, rigid_object=[BOX, BALL], max_episode_steps=5))
    env.reset(seed=1)
    return env


@pytest.mark.parametrize(
    ("func", "entity", "params"),
    [
        ("randomize_joint_drive", "Cart", {"stiffness_range": [-0.1, 0.1]}),
        ("randomize_joint_drive", "Cart", {"damping_range": [-0.1, 0.1]}),
        ("randomize_rigid_object_scale", "box", {"scale_factor_range": [[0.0], [1.0]]}),
    ],
)
def test_factors_below_zero_are_refused(func: str, entity: str, params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"{next(iter(params))}.*greater than"):
        env_with(func, 2, entity_cfg={"uid": entity}, **params)


def physics_of(env: EmbodiedEnv, uid: str = "box") -> BodyPhysics:
    return env.sim.get_rigid_object(uid).physics


def test_mass_is_drawn_or_added_to_the_configured_one() -> None:
    mass = physics_of(env_with("randomize_rigid_object_mass", entity_cfg=BOX_CFG, mass_range=[2.0, 3.0])).get_mass()
    assert_fills(mass, [2.0], [3.0])
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "mass_range": [-0.5, 0.5], "relative": True}
    assert_fills(physics_of(env_with("randomize_rigid_object_mass", **params)).get_mass(), [0.5], [1.5])  # 1 kg


def test_a_thousandth_of_the_mass_remains() -> None:
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "mass_range": [-2.0, -2.0], "relative": True}
    assert physics_of(env_with("randomize_rigid_object_mass", 1, **params)).get_mass().item() == pytest.approx(1e-3)


def test_centre_of_mass_is_drawn_around_the_configured_one() -> None:
    bounds = [[-0.02, 0.0, 0.01], [0.02, 0.0, 0.03]]
    env = env_with("randomize_rigid_object_center_of_mass", entity_cfg=BOX_CFG, com_pos_offset_range=bounds)
    assert_fills(physics_of(env).get_center_of_mass(), *bounds)
    body = env.sim.model.body("box").id
    assert_fills(env.sim.backend.read_model("body_ipos")[:, body].float(), *bounds)


def test_friction_is_drawn_or_added_and_never_negative() -> None:
    env = env_with("randomize_rigid_object_friction", entity_cfg=BOX_CFG, friction_range=[0.2, 1.0])
    assert_fills(physics_of(env).get_friction(), [0.2], [1.0])
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "friction_range": [-0.9, 0.1], "relative": True}
    friction = physics_of(env_with("randomize_rigid_object_friction", **params)).get_friction()  # configured: 0.5
    assert friction.min().item() == 0.0
    assert 0.4 < friction.max().item() < 0.6


def test_gains_of_each_joint_are_drawn_as_factors() -> None:
    cart = {"uid": "Cart"}
    env = env_with("randomize_joint_drive", entity_cfg=cart, stiffness_range=[0.5, 2.0], damping_range=[0.8, 1.2])
    drives = env.robot.drives.read()
    assert_fills(drives["stiffness"], [5.0, 0.005], [20.0, 0.02])
    assert_fills(drives["damping"], [0.8, 0.0008], [1.2, 0.0012])
    # each by itself
    factors = drives["stiffness"] / torch.tensor([10.0, 0.01])
    assert (factors[:, 0] - factors[:, 1]).abs().mean().item() > 0.1


def test_gains_of_named_joints_alone_may_be_drawn() -> None:
    cart = {"uid": "Cart", "joint_names": ["slider.*"]}
    drives = env_with("randomize_joint_drive", entity_cfg=cart, stiffness_range=[2.0, 3.0]).robot.drives.read()
    assert_fills(drives["stiffness"][:, :1], [20.0], [30.0])
    torch.testing.assert_close(drives["stiffness"][:, 1], torch.full((N,), 0.01))
    torch.testing.assert_close(drives["damping"], torch.tensor([[1.0, 0.001]]).expand(N, 2))


def test_size_is_drawn_alike_for_all_axes_or_for_each() -> None:
    env = env_with("randomize_rigid_object_scale", entity_cfg=BOX_CFG, scale_factor_range=[[0.5], [1.5]])
    scale = physics_of(env).get_body_scale()
    assert_fills(scale[:, :1], [0.5], [1.5])
    assert torch.equal(scale, scale[:, :1].expand(N, 3))
    bounds = [[0.5, 1.0, 1.0], [1.0, 1.0, 2.0]]
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "scale_factor_range": bounds, "same_scale_all_axes": False}
    assert_fills(physics_of(env_with("randomize_rigid_object_scale", **params)).get_body_scale(), *bounds)


def test_sizes_of_bodies_are_drawn_together_or_each_alone() -> None:
    params: dict[str, Any] = {"entity_cfgs": [BOX_CFG, {"uid": "ball"}], "scale_factor_range": [[0.5], [1.5]]}
    env = env_with("randomize_rigid_objects_scale", **params)
    box, ball = (physics_of(env, uid).get_body_scale()[:, 0] for uid in ("box", "ball"))
    assert (box - ball).abs().mean().item() > 0.1
    env = env_with("randomize_rigid_objects_scale", **params, shared_sample=True)
    box, ball = (physics_of(env, uid).get_body_scale()[:, 0] for uid in ("box", "ball"))
    assert torch.equal(box, ball)


@pytest.mark.parametrize("is_global", [False, True])
def test_random_physics_continues_from_a_checkpoint(is_global: bool) -> None:
    # Mode ``interval``, so that an episode has values of its own which the next reset does not draw again.
    when = {"mode": "interval", "interval_step": 5, "is_global": is_global}
    events = {name: {"func": name, "params": params, **when} for name, params in DRAWS.items()}
    env = {
        "events": events,
        "observations": {"box": {"func": "get_rigid_object_pose", "params": {"entity_cfg": BOX_CFG}}},
    }
    bodies = [{**BOX, "init_pos": [2.0, 0.0, 0.3], "init_rot": [20.0, 10.0, 0.0]}, BALL]
    assert_goes_on(lambda: EmbodiedEnv(cart_cfg(3, env, rigid_object=bodies, max_episode_steps=40)), steps=22)


def test_run_is_the_same_whatever_the_number_of_envs_and_threads() -> None:
    events: dict[str, Any] = {n: {"func": n, "mode": "reset", "params": p} for n, p in DRAWS.items()}
    pushed = {"func": "randomize_rigid_object_friction", "mode": "interval", "interval_step": 2}
    events["often"] = pushed | {"params": DRAWS["randomize_rigid_object_friction"]}
    runs = []
    for num_envs, threads in ((2, 1), (2, 2), (4, 2)):
        cfg = cart_cfg(num_envs, {"events": events}, rigid_object=[BOX, BALL], max_episode_steps=5)
        cfg.sim_cfg.num_threads = threads
        env = EmbodiedEnv(cfg)
        env.reset(seed=3)
        for actions in actions_for(EmbodiedEnv(cart_cfg(4)), 12):
            env.step(actions[:num_envs])
        runs.append(state(env)[:2])
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


ROBOT = {"uid": "go2"}
BASE, FEET = {"uid": "go2", "link_names": ["base"]}, {"uid": "go2", "link_names": [".*_foot"]}


def event(func: str, mode: str = "reset", **params: Any) -> dict[str, Any]:
    return {func: {"func": func, "mode": mode, "interval_step": 3, "params": params}}


def legs_with(func: str, num_envs: int = N, mode: str = "reset", **params: Any) -> LocomotionEnv:
    env = legs_env(num_envs, {"events": event(func, mode, **params)})
    env.reset(seed=1)
    return env


def test_velocity_of_the_base_is_drawn_from_its_ranges() -> None:
    ranges: dict[str, Any] = {
        "velocity_range": [[0.1, -0.2, 0.0], [0.3, 0.2, 0.0]],
        "angular_velocity_range": [[0, 0, -1], [0, 0, 2]],
    }
    base = legs_with("randomize_base_velocity", **ranges).robot.base
    velocity = base.velocity()
    assert_fills(velocity[:, :2], [0.1, -0.2], [0.3, 0.2])
    assert_fills(velocity[:, 5:], [-1.0], [2.0])
    assert not velocity[:, 2:5].any()


def test_push_is_added_to_the_velocity_at_its_interval_alone() -> None:
    still = legs_env(4)
    pushed = legs_with("push_robot", 4, "interval", velocity_range=[[0.5, 0.0, 0.0], [1.0, 0.0, 0.0]])
    still.reset(seed=1)
    for step in range(1, 4):
        for env in (still, pushed):
            env.step(torch.zeros(4, 12))
        difference = pushed.robot.base.velocity() - still.robot.base.velocity()
        if step < 3:
            assert not difference.any()
    assert ((difference[:, 0] >= 0.5) & (difference[:, 0] < 1.0)).all()
    assert not difference[:, 1:].any()
    assert difference[:, 0].unique().numel() == 4
    assert torch.equal(pushed.robot.get_qvel(), still.robot.get_qvel())


def test_pose_of_the_base_is_drawn_around_the_present_one() -> None:
    ranges: dict[str, Any] = {
        "position_range": [[-0.1, 0.0, 0.0], [0.1, 0.0, 0.2]],
        "rotation_range": [[0, 0, -90], [0, 0, 90]],
    }
    base = legs_with("randomize_base_pose", **ranges).robot.base
    start = float(legs_env(1).robot.base.get()[0, 2])
    assert_fills(base.get()[:, :3:2], [-0.1, start], [0.1, start + 0.2])
    assert_fills(base.heading()[:, None], [-torch.pi / 2], [torch.pi / 2])
    torch.testing.assert_close(base.projected_gravity(), torch.tensor([[0.0, 0.0, -1.0]]).expand(N, 3))
    assert not base.velocity().any()


def test_share_of_bases_is_turned_and_the_others_are_shifted() -> None:
    ranges: dict[str, Any] = {"position_range": [[0.1, 0, 0], [0.2, 0, 0]], "rotation_range": [[0, 0, 10], [0, 0, 20]]}
    base = legs_with("randomize_base_pose", turned_share=0.3, **ranges).robot.base
    turned = base.heading() != 0.0
    assert float(turned.float().mean()) == pytest.approx(0.3, abs=0.1)
    assert (base.get()[:, 0] >= 0.1).all()


def test_joint_velocities_are_drawn_for_all_or_some() -> None:
    qvel = legs_with("randomize_joint_velocity", qvel_range=[[-2.0], [3.0]]).robot.get_qvel()
    assert_fills(qvel.flatten()[:, None], [-2.0], [3.0])
    some = {"uid": "go2", "joint_names": [".*_calf_joint"]}
    robot = legs_with("randomize_joint_velocity", qvel_range=[[1.0], [1.0]], entity_cfg=some).robot
    calves = torch.tensor([name.endswith("calf_joint") for name in robot.joint_names])
    assert torch.equal(robot.get_qvel(), calves.float().expand(N, 12))


def test_masses_of_links_are_added_to_and_their_inertia_follows() -> None:
    env = legs_with("randomize_link_mass", entity_cfg=BASE, mass_range=[-1.0, 3.0])
    physics, model, backend = env.robot.link_physics, env.sim.model, env.sim.backend
    bodies = physics.find(["base"], "")
    initial = float(model.body_mass[bodies[0]])
    mass = physics.get_mass(bodies)
    assert_fills(mass, [initial - 1.0], [initial + 3.0])
    inertia = backend.read_model("body_inertia")[:, bodies[0]].float()
    expected = mass / initial * torch.tensor(model.body_inertia[bodies[0]], dtype=torch.float32)
    torch.testing.assert_close(inertia, expected)
    others = [body for body in physics.find(None, "") if body not in bodies]
    assert torch.equal(physics.get_mass(others), physics.initial_mass(others).expand(N, -1))


def test_mass_can_be_drawn_itself_and_never_vanishes() -> None:
    env = legs_with("randomize_link_mass", 2, entity_cfg=FEET, mass_range=[0.3, 0.3], relative=False)
    physics = env.robot.link_physics
    feet = physics.find([".*_foot"], "")
    torch.testing.assert_close(physics.get_mass(feet), torch.full((2, 4), 0.3))
    env = legs_with("randomize_link_mass", 2, entity_cfg=FEET, mass_range=[-9.0, -9.0])
    physics = env.robot.link_physics
    torch.testing.assert_close(physics.get_mass(feet), 1e-3 * physics.initial_mass(feet).expand(2, -1))


def test_centre_of_mass_is_moved_from_the_models() -> None:
    ranges = [[-0.05, 0.0, 0.0], [0.05, 0.0, 0.02]]
    env = legs_with("randomize_link_center_of_mass", entity_cfg=BASE, com_pos_offset_range=ranges)
    (body,) = env.robot.link_physics.find(["base"], "")
    found = env.sim.backend.read_model("body_ipos")[:, body].float()
    offset = found - torch.tensor(env.sim.model.body_ipos[body], dtype=torch.float32)
    assert_fills(offset[:, ::2], [-0.05, 0.0], [0.05, 0.02])
    torch.testing.assert_close(offset[:, 1], torch.zeros(N), atol=1e-6, rtol=0)


def test_centre_of_mass_of_a_body_alone_is_moved() -> None:
    # A body alone is compiled for a centre of mass that does not move, unless the event says so.
    offset = {"entity_cfg": {"uid": "drone"}, "com_pos_offset_range": [[0.01] * 3, [0.01] * 3]}
    events = {"com": {"func": "randomize_link_center_of_mass", "mode": "startup", "params": offset}}
    config = load_config_file("configs/agents/rl/hover/gym_config.json")
    env = env_of(config | {"env": config["env"] | {"events": config["env"]["events"] | events}}, 2)
    env.reset(seed=1)
    (body,) = env.robot.link_physics.find(None, "")
    moved = env.sim.backend.read_model("body_ipos")[:, body] - torch.from_numpy(env.sim.model.body_ipos[body])
    torch.testing.assert_close(moved.float(), torch.full((2, 3), 0.01))
    env.step(torch.zeros(2, *env.single_action_space.shape))


FRAMES = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="base" pos="0 0 1"><body name="camera_frame" pos="0 0 .1"/>
<geom name="foot" size=".1" contype="0" conaffinity="0"/></body></worldbody>
<contact><pair geom1="floor" geom2="foot" friction=".8 .8 .01 .001 .001"/></contact></mujoco>"""


def test_frames_without_mass_keep_none_and_pairs_have_the_friction(tmp_path: Path) -> None:
    (tmp_path / "frames.xml").write_text(FRAMES)
    cfg = RobotCfg(uid="r", fpath=str(tmp_path / "frames.xml"), fix_base=False)
    sim = simulate(cfg, num_envs=2)
    physics, backend, one = sim.get_robot("r").link_physics, sim.backend, torch.tensor([1])
    bodies = physics.find(None, "")
    initial = physics.initial_mass(bodies)
    physics.set_mass(initial[None] + 0.5, bodies, one)
    assert backend.read_model("body_inertia").isfinite().all()
    assert physics.get_mass(bodies)[1].tolist() == pytest.approx([float(initial[0]) + 0.5, 0.0])
    shapes = physics.shapes(bodies)
    for relative, pair, geom in ((False, 0.1, 0.1), (True, 0.9, 1.1)):
        physics.set_friction(torch.tensor([0.1]), shapes, one, relative)
        expected = torch.tensor([[0.8, 0.8, 0.01], [pair, pair, 0.01]])
        torch.testing.assert_close(backend.read_model("pair_friction")[:, 0, :3].float(), expected)
        assert backend.read_model("geom_friction")[:, shapes[0], 0].tolist() == pytest.approx([1.0, geom])


def test_friction_of_links_is_one_for_all_their_shapes() -> None:
    env = legs_with("randomize_link_friction", entity_cfg=FEET, friction_range=[0.2, 1.5])
    physics = env.robot.link_physics
    shapes = physics.shapes(physics.find([".*_foot"], ""))
    assert len(shapes) == 4
    friction = env.sim.backend.read_model("geom_friction")[:, shapes, 0].float()
    assert_fills(friction[:, :1], [0.2], [1.5])
    assert torch.equal(friction, friction[:, :1].expand(-1, 4))
    env = legs_with("randomize_link_friction", 2, entity_cfg=FEET, friction_range=[0.1, 0.1], relative=True)
    friction = env.sim.backend.read_model("geom_friction")[:, shapes, 0].float()
    initial = torch.tensor(env.sim.model.geom_friction[shapes, 0], dtype=torch.float32)
    torch.testing.assert_close(friction, (initial + 0.1).expand(2, -1))


def test_strength_is_a_factor_of_limits_and_gains() -> None:
    env = legs_with("randomize_motor_strength", entity_cfg=ROBOT, strength_range=[0.5, 1.5])
    robot, model = env.robot, env.sim.model
    strength = robot.drives.strength
    assert_fills(strength.flatten()[:, None], [0.5], [1.5])
    torch.testing.assert_close(robot.drives.read()["stiffness"], 35.0 * strength)
    torch.testing.assert_close(robot.drives.read()["damping"], 0.6 * strength)
    joints = [int(model.joint(f"go2/{name}").id) for name in robot.joint_names]
    limits = env.sim.backend.read_model("jnt_actfrcrange")[:, joints].float()
    torch.testing.assert_close(limits[..., 1], strength * torch.tensor(model.jnt_actfrcrange[joints, 1]).float())
    torch.testing.assert_close(limits[..., 0], -limits[..., 1])
    # Far from its target each motor gives its highest effort, in the engine as in the robot's own formula.
    robot.set_qpos(robot.get_qpos() + 100.0)
    torch.testing.assert_close(robot.get_qf(), limits[..., 1])
    found = env.sim.backend.read("qfrc_actuator")[:, 6:]
    torch.testing.assert_close(found, limits[..., 1], rtol=1e-5, atol=1e-4)


def test_strength_of_some_motors_leaves_the_others() -> None:
    calves = {"uid": "go2", "joint_names": ".*_calf_joint"}
    gains: dict[str, Any] = {"entity_cfg": ROBOT, "stiffness_range": [2.0, 2.0]}
    both = event("randomize_joint_drive", **gains) | event(
        "randomize_motor_strength", entity_cfg=calves, strength_range=[0.5, 0.5]
    )
    env = legs_env(2, {"events": both})
    env.reset(seed=1)
    is_calf = torch.tensor([name.endswith("calf_joint") for name in env.robot.joint_names])
    expected = torch.where(is_calf, 0.5, 1.0).expand(2, 12)
    torch.testing.assert_close(env.robot.drives.strength, expected)
    torch.testing.assert_close(env.robot.drives.read()["stiffness"], 70.0 * expected)


ALL = (
    event("push_robot", "interval")
    | event("randomize_base_pose", rotation_range=[[0, 0, -180], [0, 0, 180]])
    | event("randomize_base_velocity")
    | event("randomize_joint_velocity", qvel_range=[[-1.0], [1.0]])
    | event("randomize_link_mass", "interval", entity_cfg=BASE, mass_range=[-1.0, 3.0])
    | event(
        "randomize_link_center_of_mass", "interval", entity_cfg=BASE, com_pos_offset_range=[[-0.05] * 3, [0.05] * 3]
    )
    | event("randomize_link_friction", "interval", entity_cfg=FEET, friction_range=[0.2, 1.5])
    | event("randomize_motor_strength", "interval", entity_cfg=ROBOT, strength_range=[0.8, 1.2])
)


def test_all_of_them_go_on_where_a_checkpoint_left_them() -> None:
    assert_goes_on(lambda: legs_env(3, {"events": ALL}, max_episode_steps=9))


def test_draws_do_not_depend_on_the_number_of_environments() -> None:
    few, many = (legs_env(n, {"events": ALL}) for n in (2, 5))
    for env in (few, many):
        env.reset(seed=1)
        for _ in range(4):
            env.step(torch.zeros(env.num_envs, 12))
    for name in ("body_mass", "body_ipos", "geom_friction", "jnt_actfrcrange"):
        assert torch.equal(few.sim.backend.read_model(name), many.sim.backend.read_model(name)[:2])
    assert torch.equal(few.sim.backend.qvel, many.sim.backend.qvel[:2])


@pytest.mark.parametrize("func", ["push_robot", "randomize_base_velocity", "randomize_base_pose"])
def test_fixed_base_is_an_error(func: str) -> None:
    robot = GO2 | {"fix_base": True, "init_pos": [0.0, 0.0, 1.0]}
    message = f"^{func}: the base of robot 'go2' is fixed; needed is robot.fix_base false"
    with pytest.raises(ConfigError, match=message):
        legs_env(1, {"events": event(func)}, robot=robot)


SERVO_ROBOT = {**GO2, "fpath": "microduck", "drive_pros": {"servo": "xl330", "servo_gain": 200.0}}
RANGES: dict[str, Any] = {
    "voltage_range": [6.5, 8.2],
    "sag_range": [0.1, 0.2],
    "lowest_voltage": 6.0,
    "friction_range": [0.9, 1.1],
    "delay": [3, 6],
}


def duck(more: dict[str, Any] | None = None, **params: Any) -> tuple[LocomotionEnv, Any]:
    events = {"servos": {"func": "randomize_servos", "mode": "reset", "params": params}}
    sensors = [{"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]}]
    env = legs_env(N, {"events": {**(more or {}), **events}}, robot=SERVO_ROBOT, sensor=sensors)
    env.reset(seed=1)
    return env, env.sim.backend


def efforts(env: LocomotionEnv, backend: Any) -> torch.Tensor:
    """Torques far from the targets, without latency and sag, [N, 14]."""
    backend.servos.delay[:] = 0
    env.robot.set_qpos(env.robot.get_qpos() + 9.0)
    env.sim.update(1)
    found: torch.Tensor = backend.read_last("qfrc_actuator")
    return found[:, 6:]


def test_servos_are_drawn_from_their_ranges() -> None:
    env, backend = duck(**RANGES)
    servos = backend.servos
    for name, low, high in (("voltage", 6.5, 8.2), ("sag", 0.1, 0.2), ("friction", 0.9, 1.1)):
        assert_fills(torch.as_tensor(getattr(servos, name))[:, None], [low], [high])
    assert set(servos.delay.tolist()) == {3, 4, 5, 6}
    assert servos.lowest_voltage == 6.0
    # One draw for all servos of a robot: 0.366013 / 2.811392 Nm/V.
    expected = torch.as_tensor(servos.voltage)[:, None].float().expand(-1, 14) * 0.366013 / 2.811392
    torch.testing.assert_close(efforts(env, backend), expected, rtol=1e-5, atol=0.0)


def test_strength_of_motors_and_supply_are_both_factors() -> None:
    params = {"entity_cfg": {"uid": "go2"}, "strength_range": [0.5, 0.5]}
    strength = {"strength": {"func": "randomize_motor_strength", "mode": "reset", "params": params}}
    # 0.5 of 8.25 V, times 0.366013 / 2.811392 Nm/V
    expected = torch.full((N, 14), 0.5 * 8.25 * 0.366013 / 2.811392)
    torch.testing.assert_close(efforts(*duck(strength, voltage_range=[8.25, 8.25])), expected, rtol=1e-5, atol=0.0)


def test_servos_have_their_nominal_numbers_by_default() -> None:
    servos = duck()[1].servos
    assert set(servos.voltage.tolist()) == {7.5}
    assert not servos.sag.any()
    assert not servos.delay.any()


def test_event_within_an_episode_leaves_commands_in_flight() -> None:
    same: dict[str, Any] = {"voltage_range": [7.5, 7.5], "delay": [4, 4], "friction_range": [2.0, 2.0]}
    again = {"again": {"func": "randomize_servos", "mode": "interval", "interval_step": 3, "params": same}}
    plain, drawn = duck(**same)[0], duck(again, **same)[0]
    for action in actions_for(plain, 6):
        plain.step(action)
        drawn.step(action)
    assert torch.equal(drawn.robot.get_qpos(), plain.robot.get_qpos())


def test_event_refuses_robots_without_servos_and_long_delays() -> None:
    events = {"servos": {"func": "randomize_servos", "mode": "reset"}}
    for robot in (GO2, {**GO2, "drive_pros": {**GO2["drive_pros"], "backlash": 0.01}}):
        with pytest.raises(ConfigError, match=r"the robot has none; needed is robot\.drive_pros\.servo"):
            legs_env(2, {"events": events}, robot=robot)
    with pytest.raises(ConfigError, match=r"at most 16 substeps, got \[0, 17\]"):
        duck(delay=[0, 17])
