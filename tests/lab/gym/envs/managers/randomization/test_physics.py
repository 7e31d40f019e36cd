"""What random masses, frictions, drives and sizes are, and whose. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.objects.body_physics import BodyPhysics
from embodichain.utils import ConfigError
from tests.lab.gym.envs.managers.randomization.test_spatial import assert_fills
from tests.lab.scenes import BOX, actions_for, cart_cfg, state

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
    "randomize_rigid_objects_scale": {
        "entity_cfgs": [BOX_CFG, {"uid": "ball"}],
        "scale_factor_range": [[0.5], [1.5]],
    },
}


def env_with(func: str, num_envs: int = N, **params: Any) -> EmbodiedEnv:
    events = {"draw": {"func": func, "mode": "reset", "params": params}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": events}, rigid_object=[BOX, BALL], max_episode_steps=5))
    env.reset(seed=1)
    return env


def physics_of(env: EmbodiedEnv, uid: str = "box") -> BodyPhysics:
    return env.sim.get_rigid_object(uid).physics


def test_mass_is_drawn_from_its_range_or_added_to_the_configured_one() -> None:
    mass = physics_of(env_with("randomize_rigid_object_mass", entity_cfg=BOX_CFG, mass_range=[2.0, 3.0])).get_mass()
    assert_fills(mass, [2.0], [3.0])
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "mass_range": [-0.5, 0.5], "relative": True}
    assert_fills(physics_of(env_with("randomize_rigid_object_mass", **params)).get_mass(), [0.5], [1.5])  # 1 kg


def test_mass_never_gets_below_a_thousandth_of_the_configured_one() -> None:
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "mass_range": [-2.0, -2.0], "relative": True}
    assert physics_of(env_with("randomize_rigid_object_mass", 1, **params)).get_mass().item() == pytest.approx(1e-3)


def test_centre_of_mass_is_drawn_around_the_configured_one() -> None:
    bounds = [[-0.02, 0.0, 0.01], [0.02, 0.0, 0.03]]
    env = env_with("randomize_rigid_object_center_of_mass", entity_cfg=BOX_CFG, com_pos_offset_range=bounds)
    assert_fills(physics_of(env).get_center_of_mass(), *bounds)
    body = env.sim.model.body("box").id
    assert_fills(env.sim.backend.read_model("body_ipos")[:, body].float(), *bounds)


def test_friction_is_drawn_from_its_range_or_added_and_never_negative() -> None:
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
    with pytest.raises(ConfigError, match=r"joint_names: unknown joint 'slidre'"):
        env_with("randomize_joint_drive", 1, entity_cfg={"uid": "Cart", "joint_names": "slidre"})


def test_size_is_drawn_alike_for_all_axes_or_for_each() -> None:
    env = env_with("randomize_rigid_object_scale", entity_cfg=BOX_CFG, scale_factor_range=[[0.5], [1.5]])
    scale = physics_of(env).get_body_scale()
    assert_fills(scale[:, :1], [0.5], [1.5])
    assert torch.equal(scale, scale[:, :1].expand(N, 3))
    bounds = [[0.5, 1.0, 1.0], [1.0, 1.0, 2.0]]
    params: dict[str, Any] = {"entity_cfg": BOX_CFG, "scale_factor_range": bounds, "same_scale_all_axes": False}
    assert_fills(physics_of(env_with("randomize_rigid_object_scale", **params)).get_body_scale(), *bounds)


def test_sizes_of_several_bodies_are_drawn_together_or_each_by_itself() -> None:
    params: dict[str, Any] = {"entity_cfgs": [BOX_CFG, {"uid": "ball"}], "scale_factor_range": [[0.5], [1.5]]}
    env = env_with("randomize_rigid_objects_scale", **params)
    box, ball = (physics_of(env, uid).get_body_scale()[:, 0] for uid in ("box", "ball"))
    assert (box - ball).abs().mean().item() > 0.1
    env = env_with("randomize_rigid_objects_scale", **params, shared_sample=True)
    box, ball = (physics_of(env, uid).get_body_scale()[:, 0] for uid in ("box", "ball"))
    assert torch.equal(box, ball)


def drawn(env: EmbodiedEnv) -> Tensor:
    """Return all that these events change, a row for each environment."""
    names = (
        "body_mass",
        "body_inertia",
        "body_ipos",
        "geom_friction",
        "geom_size",
        "actuator_gainprm",
        "body_invweight0",
    )
    env.sim.update(1)
    return torch.cat([env.sim.backend.read_model(name).reshape(env.num_envs, -1) for name in names], dim=1)


@pytest.mark.parametrize("func", DRAWS)
def test_draws_do_not_depend_on_the_number_of_envs_nor_on_who_else_is_reset(func: str) -> None:
    many, few = env_with(func, 4, **DRAWS[func]), env_with(func, 2, **DRAWS[func])
    assert torch.equal(drawn(many)[:2], drawn(few))
    before = drawn(few)
    many.reset(options={"reset_ids": [3, 1]})
    few.reset(options={"reset_ids": [1]})
    assert torch.equal(drawn(many)[:2], drawn(few))
    assert torch.equal(drawn(few)[0], before[0])
    assert not torch.equal(drawn(few)[1], before[1])


@pytest.mark.parametrize("func", DRAWS)
def test_envs_that_share_a_stream_share_the_draws(func: str) -> None:
    env = env_with(func, 3, **DRAWS[func])
    env.random.stream_ids[2] = env.random.stream_ids[0]
    env.reset()
    values = drawn(env)
    assert torch.equal(values[0], values[2])
    assert not torch.equal(values[0], values[1])


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
