"""Tasks of single motions and of legs, from states that are set. Shapes: N environments."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.tasks.rl import OpenDrawerEnv, PushCubeEnv, ReachEnv, build_env
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.sim.math import matrix_from_euler
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.legs import GO2, legs_data, legs_env, place_base, set_command
from tests.lab.originals import CART_POLE, PUSH_CUBE
from tests.lab.scenes import env_of


def lean(cart_pole: EmbodiedEnv, angles: list[float]) -> None:
    cart_pole.robot.set_qpos(torch.tensor(angles)[:, None], name="hand", target=False)


@pytest.fixture(scope="module")
def cart_pole() -> EmbodiedEnv:
    cart_pole = env_of(CART_POLE, 4)
    cart_pole.reset(seed=1)
    return cart_pole


def test_upright_pole_is_success_and_a_fallen_one_failure(cart_pole: EmbodiedEnv) -> None:
    lean(cart_pole, [0.09, -0.2, -0.51, 0.6])
    success, fail, metrics = cart_pole.compute_task_state()
    assert success.tolist() == [True, False, False, False]
    assert fail.tolist() == [False, False, True, True]
    torch.testing.assert_close(metrics["pole_angle"], torch.tensor([0.09, 0.2, 0.51, 0.6]))


def test_success_does_not_end_the_episode_and_failure_does(cart_pole: EmbodiedEnv) -> None:
    cart_pole.reset(seed=1)
    lean(cart_pole, [0.0, 0.3, 1.0, -1.0])
    _, _, terminated, truncated, info = cart_pole.step(torch.zeros(4, 1))
    assert info["success"].tolist() == [True, False, False, False]
    assert terminated.tolist() == [False, False, True, True]
    assert not truncated.any()


def test_reward_of_the_pole_falls_with_the_square_of_the_lean(cart_pole: EmbodiedEnv) -> None:
    cart_pole.reset(seed=1)
    lean(cart_pole, [0.0, 0.25, 0.4, 1.0])
    _, reward, _, _, info = cart_pole.step(torch.zeros(4, 1))
    angle = info["metrics"]["pole_angle"]
    upright = 1 - (angle / 0.5) ** 2
    torch.testing.assert_close(info["rewards"]["upright"][:3], upright[:3])
    assert info["rewards"]["upright"][3].item() == 0.0
    torch.testing.assert_close(reward, info["rewards"]["upright"] + info["rewards"]["calm"])
    # calm: -0.005 times the pole's speed after the step, 0 for the pole that stands still
    assert info["rewards"]["calm"][0].item() == pytest.approx(0.0, abs=1e-3)
    assert (info["rewards"]["calm"][1:] < 0).all()


REACH_CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/reach/gym_config.json"


@pytest.fixture(scope="module")
def reach() -> ReachEnv:
    reach = env_of(load_json(REACH_CONFIG), 2)
    assert isinstance(reach, ReachEnv)
    reach.reset(seed=1)
    return reach


def set_goals(reach: ReachEnv, offsets: list[list[float]], turns: list[float]) -> None:
    """Put the goals beside the tools: by an offset (m), and by a turn (rad) about the world's z axis."""
    goal = reach.robot.get_eef_pose().clone()
    goal[:, :3, 3] += torch.tensor(offsets)
    goal[:, :3, :3] = matrix_from_euler(torch.tensor([[0.0, 0.0, turn] for turn in turns])) @ goal[:, :3, :3]
    reach.goal_pose = goal


