"""Legend: N = 3 environments, T = 4 steps."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.collector.step_info import StepInfo
from embodichain.agents.rl.nan_guard.guard import WINDOW, find_divergences


def diverged(*envs: int, qpos: float = 0.0) -> dict[str, Any]:
    flags = torch.zeros(3, dtype=torch.bool)
    flags[list(envs)] = True
    return {"diverged": flags, "state_before": {"qpos": torch.full((3, 2), qpos)}}


def collected(*infos: dict[str, Any], rollout: TensorDict | None = None) -> TensorDict:
    rollout = allocate_rollout(3, 4, 1, 1, "cpu") if rollout is None else rollout
    said = StepInfo(rollout)
    for t, info in enumerate(infos):
        said.write(t, info)
    said.finish()
    return rollout


def test_divergences_are_counted_and_the_last_of_each_environment_is_kept() -> None:
    rollout = collected(diverged(2, qpos=1.0), {}, diverged(0, 2, qpos=3.0), diverged())
    rollout["obs"][:] = torch.arange(5.0).unsqueeze(-1) + 10 * torch.arange(3.0).reshape(3, 1, 1)  # 10 n + t
    count, record = find_divergences(rollout)
    assert count == 3
    assert record["env_ids"].tolist() == [0, 2]
    assert record["count"].tolist() == [1, 2]
    assert record["slot"].tolist() == [2, 2]
    assert record["qpos"].tolist() == [[3, 3], [3, 3]]
    assert record["window"].tolist() == [3, 3]
    zeros = [0.0] * (WINDOW - 3)
    assert record["obs"].squeeze(-1).tolist() == [[*zeros, 0, 1, 2], [*zeros, 20, 21, 22]]


def test_next_rollout_in_the_same_storage_begins_anew() -> None:
    rollout = collected({}, diverged(1))
    assert find_divergences(rollout)[0] == 1
    assert find_divergences(collected({}, {}, rollout=rollout)) == (0, {})
    assert find_divergences(collected(diverged(1), rollout=rollout))[1]["slot"].tolist() == [0]


def test_flags_without_a_divergence_are_none() -> None:
    """As an engine gives them that does not know without waiting."""
    assert find_divergences(collected(diverged())) == (0, {})
