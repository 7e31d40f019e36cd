"""Drives of positions, velocities and efforts. Shapes: N environments, J joints."""

from __future__ import annotations

import torch

from tests.lab.scenes import simulate, ur10
from tests.lab.sim.objects.test_articulation import CART_CFG


def test_velocity_drive_brakes_towards_its_target_and_effort_drive_pushes() -> None:
    # The cart's drive: stiffness 10, damping 1.
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("velocity", [0])
    assert cart.get_qpos_target()[:, 0].tolist() == [0.0, 0.0]
    cart.set_qvel(torch.tensor([[0.5], [0.0]]), [0])
    cart.drives.set_targets(torch.tensor([[2.0], [-3.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [1.5, -3.0]  # 1 (2 - 0.5), 1 (-3 - 0)
    engine = sim.backend.read("actuator_force")[:, 0]
    torch.testing.assert_close(engine, torch.tensor([1.5, -3.0]))
    cart.drives.set_mode("effort", [0])
    cart.drives.set_targets(torch.tensor([[7.0], [-200.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [7.0, -100.0]  # the limit
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([7.0, -100.0]))


def test_velocity_drive_reaches_its_velocity() -> None:
    sim = simulate(ur10(), num_envs=2)
    arm = sim.get_robot("arm")
    arm.drives.set_mode("velocity", [0, 5])
    arm.drives.set_targets(torch.tensor([[0.0, 0.4], [0.3, -0.2]]), [0, 5])
    sim.update(50)
    torch.testing.assert_close(arm.get_qvel()[:, [0, 5]], torch.tensor([[0.0, 0.4], [0.3, -0.2]]), atol=0.01, rtol=0)


def test_targets_of_velocities_and_efforts_are_zero_after_a_reset() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("effort", [0])
    cart.drives.set_targets(torch.full((2, 1), 5.0), [0])
    sim.reset(torch.tensor([1]))
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[5.0, 0.1], [0.0, 0.1]]))
    cart.drives.set_mode("position", [0])
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[1.0, 0.1], [1.0, 0.1]]))
    sim.reset(torch.arange(2))
    torch.testing.assert_close(cart.get_qpos_target(), torch.tensor([[1.0, 0.1], [1.0, 0.1]]))


def test_gains_are_scaled_in_the_named_envs_and_joints_only() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    before = cart.drives.read()
    torch.testing.assert_close(before["stiffness"], torch.tensor([[10.0, 0.01]] * 2))
    torch.testing.assert_close(before["damping"], torch.tensor([[1.0, 0.001]] * 2))
    cart.drives.scale(torch.tensor([[2.0]]), torch.tensor([[0.5]]), [0], torch.tensor([1]))
    drive = cart.drives.read()
    torch.testing.assert_close(drive["stiffness"], torch.tensor([[10.0, 0.01], [20.0, 0.01]]))
    torch.testing.assert_close(drive["damping"], torch.tensor([[1.0, 0.001], [0.5, 0.001]]))
    torch.testing.assert_close(before["stiffness"], torch.tensor([[10.0, 0.01]] * 2))
    cart.set_qpos(torch.tensor([[1.5], [1.5]]), [0])
    cart.set_qvel(torch.ones(2, 1), [0])
    assert cart.get_qf()[:, 0].tolist() == [4.0, 9.5]  # 10 * 0.5 - 1 * 1, 20 * 0.5 - 0.5 * 1
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([4.0, 9.5]))


def test_drive_mode_and_gains_do_not_undo_each_other() -> None:
    sim = simulate(CART_CFG, num_envs=2)
    cart = sim.get_robot("cart")
    cart.drives.set_mode("velocity", [0])
    cart.drives.scale(torch.tensor([[2.0]]), torch.tensor([[3.0]]), [0], torch.tensor([1]))
    cart.drives.set_targets(torch.tensor([[2.0], [2.0]]), [0])
    assert cart.get_qf()[:, 0].tolist() == [2.0, 6.0]
    torch.testing.assert_close(sim.backend.read("actuator_force")[:, 0], torch.tensor([2.0, 6.0]))