def test_tool_within_both_thresholds_is_success(reach: ReachEnv) -> None:
    # 0.009 m and 0.04 rad are inside of 0.01 m and 0.05 rad; 0.06 rad is not.
    set_goals(reach, [[0.009, 0.0, 0.0], [0.0, 0.0, 0.0]], [0.04, -0.06])
    success, fail, metrics = reach.compute_task_state()
    assert success.tolist() == [True, False]
    assert not fail.any()
    torch.testing.assert_close(metrics["distance_to_goal"], torch.tensor([0.009, 0.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(metrics["angle_to_goal"], torch.tensor([0.04, 0.06]), atol=1e-4, rtol=0)


def test_way_to_the_goal_is_observed_and_costs(reach: ReachEnv) -> None:
    set_goals(reach, [[0.1, 0.0, -0.2], [0.0, 0.0, 0.0]], [0.0, 0.5])
    obs = reach.get_obs()
    expected = torch.tensor([[0.1, 0, -0.2, 0, 0, 0], [0, 0, 0, 0, 0, 0.5]])
    torch.testing.assert_close(obs["task", "pose_error"], expected, atol=1e-5, rtol=0)
    info = reach.get_info()
    reach.get_reward(obs, torch.zeros(2, 6), info)
    # -tanh(3 * sqrt(0.05)) and -tanh(3 * 0.2 * 0.5)
    torch.testing.assert_close(info["rewards"]["closeness"], torch.tensor([-0.58553, -0.29131]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("moves", [False, True], ids=["at a reset", "at an interval"])
def test_goal_is_shown_by_three_bars_that_begin_at_it(moves: bool) -> None:
    reach = env_of(load_json(REACH_CONFIG), 2)
    assert isinstance(reach, ReachEnv)
    if moves:
        params = {"position_range": [[0.4, -0.2, 0.3], [0.6, 0.2, 0.5]], "store_key": "goal_pose"}
        reach.add_events({"move": EventCfg("randomize_target_pose", mode="interval", interval_step=1, params=params)})
    reach.reset(seed=3)
    if moves:
        reach.step(torch.zeros(2, 6))
    rows = [int(reach.sim.model.body(f"goal_{axis}").mocapid[0]) for axis in "xyz"]
    middles = reach.sim.backend.read("mocap_pos")[:, rows]
    # Half of 0.08 m along each of the goal's axes.
    expected = reach.goal_pose[:, None, :3, 3] + 0.04 * reach.goal_pose[:, :3, :3].transpose(1, 2)
    torch.testing.assert_close(middles, expected, atol=1e-6, rtol=0)


DRAWER_CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/open_drawer/gym_config.json"


@pytest.fixture
def drawer() -> OpenDrawerEnv:
    drawer = env_of(load_json(DRAWER_CONFIG), 2)
    assert isinstance(drawer, OpenDrawerEnv)
    drawer.reset(seed=1)
    return drawer


def test_drawer_open_far_enough_is_success(drawer: OpenDrawerEnv) -> None:
    drawer.cabinet.set_qpos(torch.tensor([[0.21], [0.19]]), joint_ids=[0], target=False)
    success, fail, metrics = drawer.compute_task_state()
    assert success.tolist() == [True, False]
    assert not fail.any()
    torch.testing.assert_close(metrics["opening"], torch.tensor([0.21, 0.19]))


def test_observation_has_the_drawer_and_the_way_to_its_handle(drawer: OpenDrawerEnv) -> None:
    drawer.cabinet.set_qpos(torch.tensor([[0.1], [0.0]]), joint_ids=[0], target=False)
    drawer.cabinet.set_qvel(torch.tensor([[0.05], [0.4]]), joint_ids=[0])
    obs = drawer.get_obs()["task", "drawer"]
    torch.testing.assert_close(obs[:, :2], torch.tensor([[0.1, 0.05], [0.0, 0.4]]))
    # The cabinet stands at (-0.95, -0.16); its bar is 0.07 before it, 0.48 up; the tool should be 0.03 below that.
    place = torch.tensor([[-0.78, -0.16, 0.45], [-0.88, -0.16, 0.45]])
    torch.testing.assert_close(obs[:, 2:], place - drawer.robot.get_eef_pose()[:, :3, 3], atol=1e-5, rtol=0)


def test_pulling_is_rewarded_and_a_tool_that_is_turned_costs(drawer: OpenDrawerEnv) -> None:
    down = torch.tensor([[0.0, -1.57, 1.57, -1.57, -1.57, 1.57], [0.0, -1.57, 1.57, -1.57, -1.57, 0.0]])
    drawer.robot.set_qpos(down, name="arm", target=False)
    # In a step of 0.04 s 0.002 m are 0.05 m/s, a quarter of the speed that is rewarded with 1; -0.016 m are -0.4 m/s.
    assert drawer.step_dt == pytest.approx(0.04)
    drawer.cabinet.set_qpos(torch.tensor([[0.002], [-0.016]]), joint_ids=[0], target=False)
    rewards = rewards_of_step(drawer)
    assert rewards["pull"].tolist() == pytest.approx([0.25, -2.0], rel=1e-4)
    # The fingers close along the world's x axis in the first environment, along y in the second.
    assert rewards["align"].tolist() == pytest.approx([0.0, -1.0], abs=2e-2)
    # 0.098 and 0.016 m: both faster than counts.
    drawer.cabinet.set_qpos(torch.tensor([[0.1], [0.0]]), joint_ids=[0], target=False)
    assert rewards_of_step(drawer)["pull"].tolist() == pytest.approx([1.0, 1.0])


def test_a_drawer_that_shakes_wins_nothing(drawer: OpenDrawerEnv) -> None:
    # Always fast outwards when a step ends, and always back where it was a step later.
    pulls = []
    for i in range(6):
        drawer.cabinet.set_qpos(torch.full((2, 1), 0.004 * (1 - i % 2)), joint_ids=[0], target=False)
        drawer.cabinet.set_qvel(torch.full((2, 1), 0.3), joint_ids=[0])
        pulls.append(rewards_of_step(drawer)["pull"])
    torch.testing.assert_close(torch.stack(pulls).sum(0), torch.zeros(2), atol=1e-4, rtol=0)


def test_reset_does_not_count_as_closing_the_drawer(drawer: OpenDrawerEnv) -> None:
    drawer.cabinet.set_qpos(torch.full((2, 1), 0.1), joint_ids=[0], target=False)
    rewards_of_step(drawer)
    drawer.reset(seed=2)
    assert rewards_of_step(drawer)["pull"].tolist() == pytest.approx([0.0, 0.0], abs=1e-4)


def rewards_of_step(drawer: OpenDrawerEnv) -> dict[str, torch.Tensor]:
    """Return the reward's terms as after a step in which the physics has made what is there now."""
    drawer._update_sim_state()
    info = drawer.get_info()
    drawer.get_reward(drawer.get_obs(), torch.zeros(2, 6), info)
    rewards: dict[str, torch.Tensor] = info["rewards"]
    return rewards


def test_fingers_that_are_pulled_behind_the_bar_open_the_drawer(drawer: OpenDrawerEnv) -> None:
    down = torch.tensor([[-1.0, 0, 0], [0, 1, 0], [0, 0, -1]])
    for above, steps in ((0.12, 25), (0.0, 20), (0.1, 40)):
        for _ in range(steps):
            pose = drawer.robot.get_eef_pose().clone()
            pose[:, :3, :3] = down
            away = torch.tensor([above, 0.0, 0.0]) if steps == 40 else torch.tensor([0.0, 0.0, above])
            pose[:, :3, 3] += (drawer.to_handle() + away).clamp(-0.03, 0.03)
            _, qpos = drawer.robot.compute_ik(pose)
            *_, info = drawer.step((qpos - drawer.robot.get_qpos("arm")) / 0.1)
            if info["success"].any():
                return
    pytest.fail(f"the drawer is open by {drawer.opening().tolist()} m")


def built(num_envs: int = 2, **extensions: Any) -> PushCubeEnv:
    env = env_of({**PUSH_CUBE, "env": {**PUSH_CUBE["env"], "extensions": extensions}}, num_envs)
    assert isinstance(env, PushCubeEnv)
    env.reset(seed=1)
    return env


def place(env: PushCubeEnv, offsets: list[list[float]]) -> None:
    """Put the cubes beside their goals."""
    pos = env.goal_pose[:, :3, 3] + torch.tensor(offsets)
    env.sim.get_rigid_object("cube").set_local_pose(torch.cat((pos, torch.tensor([[1.0, 0, 0, 0]] * 2)), dim=1))


def test_arm_by_the_originals_names_holds_still() -> None:
    # What a config names that assembles the original's own UR10: its joints, its flange, one gain for all.
    robot = {key: value for key, value in PUSH_CUBE["robot"].items() if key != "robot_type"}
    arm = {"component_type": "arm", "urdf_path": "UniversalRobots/UR10/UR10.urdf"}
    robot["urdf_cfg"] = {"components": [arm, *robot["urdf_cfg"]["components"]]}
    robot["control_parts"] = {"arm": ["JOINT[1-6]"]}
    robot["solver_cfg"] = {"arm": robot["solver_cfg"]["arm"] | {"end_link_name": "ee_link"}}
    env = env_of({**PUSH_CUBE, "robot": robot}, 2)
    env.reset(seed=1)
    other = built()
    torch.testing.assert_close(env.robot.get_eef_pose(), other.robot.get_eef_pose())
    before = env.robot.get_qpos().clone()
    for _ in range(20):
        env.step(torch.zeros(2, 6))
    assert (env.robot.get_qpos() - before).abs().max() < 1e-5
    assert env.robot.get_qvel().abs().max() < 1e-4
    for _ in range(5):  # each wants 0.1 rad more than there is; efforts are limited, and momentum carries
        env.step(torch.ones(2, 6))
    moved = (env.robot.get_qpos() - before)[:, :6]
    assert (moved > 0.05).all()
    assert (moved < 1.0).all()


def test_cube_near_the_goal_is_success_at_any_height() -> None:
    env = built(success_threshold=0.05)
    place(env, [[0.03, 0.03, 0.5], [0.03, 0.041, 0.0]])
    success, fail, metrics = env.compute_task_state()
    # sqrt(2) 0.03 = 0.0424 and sqrt(0.03^2 + 0.041^2) = 0.0508
    torch.testing.assert_close(metrics["distance_to_goal"], torch.tensor([0.042426, 0.050804]), atol=1e-5, rtol=0)
    assert success.tolist() == [True, False]
    assert fail.tolist() == [False, False]


def test_disc_lies_on_the_ground_at_the_new_goal() -> None:
    env = built()
    row = int(env.sim.model.body("goal").mocapid[0])
    for options in ({}, {"reset_ids": [1]}):
        env.reset(options=options)
        disc = env.sim.backend.read("mocap_pos")[:, row]
        torch.testing.assert_close(disc[:, :2], env.goal_pose[:, :2, 3])
        assert (disc[:, 2] < 0.01).all()
        assert (disc[:, 2] > 0.0).all()


GO2_CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/go2_flat/gym_config.json"
FALLS = {"bad_orientation": {"func": "bad_orientation", "params": {"limit_angle": 1.0}}}


def test_errors_are_those_to_the_tracked_command() -> None:
    env = legs_env(2)
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0, 0.0, math.pi / 2], [0.0] * 3])
    env.robot.base.set_velocity(torch.tensor([[0.0, 0.7, 9.0, 0.0, 0.0, 1.0], [0.0] * 6]), env.all_env_ids)
    # Turned to the left, (0, 0.7) is 0.7 forwards: errors 0.3 and 0.4 are 0.5; 1 - 0.2.
    set_command(env, [[0.4, 0.4, 0.2], [0.0, 0.0, -0.3]])
    _, _, metrics = env.compute_task_state()
    assert metrics["velocity_error_xy"].tolist() == pytest.approx([0.5, 0.0])
    assert metrics["velocity_error_yaw"].tolist() == pytest.approx([0.8, 0.3])


def test_success_is_of_the_mean_errors_of_the_episode() -> None:
    env = legs_env(2, {"extensions": {"max_velocity_error": 0.3, "max_yaw_rate_error": 0.4}})
    env.reset(seed=1)
    env.elapsed_steps = torch.tensor([10, 10])
    env._sums = torch.tensor([[2.9, 3.9], [2.9, 4.1]])
    assert env.compute_task_state()[0].tolist() == [True, False]
    env._sums = torch.tensor([[3.1, 0.0], [0.0, 0.0]])
    assert env.compute_task_state()[0].tolist() == [False, True]


def test_errors_are_summed_over_an_episode_and_begin_anew() -> None:
    env = legs_env(1, max_episode_steps=3)
    env.reset(seed=1)
    total = torch.zeros(())
    for _ in range(2):
        info = env.step(torch.zeros(1, 12))[4]
        total = total + info["metrics"]["velocity_error_xy"][0]
    torch.testing.assert_close(env._sums[0, 0], total)
    env.step(torch.zeros(1, 12))
    assert not env._sums.any()


def test_success_does_not_end_an_episode() -> None:
    still = {"func": "UniformVelocityCommand", "params": {"standing_share": 1.0}}
    env = legs_env(1, {"commands": {"base_velocity": still}}, max_episode_steps=10)
    env.reset(seed=1)
    ends = []
    for _ in range(10):
        _, _, terminated, truncated, info = env.step(torch.zeros(1, 12))
        ends.append((bool(terminated), bool(truncated)))
    assert info["success"].tolist() == [True]
    assert ends == [(False, False)] * 9 + [(False, True)]


def test_fall_ends_the_episode_and_is_counted() -> None:
    env = legs_env(2, {"terminations": FALLS})
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0] * 3, [1.5, 0.0, 0.0]])
    _, _, terminated, truncated, info = env.step(torch.zeros(2, 12))
    assert terminated.tolist() == [False, True]
    assert truncated.tolist() == [False, False]
    assert info["metrics"]["fall_rate"].tolist() == [False, True]
    assert info["success"].tolist() == [info["success"][0].item(), False]
    assert env.elapsed_steps.tolist() == [1, 0]


