"""Forward kinematics, Jacobian and inverse against the compiled model. Shapes: B batch, J joints."""

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.sim.assets import asset_spec
from embodichain.lab.sim.kinematics import SerialChain, frame_pose
from tests.lab.scenes import HOME

CPU = torch.device("cpu")
TCP = np.array([[0.0, -1, 0, 0.01], [1, 0, 0, -0.02], [0, 0, 1, 0.16], [0, 0, 0, 1]])

# Off-centre joints of both kinds, a turned body, a reference position and a fixed body between: five joints, an odd
# number, since joints are multiplied in pairs.
MIXED = """
<mujoco><compiler angle="radian"/>
  <worldbody><body name="a" pos="0.1 0.2 0.3" euler="0.3 -0.2 0.5"><geom size="0.01"/>
    <joint name="j0" type="hinge" axis="1 2 3" pos="0.05 -0.02 0.01" range="-2 2" limited="true"/>
    <body name="b" pos="0 0.3 0"><geom size="0.01"/>
      <joint name="j1" type="slide" axis="0 1 1" range="-0.5 0.5" limited="true"/>
      <joint name="j2" type="hinge" axis="0 1 0" pos="0.1 0 0" ref="0.4"/>
      <body name="c" pos="0.2 0 0.1" quat="1 0.2 0 0.1"><geom size="0.01"/>
        <body name="d" pos="0 0 0.2"><geom size="0.01"/>
          <joint name="j3" type="slide" axis="1 0 0" ref="0.1"/>
          <body name="e" pos="0.1 0.1 0"><geom size="0.01"/>
            <joint name="j4" type="hinge" axis="0 0 1"/>
            <site name="tip" pos="0.05 0 0.02" euler="0.1 0.2 0.3"/>
          </body></body></body></body></body></worldbody>
  <keyframe><key qpos="0.1 0.2 0.3 0.4 0.5"/></keyframe>
</mujoco>"""


def arm_model() -> mujoco.MjModel:
    spec = asset_spec("ur10")
    spec.add_key(name="init", qpos=HOME)
    return spec.compile()


def chain_to_site(model: mujoco.MjModel, joint_ids: list[int], tcp: np.ndarray) -> SerialChain:
    return SerialChain(
        model, joint_ids, int(model.site_bodyid[0]), frame_pose(model.site_pos[0], model.site_quat[0]) @ tcp, CPU
    )


@pytest.fixture(scope="module", params=["arm", "mixed"])
def model(request: pytest.FixtureRequest) -> mujoco.MjModel:
    return arm_model() if request.param == "arm" else mujoco.MjModel.from_xml_string(MIXED)


@pytest.fixture(scope="module")
def arm() -> SerialChain:
    return chain_to_site(arm_model(), list(range(6)), TCP)


def random_qpos(model: mujoco.MjModel, count: int) -> np.ndarray:
    low = np.where(model.jnt_limited, model.jnt_range[:, 0], -2.0)
    high = np.where(model.jnt_limited, model.jnt_range[:, 1], 2.0)
    return np.random.default_rng(0).uniform(low, high, (count, model.nq))


def engine_pose(model: mujoco.MjModel, qpos: np.ndarray, tcp: np.ndarray) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = data.site_xmat[0].reshape(3, 3), data.site_xpos[0]
    return pose @ tcp


def rotation_between(a: Tensor, b: Tensor) -> Tensor:
    """Return the angle between two rotations, [B]; the sine of half of it is the chord over sqrt 8."""
    return 2 * torch.asin((torch.linalg.matrix_norm(a[:, :3, :3] - b[:, :3, :3]) / 8**0.5).clamp(max=1.0))


def test_forward_kinematics_is_the_engines_at_random_positions(model: mujoco.MjModel) -> None:
    chain = chain_to_site(model, list(range(model.njnt)), TCP)
    qpos = random_qpos(model, 50)
    poses = chain.forward(torch.tensor(qpos, dtype=torch.float32)).numpy()
    for q, pose in zip(qpos, poses, strict=True):
        # float32: positions of about 1 m, six products of rounding 6e-8 each
        np.testing.assert_allclose(pose, engine_pose(model, q, TCP), atol=3e-6)


