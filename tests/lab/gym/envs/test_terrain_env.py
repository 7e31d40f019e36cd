"""Environments on a terrain. Shapes: N environments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.objects import Terrain
from embodichain.utils.rows import Snapshot
from embodichain.utils.state import freeze, thaw
from tests.lab.scenes import actions_for, state
from tests.lab.terrain_scenes import ball_env
from tests.lab.warp_scenes import needs_warp

START = torch.tensor([0.0, 0.1, 0.2])


def terrain_of(env: EmbodiedEnv) -> Terrain:
    assert env.sim.terrain is not None
    return env.sim.terrain


def position(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_local_pose()[:, :3]


@pytest.fixture
def env(tmp_path: Path) -> EmbodiedEnv:
    return ball_env(tmp_path)


def test_robots_start_on_the_platforms_of_their_cells(env: EmbodiedEnv) -> None:
    env.reset()
    terrain = terrain_of(env)
    assert len(terrain.levels.unique()) > 1
    torch.testing.assert_close(position(env), terrain.env_origins + START)
    for _ in range(40):
        env.step(torch.zeros(8, 1))
    height = position(env)[:, 2] - terrain.height_at(position(env)[:, :2])
    torch.testing.assert_close(height, torch.full((8,), 0.1), atol=2e-3, rtol=0.0)  # the ball's radius


def test_a_reset_moves_only_its_environments_and_no_other(env: EmbodiedEnv) -> None:
    env.reset()
    terrain = terrain_of(env)
    pose = env.robot.get_local_pose().clone()
    pose[:, 0] += torch.arange(8.0) / 10
    env.robot.set_local_pose(pose, env.all_env_ids)
    terrain.levels = terrain.levels * 0 + 1  # as a curriculum does: the next episodes begin there
    before = position(env).clone()
    env.reset(options={"reset_ids": [5]})
    torch.testing.assert_close(position(env)[5], terrain.origins[1, terrain.columns[5]] + START)
    others = [0, 1, 2, 3, 4, 6, 7]
    torch.testing.assert_close(position(env)[others], before[others], rtol=0.0, atol=0.0)


def test_distance_walked_is_from_the_start_of_the_episode(env: EmbodiedEnv) -> None:
    env.reset()
    assert not terrain_of(env).distance_walked(env.robot.base).any()
    pose = env.robot.get_local_pose().clone()
    pose[3, 0] += 3.0
    pose[3, 1] -= 4.0
    env.robot.set_local_pose(pose, env.all_env_ids)
    walked = terrain_of(env).distance_walked(env.robot.base)
    assert walked[3] == pytest.approx(5.0, rel=1e-5)
    assert not walked[[0, 1, 2, 4, 5, 6, 7]].any()


def test_start_cells_depend_on_the_seed_not_on_num_envs(tmp_path: Path) -> None:
    small, large = ball_env(tmp_path, num_envs=3), ball_env(tmp_path, num_envs=6)
    for env in (small, large):
        env.reset(seed=5)
    torch.testing.assert_close(position(small), position(large)[:3], rtol=0.0, atol=0.0)
    first = terrain_of(large).levels.clone()
    terrain_of(large).levels = torch.zeros_like(first)
    large.reset(seed=5)
    assert terrain_of(large).levels.tolist() == first.tolist()


def test_cells_of_an_evaluation_do_not_depend_on_num_envs(tmp_path: Path) -> None:
    options = {"enumerate_episodes": True}
    one, three = ball_env(tmp_path, num_envs=1), ball_env(tmp_path, num_envs=3)
    three.reset(seed=5, options=options)
    starts = []
    one.reset(seed=5, options=options)
    for _ in range(3):
        starts.append(position(one)[0].clone())
        one.reset(options={"reset_ids": [0]})
    torch.testing.assert_close(torch.stack(starts), position(three), rtol=0.0, atol=0.0)


def test_a_resumed_environment_continues_bit_for_bit(tmp_path: Path) -> None:
    env, other = ball_env(tmp_path, max_episode_steps=4), ball_env(tmp_path, max_episode_steps=4)
    env.reset()
    actions = actions_for(env, 12)
    terrain_of(env).levels = (terrain_of(env).levels + 1) % 3  # as a curriculum had moved them
    for action in actions[:6]:
        env.step(action)
    other.load_state_dict(thaw(freeze(env.state_dict())))
    other._has_begun = True
    for action in actions[6:]:
        env.step(action)
        other.step(action)
    assert torch.equal(state(env), state(other))
    assert torch.equal(terrain_of(env).levels, terrain_of(other).levels)


def test_levels_are_rows_that_a_chosen_reset_restores(env: EmbodiedEnv) -> None:
    terrain = terrain_of(env)
    assert terrain in env._stateful()
    terrain.levels = torch.arange(8) % 3
    before = Snapshot(vars(terrain), of_rows=8)
    terrain.levels = torch.zeros(8, dtype=torch.int64)
    before.with_rows_of(vars(terrain), torch.arange(8) == 1, {})
    assert terrain.levels.tolist() == [0, 0, 2, 0, 1, 2, 0, 1]


def test_other_processes_have_other_columns(env: EmbodiedEnv) -> None:
    env.number_envs(first_env_id=3, group_size=1)
    assert terrain_of(env).columns.tolist() == [(3 + i) % 2 for i in range(8)]


@needs_warp
def test_warp_walks_the_same_ground(tmp_path: Path) -> None:
    sim_cfg = {"sim_cfg": {"sim_device": "warp:cpu", "physics_dt": 0.01}}
    warp, batch = ball_env(tmp_path, sim_cfg, num_envs=4), ball_env(tmp_path, num_envs=4)
    for env in (warp, batch):
        env.reset()
        for _ in range(30):
            env.step(torch.zeros(4, 1))
    assert terrain_of(warp).levels.tolist() == terrain_of(batch).levels.tolist()
    # The engines' solvers differ by tenths of a millimetre.
    torch.testing.assert_close(position(warp), position(batch), atol=1e-3, rtol=0.0)
    with warp.choose(torch.tensor([False, True, False, False])) as ids:
        terrain_of(warp).move(ids, torch.ones(4).bool(), torch.zeros(4).bool(), torch.zeros(4))
        warp._reset_episodes(ids)
    levels = terrain_of(batch).levels.tolist()
    expected = [(level + 1) % 3 if i == 1 else level for i, level in enumerate(levels)]
    assert terrain_of(warp).levels.tolist() == expected
