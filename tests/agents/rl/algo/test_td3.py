"""TD3's targets, losses and gradients by hand, with linear networks: Q = w_s s + w_a a, mu = tanh(m s)."""

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import TD3, TD3Cfg
from embodichain.agents.rl.models import DeterministicActorCritic, build_policy
from embodichain.agents.rl.models.squash import LinearScale
from embodichain.utils import ConfigError
from tests.agents.rl.algo.linear_sac import (
    UNIT,
    Row,
    SameBatch,
    check_continues,
    linear,
    make_batch,
    make_rollout,
    make_sac,
    weight_of,
)
from tests.agents.rl.algo.test_sac_formulas import Quadratic, one_step_rollout
from tests.agents.rl.fakes import NETWORK

M = 0.3


def make_td3(critics: tuple[Row, ...] = ((0.5, 3.0), (9.0, 1.0)), space: spaces.Box = UNIT, **settings: Any) -> TD3:
    """Return TD3 with gamma 0.5, networks that hardly move and no noise in the targets."""
    networks: list[nn.Module] = [linear([row]) for row in critics]
    policy = DeterministicActorCritic(1, 1, "cpu", linear([[M]]), networks, LinearScale(space), False)
    default = {"gamma": 0.5, "learning_rate": 1e-30, "learning_starts": 0, "replay_capacity": 100, "batch_size": 1}
    return TD3(TD3Cfg(**{**default, "policy_delay": 1, "target_noise": 0.0, **settings}), policy)


def update(td3: TD3, **batch: Row) -> dict[str, float]:
    td3.replay = SameBatch(make_batch(**batch))  # type: ignore[assignment]
    torch.manual_seed(0)
    return td3.update(make_rollout())


@pytest.mark.parametrize(
    ("noise", "clip"),
    [
        (0.0, 0.5),
        (0.2, 0.5),  # 0.31 is not clipped
        (0.2, 0.1),
        (9.0, 9.0),  # the action is clipped to its bound
    ],
)
def test_target_is_of_the_smoothed_target_action(noise: float, clip: float) -> None:
    td3 = make_td3(target_noise=noise, target_noise_clip=clip)
    weight_of(td3.target_actor).data = torch.tensor([[0.1]])
    rollout = make_rollout()
    torch.manual_seed(0)
    drawn = torch.randn(1, 1).item()  # 1.54
    torch.manual_seed(0)
    td3.replay = SameBatch(make_batch())  # type: ignore[assignment]
    metrics = td3.update(rollout)
    # s' = 3; Q(s, a) = 0.5 + 3 * 0.5 = 2 and 9 + 0.5 = 9.5 at s = 1, a = 0.5
    action = min(math.tanh(0.1 * 3) + min(noise * drawn, clip), 1.0)
    target = 2 + 0.5 * min(0.5 * 3 + 3 * action, 9 * 3 + action)
    assert metrics["critic_loss"] == pytest.approx((2 - target) ** 2 + (9.5 - target) ** 2, rel=1e-5)


def test_gradient_of_the_deterministic_actor_by_hand() -> None:
    td3 = make_td3()
    metrics = update(td3)
    # Q = 0.5 + 3 a is the lower one; d(-Q)/dm = -3 (1 - a^2) s
    action = math.tanh(M)
    assert metrics["actor_loss"] == pytest.approx(-(0.5 + 3 * action))
    grad = weight_of(td3.policy.actor).grad
    assert grad is not None
    assert grad.item() == pytest.approx(-3 * (1 - action**2))
    assert set(metrics) == {"replay_steps", "critic_loss", "action_value", "grad_norm", "actor_loss", "actor_grad_norm"}


def test_actor_and_targets_move_once_per_policy_delay() -> None:
    td3 = make_td3(critics=((1.0, 2.0),), policy_delay=2, tau=0.25)
    for network in (td3.target_critics, td3.target_actor):
        weight_of(network).data.zero_()
    assert "actor_loss" not in update(td3)
    assert weight_of(td3.target_critics).tolist() == [[0.0, 0.0]]
    assert "actor_loss" in update(td3)
    assert weight_of(td3.target_critics).tolist() == [[0.25, 0.5]]
    assert weight_of(td3.target_actor).item() == pytest.approx(0.25 * M)


