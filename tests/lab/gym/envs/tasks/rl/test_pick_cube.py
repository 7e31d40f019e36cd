"""Shapes: N = 2 environments, whose cubes are set by hand between the open or closed fingers."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import parse_env
from embodichain.lab.gym.envs.tasks.rl import PickCubeEnv
from embodichain.lab.sim.math import matrix_from_euler
from embodichain.utils.utility import load_json
from tests.lab.scenes import DOWN, aim, env_of, solved_by_the_expert

pytestmark = pytest.mark.e2e

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/pick_cube/gym_config.json"
SPARSE = CONFIG.with_name("gym_config_sparse.json")
OPEN, CLOSED = -1.0, 1.0
# A finger's way to the cube: (stroke 0.08 - edge 0.05) / 2 = 0.015; half a millimetre further it presses.
PRESSING = 0.0155
STILL = torch.zeros(2, 6)


def make(num_envs: int = 2, threads: int = 1, config: Path = CONFIG) -> PickCubeEnv:
    data = load_json(config)
    data["env"]["sim_cfg"] = {"num_threads": threads}
    env = env_of(data, num_envs)
    assert isinstance(env, PickCubeEnv)
    env.reset(seed=1)
    return env


@pytest.fixture(scope="module")
def built() -> PickCubeEnv:
    return make()


@pytest.fixture
def env(built: PickCubeEnv) -> PickCubeEnv:
    built.reset(seed=1)
    return built


def about_z(angle: Tensor) -> Tensor:
    """Return the rotations [N, 3, 3] about the vertical by angles [N], rad."""
    return matrix_from_euler(torch.nn.functional.pad(angle[:, None], (2, 0)))


def put_cube(env: PickCubeEnv, offset: list[list[float]], rotation: Tensor | None = None) -> None:
    """Put the cubes at offsets [N, 3] from the tool, at rest."""
    pose = torch.eye(4).repeat(2, 1, 1)
    if rotation is not None:
        pose[:, :3, :3] = rotation
    pose[:, :3, 3] = env.robot.get_eef_pose()[:, :3, 3] + torch.tensor(offset)
    env.cube.set_local_pose(pose)
    env.cube.clear_dynamics()


def close_fingers(env: PickCubeEnv, one: list[float], two: list[float]) -> None:
    """Put the fingers where they are given for each environment, m of their way, with drives that close them."""
    env.robot.set_qpos(torch.tensor([one, two]).T, name="hand", target=False)
    env.robot.set_qpos(torch.tensor([[0.04, 0.04]] * 2), name="hand")


def hold(env: PickCubeEnv, height: float) -> None:
    """Put the cube of both environments into the closed gripper at this height."""
    aim(env, [-0.65, 0.0, height])
    put_cube(env, [[0.0, 0.0, 0.0]] * 2)
    close_fingers(env, [PRESSING] * 2, [PRESSING] * 2)


def stay(gripper: float) -> Tensor:
    action = torch.zeros(2, 7)
    action[:, 6] = gripper
    return action


def test_cube_is_gripped_where_both_fingers_press_on_it(env: PickCubeEnv) -> None:
    aim(env, [-0.65, 0.0, 0.3])
    put_cube(env, [[0.0, 0.0, 0.0]] * 2)
    close_fingers(env, [PRESSING, PRESSING], [PRESSING, 0.0])
    assert env.is_gripped().tolist() == [True, False]
    close_fingers(env, [0.0, 0.0149], [PRESSING, 0.0149])  # one finger, and none: 0.1 mm short of the cube
    assert env.is_gripped().tolist() == [False, False]


def test_fingers_on_the_ground_grip_nothing(env: PickCubeEnv) -> None:
    aim(env, [-0.65, 0.0, 0.008])  # the tips are 0.01 below the tool: 2 mm inside the ground
    put_cube(env, [[0.3, 0.0, 0.1]] * 2)
    close_fingers(env, [0.01, 0.04], [0.01, 0.04])
    assert (env.sim.get_contact_force("Manipulator", "gripper_finger1_link")[:, 2] > 10.0).all()
    assert env.is_gripped().tolist() == [False, False]


def test_cube_that_is_held_high_enough_for_some_steps_is_success(env: PickCubeEnv) -> None:
    hold(env, 0.25)
    for step in range(1, 10):
        *_, info = env.step(stay(CLOSED))
        assert env.held_steps.tolist() == [step, step]
        assert not info["success"].any()
    _, _, terminated, _, info = env.step(stay(CLOSED))
    assert info["success"].all()
    assert terminated.all()
    assert env.held_steps.tolist() == [0, 0]  # of the new episode


def test_cube_that_is_held_too_low_is_no_success(env: PickCubeEnv) -> None:
    hold(env, 0.18)
    for _ in range(12):
        *_, info = env.step(stay(CLOSED))
    assert info["metrics"]["gripped"].all()
    assert env.held_steps.tolist() == [0, 0]


def test_held_cube_that_moves_is_not_at_rest(env: PickCubeEnv) -> None:
    hold(env, 0.25)
    fast = stay(CLOSED)
    fast[:, 0] = 0.5  # the shoulder turns: 0.65 m x rad/s
    for _ in range(5):
        *_, info = env.step(fast)
    assert info["metrics"]["gripped"].all()
    assert (info["metrics"]["cube_speed"] > 0.3).all()
    assert env.held_steps.tolist() == [0, 0]


def test_cube_that_is_thrown_is_no_success(env: PickCubeEnv) -> None:
    aim(env, [-0.65, 0.3, 0.3])
    put_cube(env, [[0.0, -0.3, -0.1]] * 2)  # at 0.2
    upwards = STILL.clone()
    upwards[:, 2] = 2.0
    env.cube.set_velocity(upwards)
    heights, slow = [], 0
    for _ in range(14):  # of 0.04 s: it comes back after 2 * 2 / 9.81 = 0.4 s, 10 steps
        *_, info = env.step(stay(CLOSED))
        assert not info["success"].any()
        heights.append(info["metrics"]["cube_height"].max().item())
        slow += int(((info["metrics"]["cube_speed"] < 0.3) & (info["metrics"]["cube_height"] > 0.2)).any())
    assert max(heights) > 0.35
    assert slow > 0  # at the top of its flight
    assert env.held_steps.tolist() == [0, 0]


def test_turn_to_the_faces_is_the_same_whichever_face_is_on_top(env: PickCubeEnv) -> None:
    aim(env, [-0.65, 0.0, 0.3])
    # 30 degrees are 30, and 60 are -30, since every 90 degrees there is a face.
    yaw = about_z(torch.tensor([math.pi / 6, math.pi / 3]))
    put_cube(env, [[0.0, 0.0, -0.2]] * 2, yaw)
    expected = torch.tensor([math.pi / 6, -math.pi / 6])
    torch.testing.assert_close(env.turn_to_faces(), expected, atol=2e-3, rtol=0)
    on_its_side = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    put_cube(env, [[0.0, 0.0, -0.2]] * 2, yaw @ on_its_side)
    torch.testing.assert_close(env.turn_to_faces(), expected, atol=2e-3, rtol=0)


def test_observation_has_the_way_to_the_cube_and_how_it_moves(env: PickCubeEnv) -> None:
    aim(env, [-0.65, 0.0, 0.3])
    put_cube(env, [[0.1, 0.05, -0.2], [0.0, 0.0, -0.25]], about_z(torch.tensor([0.2, 0.0])))
    env.cube.set_velocity(torch.tensor([[0.0] * 6, [0.1, 0.2, 0.3, 5.0, 0.0, 0.0]]))
    expected = torch.tensor([[0.1, 0.05, -0.2, 0.2, 0.0, 0.0, 0.0, 0.1], [0.0, 0.0, -0.25, 0.0, 0.1, 0.2, 0.3, 0.05]])
    torch.testing.assert_close(env.get_obs()["task", "cube"], expected, atol=2e-3, rtol=0)


def test_terms_may_change_the_tasks_own_entry() -> None:
    noisy = load_json(CONFIG)
    noise = {"func": "observation_noise", "mode": "modify", "name": "task/cube", "params": {"bound": 0.1}}
    noisy["env"]["observations"]["noise"] = noise
    plain, changed = (env_of(data, 2).reset(seed=1)[0]["task", "cube"] for data in (load_json(CONFIG), noisy))
    assert 0 < (changed - plain).abs().max() <= 0.1


def test_reward_is_what_is_missing(env: PickCubeEnv) -> None:
    hold(env, 0.12)
    put_cube(env, [[0.0, 0.0, 0.0], [0.0, 0.1, 0.0]])
    info = env.get_info()
    reward = env.get_reward(env.get_obs(), stay(CLOSED), info)
    # Gripped at 0.12, best is 0.22, rest is 0.025: 0.095 / 0.195 of the way are done.
    # Beside the fingers: tanh(5 x 0.1) = 0.462 for the distance, and nothing else is done.
    expected = {"reach": [0.0, -0.462], "grip": [0.0, -0.5], "lift": [-0.513, -1.0], "align": [0.0, 0.0]}
    for name, values in expected.items():
        assert info["rewards"][name].tolist() == pytest.approx(values, abs=5e-3), name
    assert reward.tolist() == pytest.approx([-0.513, -0.462 - 0.5 - 1.0], abs=1e-2)
    torch.testing.assert_close(sum(info["rewards"].values()), reward)


def test_fingers_across_an_edge_and_a_tilted_tool_cost(env: PickCubeEnv) -> None:
    cos, sin = math.cos(0.3), math.sin(0.3)
    about_x = torch.tensor([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
    aim(env, [-0.65, 0.0, 0.3], torch.stack((DOWN, about_x @ DOWN)))
    put_cube(env, [[0.0, 0.0, -0.2]] * 2, about_z(torch.tensor([math.pi / 4 - 0.01, 0.0])))
    info = env.get_info()
    env.get_reward(env.get_obs(), stay(CLOSED), info)
    # Half of (45 degrees less 0.01 rad) / pi = 0.247, and of 1 - cos 0.3 = 0.045
    assert info["rewards"]["align"].tolist() == pytest.approx([-0.123, -0.022], abs=1e-3)


def test_sparse_reward_is_one_at_success_and_else_nothing() -> None:
    env = make(config=SPARSE)
    env.reset(seed=1)
    hold(env, 0.25)
    for _ in range(9):
        _, reward, *_ = env.step(stay(CLOSED))
        assert reward.tolist() == [0.0, 0.0]
    _, reward, terminated, _, info = env.step(stay(CLOSED))
    assert reward.tolist() == [1.0, 1.0]
    assert info["success"].all()
    assert terminated.all()


def test_expert_solves_nineteen_episodes_in_twenty() -> None:
    env = make(40)
    assert solved_by_the_expert(env).float().mean() >= 0.95


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        ({"sense": ["gripper_finger1_link"]}, ["robot.sense_contacts: 'gripper_finger2_link' is missing"]),
        ({"sense": ["gripper_finger._link"]}, []),
        ({"fingers": ["left", "right"]}, ["robot.sense_contacts: 'left' is", "robot.sense_contacts: 'right' is"]),
        ({"fingers": 3}, ["env.extensions.fingers: Input should be a valid array, got 3"]),
    ],
)
def test_fingers_without_sensed_contacts_are_refused(changes: dict[str, Any], problems: list[str]) -> None:
    data = load_json(CONFIG)
    if "sense" in changes:
        data["robot"]["sense_contacts"] = changes["sense"]
    if "fingers" in changes:
        data["env"].setdefault("extensions", {})["fingers"] = changes["fingers"]
    found = parse_env(data).problems
    assert len(found) == len(problems)
    assert all(line.startswith(start) for line, start in zip(found, problems, strict=True))
