from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl import OpenDrawerEnv
from embodichain.utils.utility import load_json
from tests.lab.scenes import env_of

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/open_drawer/gym_config.json"


@pytest.fixture
def env() -> OpenDrawerEnv:
    env = env_of(load_json(CONFIG), 2)
    assert isinstance(env, OpenDrawerEnv)
    env.reset(seed=1)
    return env


def test_drawer_open_far_enough_is_success(env: OpenDrawerEnv) -> None:
    env.cabinet.set_qpos(torch.tensor([[0.21], [0.19]]), joint_ids=[0], target=False)
    success, fail, metrics = env.compute_task_state()
    assert success.tolist() == [True, False]
    assert not fail.any()
    torch.testing.assert_close(metrics["opening"], torch.tensor([0.21, 0.19]))


def test_observation_has_the_drawer_and_the_way_to_its_handle(env: OpenDrawerEnv) -> None:
    env.cabinet.set_qpos(torch.tensor([[0.1], [0.0]]), joint_ids=[0], target=False)
    env.cabinet.set_qvel(torch.tensor([[0.05], [0.4]]), joint_ids=[0])
    obs = env.get_obs()["task", "drawer"]
    torch.testing.assert_close(obs[:, :2], torch.tensor([[0.1, 0.05], [0.0, 0.4]]))
    # The cabinet stands at (-0.95, -0.16); its bar is 0.07 before it, 0.48 up; the tool should be 0.03 below that.
    place = torch.tensor([[-0.78, -0.16, 0.45], [-0.88, -0.16, 0.45]])
    torch.testing.assert_close(obs[:, 2:], place - env.robot.get_eef_pose()[:, :3, 3], atol=1e-5, rtol=0)


def test_pulling_is_rewarded_and_a_tool_that_is_turned_costs(env: OpenDrawerEnv) -> None:
    down = torch.tensor([[0.0, -1.57, 1.57, -1.57, -1.57, 1.57], [0.0, -1.57, 1.57, -1.57, -1.57, 0.0]])
    env.robot.set_qpos(down, name="arm", target=False)
    # In a step of 0.04 s 0.002 m are 0.05 m/s, a quarter of the speed that is rewarded with 1; -0.016 m are -0.4 m/s.
    assert env.step_dt == pytest.approx(0.04)
    env.cabinet.set_qpos(torch.tensor([[0.002], [-0.016]]), joint_ids=[0], target=False)
    rewards = rewards_of_step(env)
    assert rewards["pull"].tolist() == pytest.approx([0.25, -2.0], rel=1e-4)
    # The fingers close along the world's x axis in the first environment, along y in the second.
    assert rewards["align"].tolist() == pytest.approx([0.0, -1.0], abs=2e-2)
    # 0.098 and 0.016 m: both faster than counts.
    env.cabinet.set_qpos(torch.tensor([[0.1], [0.0]]), joint_ids=[0], target=False)
    assert rewards_of_step(env)["pull"].tolist() == pytest.approx([1.0, 1.0])


def test_a_drawer_that_shakes_wins_nothing(env: OpenDrawerEnv) -> None:
    # Always fast outwards when a step ends, and always back where it was a step later.
    pulls = []
    for i in range(6):
        env.cabinet.set_qpos(torch.full((2, 1), 0.004 * (1 - i % 2)), joint_ids=[0], target=False)
        env.cabinet.set_qvel(torch.full((2, 1), 0.3), joint_ids=[0])
        pulls.append(rewards_of_step(env)["pull"])
    torch.testing.assert_close(torch.stack(pulls).sum(0), torch.zeros(2), atol=1e-4, rtol=0)


def test_what_the_episode_before_has_opened_is_not_closed_by_the_reset(env: OpenDrawerEnv) -> None:
    env.cabinet.set_qpos(torch.full((2, 1), 0.1), joint_ids=[0], target=False)
    rewards_of_step(env)
    env.reset(seed=2)
    assert rewards_of_step(env)["pull"].tolist() == pytest.approx([0.0, 0.0], abs=1e-4)


def rewards_of_step(env: OpenDrawerEnv) -> dict[str, torch.Tensor]:
    """Return the reward's terms as after a step in which the physics has made what is there now."""
    env._update_sim_state()
    info = env.get_info()
    env.get_reward(env.get_obs(), torch.zeros(2, 6), info)
    rewards: dict[str, torch.Tensor] = info["rewards"]
    return rewards


def test_fingers_that_are_pulled_behind_the_bar_open_the_drawer(env: OpenDrawerEnv) -> None:
    down = torch.tensor([[-1.0, 0, 0], [0, 1, 0], [0, 0, -1]])
    for above, steps in ((0.12, 25), (0.0, 20), (0.1, 40)):
        for _ in range(steps):
            pose = env.robot.get_eef_pose().clone()
            pose[:, :3, :3] = down
            away = torch.tensor([above, 0.0, 0.0]) if steps == 40 else torch.tensor([0.0, 0.0, above])
            pose[:, :3, 3] += (env.to_handle() + away).clamp(-0.03, 0.03)
            _, qpos = env.robot.compute_ik(pose)
            *_, info = env.step((qpos - env.robot.get_qpos("arm")) / 0.1)
            if info["success"].any():
                return
    pytest.fail(f"the drawer is open by {env.opening().tolist()} m")
