"""Actions that are poses of the tool. Shapes: N = 2 environments."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.actions import EefPoseTerm
from embodichain.lab.sim.math import matrix_from_euler
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import actions_for, cart_cfg, env_of

GYM: dict[str, Any] = {**PUSH_CUBE, "robot": {**PUSH_CUBE["robot"]}}
GYM["robot"]["drive_pros"] = {
    "stiffness": {"shoulder.*": 4000.0, "elbow_joint": 2000.0, "wrist.*": 400.0, "gripper.*": 3600.0},
    "damping": {"shoulder.*": 200.0, "elbow_joint": 100.0, "wrist.*": 20.0, "gripper.*": 50.0},
}


def pose_env(**params: Any) -> EmbodiedEnv:
    actions = {"tool": {"func": "EefPoseTerm", "params": params}}
    env = env_of({**GYM, "env": {**GYM["env"], "actions": actions}}, 2)
    env.reset(seed=1)
    return env


@pytest.fixture(scope="module")
def absolute() -> EmbodiedEnv:
    return pose_env(pose_dim=6)


def angle_between(a: Tensor, b: Tensor) -> Tensor:
    trace = (a[:, :3, :3] * b[:, :3, :3]).sum(dim=(1, 2))
    return torch.acos(((trace - 1) / 2).clamp(-1, 1))


def goal(env: EmbodiedEnv) -> Tensor:
    """Return the present pose 5 cm higher and 3 cm aside, as position and Euler angles, [2, 6]."""
    pose = env.robot.compute_fk(env.robot.body_data.default_qpos[:, :6])
    position = pose[:, :3, 3] + torch.tensor([0.0, 0.03, 0.05])
    # The tool points down at home: half a turn about x, then about z.
    m = pose[:, :3, :3]
    euler = torch.stack(
        (
            torch.atan2(m[:, 2, 1], m[:, 2, 2]),
            torch.asin(-m[:, 2, 0].clamp(-1, 1)),
            torch.atan2(m[:, 1, 0], m[:, 0, 0]),
        ),
        dim=1,
    )
    torch.testing.assert_close(matrix_from_euler(euler), m, atol=1e-4, rtol=0)
    return torch.cat((position, euler), dim=1)


def test_joints_go_where_the_tool_is_at_the_pose(absolute: EmbodiedEnv) -> None:
    absolute.reset(seed=1)
    action = goal(absolute)
    targets = absolute.action_manager.process_action(action)
    assert targets["ik_success"].tolist() == [True, True]
    reached = absolute.robot.compute_fk(targets["qpos"])
    torch.testing.assert_close(reached[:, :3, 3], action[:, :3], atol=1e-3, rtol=0)
    assert angle_between(reached, targets["eef_pose"]).max().item() < 0.01


def test_success_is_a_metric_of_the_step(absolute: EmbodiedEnv) -> None:
    absolute.reset(seed=1)
    action = goal(absolute)
    action[1, :3] = 9.0  # m
    info = absolute.step(action)[-1]
    assert info["metrics"]["ik_success"].tolist() == [1.0, 0.0]
    assert len(info["metrics"]) > 1  # the task's own are there, too


def test_search_continues_from_step_to_step(absolute: EmbodiedEnv) -> None:
    absolute.reset(seed=1)
    far = absolute.robot.body_data.default_qpos[:, :6] + torch.tensor([2.4, 0.3, -0.3, 0.5, 0.5, 1.0])
    seven = absolute.robot.compute_fk(far, to_matrix=False)
    term = absolute.action_manager.terms["tool"]
    successes = []
    for _ in range(6):
        result = term.process_action(seven)
        absolute.robot.set_qpos(result["qpos"], name="arm")
        successes.append(result["ik_success"].all().item())
    assert successes[0] is False
    assert successes[-1] is True


def test_quaternion_may_be_of_any_length() -> None:
    env = pose_env()
    assert env.action_manager.total_action_dim == 7
    assert env.single_action_space.high.tolist() == [math.inf] * 7
    seven = env.robot.compute_fk(env.robot.get_qpos("arm"), to_matrix=False)
    longer = torch.cat((seven[:, :3], 3.0 * seven[:, 3:]), dim=1)
    process = env.action_manager.process_action
    torch.testing.assert_close(process(seven)["qpos"], process(longer)["qpos"], atol=1e-4, rtol=0)
    assert process(longer)["ik_success"].all()


def test_relative_action_shifts_and_turns_the_present_pose() -> None:
    env = pose_env(pose_dim=6, relative=True, scale=0.05, rotation_scale=0.1)
    assert env.single_action_space.high.tolist() == [1.0] * 6
    before = env.robot.get_eef_pose("arm")
    action = torch.tensor([[0.0] * 6, [1.0, 0.0, -0.5, 0.0, 0.0, 1.0]])
    targets = env.action_manager.process_action(action)
    assert targets["ik_success"].all()
    torch.testing.assert_close(targets["qpos"][0], env.robot.get_qpos("arm")[0], atol=1e-3, rtol=0)
    reached = env.robot.compute_fk(targets["qpos"])
    shift = reached[1, :3, 3] - before[1, :3, 3]
    torch.testing.assert_close(shift, torch.tensor([0.05, 0.0, -0.025]), atol=1e-3, rtol=0)
    c, s = math.cos(0.1), math.sin(0.1)
    turn = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(reached[1, :3, :3], turn @ before[1, :3, :3], atol=0.01, rtol=0)


@pytest.mark.parametrize(("key", "value"), [("relative", True), ("rotation_scale", 0.1)])
def test_quaternion_that_would_turn_half_round_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"params\.{key}: needs pose_dim 6"):
        pose_env(scale=0.05, **{key: value})


def test_pose_of_another_size_is_refused(absolute: EmbodiedEnv) -> None:
    term = absolute.action_manager.terms["tool"]
    assert isinstance(term, EefPoseTerm)
    with pytest.raises(ValueError, match=r"6 numbers \(Euler angles\) or 7 \(quaternion\), got 5"):
        term.process_action(torch.zeros(2, 5))


@pytest.mark.parametrize("params", [{"pose_dim": 6}, {"pose_dim": 6, "relative": True, "scale": 0.05}])
def test_targets_do_not_depend_on_num_envs(params: dict[str, Any]) -> None:
    actions = {"tool": {"func": "EefPoseTerm", "params": params}}
    results = []
    for num_envs in (1, 33):
        env = env_of({**GYM, "env": {**GYM["env"], "actions": actions}}, num_envs)
        env.reset(seed=1)
        for i, action in enumerate(actions_for(EmbodiedEnv(cart_cfg(33)), 3)):
            wide = torch.cat((action, action.roll(1, 0), action.roll(2, 0)), dim=1).repeat(1, 3)
            env.step(wide[:num_envs, : env.action_manager.total_action_dim] * (1 + i))
        results.append(env.robot.get_qpos_target()[:1])
    assert torch.equal(*results)


def test_command_is_the_scaled_pose_or_its_change() -> None:
    (term,) = pose_env(pose_dim=6, relative=True, scale=0.05, rotation_scale=0.1).action_manager.terms.values()
    (other,) = pose_env(pose_dim=7).action_manager.terms.values()
    change, pose = term.command_map(), other.command_map()
    assert change is not None
    assert pose is not None
    assert change.names == ["x", "y", "z", "roll", "pitch", "yaw"]
    assert change.factor.tolist() == pytest.approx([0.05] * 3 + [0.1] * 3)
    assert change.meaning == "change of the tool's pose: m; Euler angles about the fixed axes, rad"
    assert pose.names == ["x", "y", "z", "qw", "qx", "qy", "qz"]
    assert pose.meaning == "pose of the tool: m; quaternion"


PLANE = Path(__file__).resolve().parents[5] / "configs/agents/rl/push_colored_cube/gym_config.json"


def plane_env(**params: Any) -> EmbodiedEnv:
    data = load_json(PLANE)
    data["sensor"] = []
    data["env"]["actions"]["plane"]["params"] |= params
    return env_of(data, 2)


def test_tool_moves_in_the_plane_and_keeps_its_height() -> None:
    env = plane_env()
    env.reset(seed=1)
    before = env.robot.get_eef_pose().clone()
    for _ in range(4):
        env.step(torch.tensor([[0.5, 1.0], [0.0, -1.0]]))
    for _ in range(6):  # the drives follow
        env.step(torch.zeros(2, 2))
    after = env.robot.get_eef_pose()
    # 4 steps of 0.02 m times (0.5, 1) and (0, -1)
    expected = torch.tensor([[0.04, 0.08, 0.0], [0.0, -0.08, 0.0]])
    torch.testing.assert_close(after[:, :3, 3] - before[:, :3, 3], expected, atol=3e-3, rtol=0)
    torch.testing.assert_close(after[:, :3, :3], before[:, :3, :3], atol=0.01, rtol=0)


def test_target_stays_within_its_bounds() -> None:
    env = plane_env(high=[-0.57, 0.17])
    env.reset(seed=1)
    for _ in range(10):
        env.step(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    # 0.2 m further would be beyond -0.57 m
    torch.testing.assert_close(env.robot.get_eef_pose()[:, 0, 3], torch.full((2,), -0.57), atol=3e-3, rtol=0)


def test_target_begins_an_episode_where_the_tool_is() -> None:
    env = plane_env()
    env.reset(seed=1)
    for _ in range(5):
        env.step(torch.ones(2, 2))
    env.reset()
    start = env.robot.get_eef_pose().clone()
    env.step(torch.zeros(2, 2))
    torch.testing.assert_close(env.robot.get_eef_pose()[:, :2, 3], start[:, :2, 3], atol=3e-3, rtol=0)


def test_bounds_without_room_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"params\.low: must be below 'high'"):
        plane_env(low=[-0.5, 0.0], high=[-0.5, 0.1])
