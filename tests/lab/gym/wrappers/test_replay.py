"""Shapes: N environments, T steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.record import Trajectory
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.gym.wrappers import ReplayEnv
from embodichain.utils import ConfigError
from embodichain.utils.observations import flatten_dict_observation
from tests.lab.scenes import BOX, actions_for, cart_cfg


def make(folder: Path, num_envs: int = 3, events: dict[str, Any] | None = None, **record: Any) -> CartPoleEnv:
    start = {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.1], [1, 0.1]]}}
    position = [[-0.1, -0.1, 0.0], [0.1, 0.1, 0.0]]
    push = {"entity_cfg": {"uid": "box"}, "position_range": position}
    record = {"mode": "interval", "interval_step": 1, "params": {"save_path": folder.name, "max_env_num": 2}} | record
    all_events = {
        "start": start,
        "push": {"func": "randomize_rigid_object_pose", "mode": "interval", "interval_step": 3, "params": push},
        "record": {"func": "record_trajectory"} | record,
    } | (events or {})
    env = CartPoleEnv(cart_cfg(num_envs, {"events": all_events}, rigid_object=[BOX], max_episode_steps=7))
    env.write_into(folder.parent)
    return env


def observe(env: EmbodiedEnv, obs: Any) -> torch.Tensor:
    return torch.cat((flatten_dict_observation(obs), env.sim.backend.qpos), dim=1)


def test_recorded_episode_is_played_again_bit_for_bit(tmp_path: Path) -> None:
    env = make(tmp_path)
    obs, _ = env.reset(seed=8)
    seen, rewards = [observe(env, obs)[1]], []
    for action in actions_for(env, 17):
        obs, reward, *_ = env.step(action)
        if len(seen) < 17:
            seen.append(observe(env, obs)[1])
        rewards.append(reward[1])
    # episodes of 7 steps: the second one of environment 1 is steps 7 to 13
    path = tmp_path / "env1_episode3.npz"
    replay = ReplayEnv(make(tmp_path / "other"), path)
    assert replay.num_steps == 7
    for _ in range(2):  # as often as one likes
        obs, _ = replay.reset()
        assert torch.equal(observe(replay.env, obs)[1], seen[7])
        for k in range(7):
            obs, reward, _, truncated, _ = replay.step()
            assert torch.equal(reward[1], rewards[7 + k])
            if k < 6:
                assert torch.equal(observe(replay.env, obs)[1], seen[8 + k])
                assert np.array_equal(replay.env.sim.backend.qpos[1].numpy(), replay.trajectory.qpos[k + 1])
        assert truncated[1]
        with pytest.raises(RuntimeError, match="episode of 7 steps is over"):
            replay.step()


def test_only_the_first_environments_are_written(tmp_path: Path) -> None:
    env = make(tmp_path)
    env.reset(seed=8)
    for action in actions_for(env, 14):
        env.step(action)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"env{i % 2}_episode{i}.npz" for i in (0, 2, 1, 3)]
    trajectory = Trajectory.load(tmp_path / "env0_episode2.npz")
    assert (trajectory.action.shape, trajectory.qpos.shape[0]) == ((7, 1), 8)
    assert (trajectory.seed, trajectory.stream_id, trajectory.episode, trajectory.tick) == (8, 0, 1, 7)


def test_replay_of_another_environment_is_refused(tmp_path: Path) -> None:
    env = make(tmp_path)
    env.reset(seed=8)
    for action in actions_for(env, 7):
        env.step(action)
    with pytest.raises(ValueError, match=r"is of environment 1: 2 are needed, got 1"):
        ReplayEnv(make(tmp_path / "other", num_envs=1), tmp_path / "env1_episode1.npz")
    np.savez(tmp_path / "x.npz", action=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="is not a trajectory: it has no qpos, seed"):
        ReplayEnv(env, tmp_path / "x.npz")


def test_recording_needs_every_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interval_step 1 is needed, got 'interval' with 2"):
        make(tmp_path, interval_step=2)


def test_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    env = make(tmp_path / "file" / "folder")
    env.reset(seed=8)
    for action in actions_for(env, 7):
        env.step(action)
    assert "could not be written" in capsys.readouterr().err
