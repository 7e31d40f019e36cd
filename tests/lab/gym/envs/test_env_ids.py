"""Environments that are divided over processes see the episodes that they see together. Shapes: N = 8 in two halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.configclass import replace
from embodichain.utils.utility import load_json

CONFIGS = Path(__file__).resolve().parents[4] / "configs/agents/rl"


def make(name: str, num_envs: int, **changes: Any) -> EmbodiedEnv:
    data = load_json(CONFIGS / name / "gym_config.json")
    cfg = replace(config_to_cfg(data), num_envs=num_envs, max_episode_steps=3, **changes)
    return build_env(data["id"], cfg)


def flat(obs: TensorDict) -> dict[Any, torch.Tensor]:
    entries: Any = obs.flatten_keys("/").items()
    return dict(entries)


@pytest.mark.e2e
@pytest.mark.parametrize("group_size", [1, 2])
@pytest.mark.parametrize("name", ["push_cube", "basic/cart_pole", "open_drawer", "reach"])
def test_halves_see_what_the_whole_sees_bit_for_bit(name: str, group_size: int) -> None:
    whole = make(name, 8, group_size=group_size)
    halves = [make(name, 4, group_size=group_size, first_env_id=first) for first in (0, 4)]
    envs = [whole, *halves]
    generator = torch.Generator().manual_seed(0)
    seen = [env.reset()[0] for env in envs]
    for _ in range(7):  # two time limits, so that there are three episodes
        first, second = flat(seen[1]), flat(seen[2])
        for key, value in flat(seen[0]).items():
            assert torch.equal(value, torch.cat((first[key], second[key]))), key
        action = 2 * torch.rand(8, whole.single_action_space.shape[0], generator=generator) - 1
        results: list[Any] = [env.step(part) for env, part in zip(envs, (action, action[:4], action[4:]), strict=True)]
        seen = [result[0] for result in results]
        for i in (1, 2, 3):
            assert torch.equal(results[0][i], torch.cat([results[1][i], results[2][i]]))
    for env in envs:
        env.close()


@pytest.mark.e2e
def test_shared_evaluation_is_the_same_set_of_episodes() -> None:
    def first_episodes(num_envs: int, share: tuple[int, int] | None) -> torch.Tensor:
        env = make("push_cube", num_envs)
        options = {"enumerate_episodes": True} | ({} if share is None else {"share": share})
        rows = [env.reset(seed=9, options=options)[0]["object", "cube_pos"]]
        if num_envs == 2:
            rows.append(env.reset()[0]["object", "cube_pos"])  # each environment's next episode
        env.close()
        return torch.cat(rows)

    whole = first_episodes(8, None)
    for rank in (0, 1):
        # Two environments of two processes: episodes r, r + 2, then r + 4, r + 6.
        assert torch.equal(first_episodes(2, (rank, 2)), whole[rank::2])