def test_actions_are_uniform_before_training_and_noisy_after() -> None:
    space = spaces.Box(-1.0, 3.0, (1,))  # 1 + 2 a
    td3, obs = make_td3(space=space), TensorDict({"obs": torch.ones(4000, 1)}, [4000])
    torch.manual_seed(0)
    explored = td3.policy.get_action(obs)["action"]
    # The mean and std of uniform numbers from -1 to 3 are 1 and 4 / sqrt(12) = 1.155.
    assert (explored.mean().item(), explored.std().item()) == pytest.approx((1.0, 1.155), abs=0.05)
    update(td3)
    explored = td3.policy.get_action(obs)["action"]
    mean = 1 + 2 * math.tanh(M)
    assert (explored.mean().item(), explored.std().item()) == pytest.approx((mean, 0.2), abs=0.01)
    chosen = td3.policy.get_action(obs, deterministic=True)["action"]
    torch.testing.assert_close(chosen, torch.full_like(chosen, mean))
    weight_of(td3.policy.actor).data.fill_(9.0)
    explored = td3.policy.get_action(obs)["action"]
    assert explored.max().item() == 3.0  # clipped
    assert explored.min().item() > 1.5


@pytest.mark.learning
def test_td3_finds_the_best_action_of_each_state() -> None:
    torch.manual_seed(0)
    policy = DeterministicActorCritic(
        1, 1, "cpu", nn.Linear(1, 1), [Quadratic(), Quadratic()], LinearScale(UNIT), False, exploration_std=0.3
    )
    settings: dict[str, Any] = {"learning_starts": 0, "replay_capacity": 8192, "batch_size": 256}
    td3 = TD3(TD3Cfg(**settings, learning_rate=0.01, updates_per_step=0.125), policy)
    for _ in range(25):
        s = torch.rand(128) * 2 - 1
        a = policy.get_action(TensorDict({"obs": s.unsqueeze(1)}, [128]))["action"].squeeze(1)
        td3.update(one_step_rollout(s, a, -(a - 0.5 * s).square()))
    chosen = policy.get_action(TensorDict({"obs": torch.tensor([[-0.5], [0.0], [0.5]])}, [3]), deterministic=True)
    assert chosen["action"].squeeze(1).tolist() == pytest.approx([-0.25, 0.0, 0.25], abs=0.05)


def test_loaded_state_of_td3_continues_to_the_last_bit() -> None:
    settings: dict[str, Any] = {"learning_rate": 0.01, "updates_per_step": 0.375, "policy_delay": 2, "batch_size": 8}
    settings |= {"n_steps": 2, "target_noise": 0.2}
    ours, theirs = make_td3(**settings), make_td3(**settings, critics=((0.0, 0.0), (1.0, 1.0)))
    check_continues(ours, theirs)
    assert theirs.policy.is_trained


def test_sac_and_td3_refuse_each_others_policy() -> None:
    td3, sac = make_td3(), make_sac()
    with pytest.raises(ConfigError, match=r"SAC reads entropy .*, and DeterministicActorCritic returns nothing"):
        type(sac)(sac.cfg, td3.policy)
    with pytest.raises(ConfigError, match="TD3 improves policies of class DeterministicActorCritic"):
        TD3(td3.cfg, sac.policy)


def test_deterministic_actor_critic_is_built_from_its_block() -> None:
    block = {"name": "deterministic_actor_critic", "actor": NETWORK, "critic": NETWORK, "exploration_std": 0.25}
    policy = build_policy(block, 3, spaces.Box(-1, 1, (2,)), "cpu")
    assert isinstance(policy, DeterministicActorCritic)
    assert policy.choose(TensorDict({"obs": torch.zeros(5, 3)}, [5])).shape == (5, 2)
    assert math.exp(policy.init_log_std) == pytest.approx(0.25)
    with pytest.raises(ConfigError, match=r"policy\.name: deterministic_actor_critic: needs .*finite bounds"):
        build_policy(block, 3, spaces.Box(-math.inf, math.inf, (2,)), "cpu")


@pytest.mark.parametrize("setting", [{"init_log_std": -1.0}, {"log_std_range": [-1, 1]}, {"slope_floor": 1e-6}])
def test_settings_of_a_density_are_refused(setting: dict[str, Any]) -> None:
    block = {"name": "deterministic_actor_critic", "actor": NETWORK, "critic": NETWORK}
    with pytest.raises(
        ConfigError, match=rf"^policy\.{next(iter(setting))}: has no effect on actions without a density"
    ):
        build_policy(block | setting, 3, spaces.Box(-1, 1, (2,)), "cpu")