def test_jacobian_is_the_finite_difference_of_the_engines_pose(model: mujoco.MjModel) -> None:
    chain = chain_to_site(model, list(range(model.njnt)), TCP)
    h = 1e-6
    qpos = random_qpos(model, 10)
    jacobians = chain.jacobian(torch.tensor(qpos, dtype=torch.float32))[1].numpy()
    for q, jacobian in zip(qpos, jacobians, strict=True):
        for j in range(model.njnt):
            up, down = q.copy(), q.copy()
            up[j], down[j] = q[j] + h, q[j] - h
            a, b = engine_pose(model, up, TCP), engine_pose(model, down, TCP)
            linear = (a[:3, 3] - b[:3, 3]) / (2 * h)
            # R' R^T is the cross matrix of the angular velocity.
            spin = (a[:3, :3] - b[:3, :3]) / (2 * h) @ engine_pose(model, q, TCP)[:3, :3].T
            np.testing.assert_allclose(jacobian[:3, j], linear, atol=1e-5)
            np.testing.assert_allclose(jacobian[3:, j], [spin[2, 1], spin[0, 2], spin[1, 0]], atol=1e-5)


def test_inverse_kinematics_reaches_targets_near_the_seed(arm: SerialChain) -> None:
    generator = torch.Generator().manual_seed(0)
    seed = torch.tensor(HOME).expand(30, 6)
    target = arm.forward(seed + torch.rand(30, 6, generator=generator) - 0.5)
    success, qpos = arm.inverse(target, seed)
    assert success.float().mean().item() > 0.95
    reached = arm.forward(qpos)
    assert (reached[success, :3, 3] - target[success, :3, 3]).norm(dim=1).max().item() < 1.1e-3
    assert rotation_between(reached, target)[success].max().item() < 1.1e-2
    assert (qpos >= arm.limits[:, 0]).all()
    assert (qpos <= arm.limits[:, 1]).all()


def test_inverse_kinematics_reports_failure_beyond_reach(arm: SerialChain) -> None:
    seed = torch.tensor(HOME).expand(2, 6)
    target = arm.forward(seed).clone()
    target[1, :3, 3] = torch.tensor([5.0, 0.0, 0.0])  # the arm is 1.4 m long
    success, qpos = arm.inverse(target, seed)
    assert success.tolist() == [True, False]
    assert torch.isfinite(qpos).all()


def test_inverse_kinematics_stays_within_the_limits() -> None:
    model = mujoco.MjModel.from_xml_string(MIXED)
    model.jnt_range[0], model.jnt_range[1] = [-0.2, 0.2], [-0.05, 0.05]
    chain = chain_to_site(model, list(range(5)), np.eye(4))
    far = torch.tensor([[1.5, 0.45, 0.0, 0.0, 0.0]])
    _, qpos = chain.inverse(chain.forward(far), torch.zeros(1, 5))
    assert abs(qpos[0, 0].item()) <= 0.2 + 1e-6
    assert abs(qpos[0, 1].item()) <= 0.05 + 1e-6


def test_bits_of_a_result_do_not_depend_on_the_size_of_the_batch(arm: SerialChain) -> None:
    generator = torch.Generator().manual_seed(0)
    qpos = torch.tensor(HOME) + torch.randn(64, 6, generator=generator) * 0.5
    poses = arm.forward(qpos)
    success, found = arm.inverse(poses, qpos + 0.1, iterations=5)
    for size in (1, 2, 3, 8, 33):
        assert torch.equal(arm.forward(qpos[:size]), poses[:size])
        fewer = arm.inverse(poses[:size], qpos[:size] + 0.1, iterations=5)
        assert torch.equal(fewer[0], success[:size])
        assert torch.equal(fewer[1], found[:size])


def test_half_turn_that_remains_is_no_success(arm: SerialChain) -> None:
    qpos = torch.tensor([HOME])
    turned = arm.forward(qpos) @ torch.diag(torch.tensor([-1.0, -1.0, 1.0, 1.0]))
    success, _ = arm.inverse(turned, qpos, iterations=0)
    assert success.tolist() == [False]