def test_penalty_for_a_fall_is_not_limited() -> None:
    rewards: dict[str, Any] = {
        "bad": {"func": "flat_orientation_l2", "weight": -100.0},
        "alive": {"func": "is_alive"},
        "fall": {"func": "is_terminated", "weight": -200.0},
    }
    data = {"rewards": rewards, "terminations": FALLS, "extensions": {"only_positive_rewards": True}}
    env = legs_env(2, data)
    env.reset(seed=1)
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0] * 3, [1.5, 0.0, 0.0]])
    _, reward, terminated, _, _ = env.step(torch.zeros(2, 12))
    assert terminated.tolist() == [False, True]
    assert float(reward[0]) == pytest.approx(1.0, abs=0.1)
    assert float(reward[1]) == -200.0  # the lean, which outweighs being alive, is limited to 0


def test_task_without_its_command_is_an_error() -> None:
    data = legs_data({"commands": {}, "observations": {"velocity": {"func": "base_lin_vel"}}})
    with pytest.raises(ConfigError, match=r"env.commands: unknown command 'base_velocity'. Known: none"):
        build_env("Go2FlatRL", base_env_cfg=config_to_cfg(data))


def test_packaged_config_is_the_shipped_one() -> None:
    shipped = {key: value for key, value in load_json(GO2_CONFIG).items() if key not in ("$schema", "id")}
    assert config_to_cfg(shipped | {"id": "Go2FlatRL"}) == default_cfg("go2_flat")()


@pytest.mark.parametrize("is_fixed", [True, False])
def test_base_that_hangs_fixed_is_warned_of(is_fixed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    legs_env(1, robot=GO2 | {"fix_base": is_fixed})
    assert ("robot.fix_base: is true, the default: the base hangs" in capsys.readouterr().err) == is_fixed
