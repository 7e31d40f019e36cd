"""Legend: N envs."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from embodichain.ext.gymnasium.cfg import GymnasiumEnvCfg
from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv
from embodichain.ext.gymnasium.spaces import InfoReader, columns_of, numbers_of
from tests.ext.gymnasium.scripted import registered


def test_numbers_in_an_info_are_found_at_any_depth() -> None:
    info = {"distance": np.float64(0.5), "near": np.bool_(True), "steps": 3, "array": np.array([2.0]), "name": "x"}
    info |= {"reward_terms": {"reach": torch.tensor(0.25), "deep": {"a": 1}}, "pose": np.zeros(3), "none": None}
    assert numbers_of(info) == {
        **{"distance": 0.5, "near": True, "steps": 3.0, "array": 2.0},
        **{"reward_terms/reach": 0.25, "reward_terms/deep/a": 1.0},
    }


class _Informed(gym.Env[Any, Any]):
    """Environment n has a distance of 10 n + t, a reward term of t, and after its third step a late number."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {"at_reset": 1.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        info: dict[str, Any] = {"distance": 10.0 * action[0] + self.t, "near": action[0] > 0.5}
        info["reward_terms"] = {"reach": self.t}
        return np.zeros(1, np.float32), 1.0, False, False, info | ({"late": self.t} if self.t > 2 else {})


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_each_environments_numbers_are_metrics_and_rewards(vectorization: Any) -> None:
    with registered("Informed-v0", _Informed):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Informed-v0", num_envs=2, vectorization=vectorization))
        env.reset(seed=1)
        action = torch.tensor([[0.0], [1.0]])
        infos = [env.step(action)[4] for _ in range(3)]
        env.reset(seed=1)
        infos.append(env.step(action)[4])
        env.close()
    assert infos[1]["metrics"]["distance"].tolist() == [2.0, 12.0]
    assert infos[1]["metrics"]["near"].tolist() == [False, True]
    assert infos[1]["rewards"]["reach"].tolist() == [2.0, 2.0]
    # A name that comes later joins with the next rollout or evaluation.
    assert [sorted(info["metrics"]) for info in infos] == [["distance", "near"]] * 3 + [["distance", "late", "near"]]
    assert infos[3]["metrics"]["late"].tolist() == [4.0, 4.0]


def test_missing_numbers_are_nan_missing_rewards_zero() -> None:
    reader = InfoReader(2)
    first = reader.read(columns_of([{"m": 3.0, "rewards/r": 5.0, "flag": True}, {}]))
    second = reader.read({})
    assert first["metrics"]["m"].tolist() == pytest.approx([3.0, math.nan], nan_ok=True)
    assert first["metrics"]["flag"].tolist() == [True, False]
    assert second["metrics"]["m"].isnan().all()
    assert (first["rewards"]["r"].tolist(), second["rewards"]["r"].tolist()) == ([5.0, 0.0], [0.0, 0.0])
    assert not reader.knows_success
