"""Actions that reach the drives late, by hand. Shapes: N = 2 environments; the cart, whose initial position is -0.2."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.state import freeze, thaw
from tests.lab.scenes import cart_cfg
from tests.lab.warp_scenes import CART, env_on, needs_warp

LIMIT = 4  # steps of an episode


def term(**params: Any) -> dict[str, Any]:
    return {"move": {"func": "JointPositionTerm", "params": {"scale": 0.5, **params}}}


def env_with(num_envs: int = 2, first: int = 0, **params: Any) -> EmbodiedEnv:
    cfg = cart_cfg(num_envs, {"actions": term(**params)}, max_episode_steps=LIMIT)
    return EmbodiedEnv(replace(cfg, first_env_id=first))


def targets(env: EmbodiedEnv, actions: list[float]) -> list[float]:
    """Return the cart's target in environment 0 at each of the steps with these actions."""
    seen = []
    for action in actions:
        env.action_manager.apply_action(torch.full((env.num_envs, 1), action))
        seen.append(round(env.robot.get_qpos_target("arm")[0].item(), 5))
    return seen


def test_delayed_actions_arrive_in_their_order_after_the_initial_position() -> None:
    env = env_with(delay=[2, 2])
    env.reset(seed=1)
    assert targets(env, [1.0, 2.0, 3.0, 4.0]) == [-0.2, -0.2, 0.3, 0.8]
    env.reset(options={"reset_ids": [0]})
    assert targets(env, [5.0, 6.0, 7.0]) == [-0.2, -0.2, 2.3]  # nothing of the last episode


def test_delay_is_drawn_for_each_episode_and_environment() -> None:
    env = env_with(40, delay=[0, 2])
    lags = []
    for seed in (1, 2):
        env.reset(seed=seed)
        for action in (1.0, 2.0, 3.0):
            env.action_manager.apply_action(torch.full((40, 1), action))
        # target = -0.2 + 0.5 (3 - lag)
        lags.append((3 - (env.robot.get_qpos_target("arm")[:, 0] + 0.2) / 0.5).round())
    assert [lag.unique().tolist() for lag in lags] == [[0, 1, 2]] * 2
    assert not torch.equal(*lags)


def moved(env: EmbodiedEnv, actions: Tensor) -> list[Tensor]:
    return [env.step(action)[0]["robot", "qpos"].clone() for action in actions]


def actions_of(steps: int, num_envs: int) -> Tensor:
    return torch.rand(steps, num_envs, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_chunk_of_delayed_actions_is_its_control_steps() -> None:
    env, single = env_with(3, delay=[0, 2]), [env_with(1, i, delay=[0, 2]) for i in range(3)]
    for each in (env, *single):
        each.reset(seed=3)
        each.elapsed_steps += torch.arange(each.num_envs) + each.cfg.first_env_id
    for chunk in actions_of(12, 3).unflatten(0, (4, 3)).transpose(1, 2):
        obs, *_, info = env.step_chunk(chunk)
        for i, one in enumerate(single):
            for h in range(int(info["executed"][i].sum())):
                alone = one.step(chunk[i : i + 1, h])[0]
            assert torch.equal(obs["robot", "qpos"][i], alone["robot", "qpos"][0])


def test_checkpoint_with_actions_on_their_way_continues_to_the_bit() -> None:
    env, other = env_with(6, delay=[0, 3]), env_with(6, delay=[0, 3])
    env.reset(seed=3)
    env.elapsed_steps += torch.arange(6) % LIMIT
    actions = actions_of(12, 6)
    moved(env, actions[:5])
    other.load_state_dict(thaw(freeze(env.state_dict())))
    for one, two in zip(moved(env, actions[5:]), moved(other, actions[5:]), strict=True):
        assert torch.equal(one, two)


@needs_warp
def test_delays_are_right_where_environments_are_chosen_by_mask() -> None:
    seen: list[list[Tensor]] = []
    for engine in ("warp", "batch"):
        env = env_on(engine, CART, 4, env={"actions": term(delay=[0, 2])}, max_episode_steps=LIMIT)
        env.reset(seed=3)
        env.elapsed_steps += torch.tensor([0, 1, 2, 2])
        seen.append([])
        for action in actions_of(2 * LIMIT, 4):
            env.step(action)
            seen[-1].append(env.robot.get_qpos_target("arm").clone())
        env.close()
    for one, two in zip(*seen, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


def test_delay_below_zero_or_upside_down_is_one_line() -> None:
    for delay, message in (([-1, 0], "greater than or equal to 0"), ([2, 1], r"must be \[lowest, highest\]")):
        with pytest.raises(ConfigError, match=rf"env\.actions\.move\.params\.delay.*{message}"):
            env_with(delay=delay)
