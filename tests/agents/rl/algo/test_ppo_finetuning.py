"""PPO beginning with a good policy: the divergence from it, and updates of the critic alone."""

import copy
import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import PPO, PPOCfg
from embodichain.agents.rl.algo.symmetry import SymmetryCfg
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import ActorCritic, ActorCriticRecurrent
from embodichain.utils.observations import Mirror, MirrorMap
from tests.agents.rl.algo.test_ppo import FixedPolicy, make_policy, make_rollout
from tests.agents.rl.fakes import ScriptedEnv


def actor_state(policy: ActorCritic) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state_dict().items() if not name.startswith("critic")}


def is_same(state: dict[str, torch.Tensor], policy: ActorCritic) -> bool:
    return all(torch.equal(value, policy.state_dict()[name]) for name, value in state.items())


def policy_of(algo: PPO) -> ActorCritic:
    assert isinstance(algo.policy, ActorCritic)
    return algo.policy


def table_batch(**more: torch.Tensor) -> tuple[FixedPolicy, TensorDict]:
    policy = FixedPolicy(
        log_prob=torch.tensor([2.0, 1.0]).log(), value=torch.tensor([1.0, 2.0]), entropy=torch.tensor([0.5, 1.5])
    )
    columns = {
        "sample_log_prob": torch.zeros(2),
        "advantage": torch.zeros(2),
        "return": torch.tensor([0.0, 4.0]),
        "reference_log_prob": torch.tensor([6.0, 1.0]).log(),
    }
    return policy, TensorDict(columns | more, batch_size=[2])


def test_divergence_from_the_reference_by_hand() -> None:
    policy, batch = table_batch()
    loss, metrics = PPO(PPOCfg(kl_coef=0.4, vf_coef=0.5), policy).loss(batch)
    # pi/old = 2 and ref/pi = 3: 2 (3 - 1 - log 3); nothing from the second
    assert metrics["reference_kl"].item() == pytest.approx(2 - math.log(3))
    assert loss.item() == pytest.approx(0.5 * 1.25 + 0.4 * (2 - math.log(3)))


def test_divergence_of_older_samples_is_weighted() -> None:
    policy, batch = table_batch(importance_weight=torch.tensor([0.5, 3.0]))
    _, metrics = PPO(PPOCfg(kl_coef=0.4), policy).loss(batch)
    assert metrics["reference_kl"].item() == pytest.approx(0.5 * (2 - math.log(3)))


def test_divergence_is_that_of_the_collected_samples() -> None:
    policy = make_policy()
    rollout = make_rollout(policy)[:1, :2].expand(2, -1).clone()  # both halves have the same sample
    found = []
    for symmetry in (None, SymmetryCfg()):
        algo = PPO(PPOCfg(kl_coef=1.0, learning_rate=1e-30, symmetry=symmetry), copy.deepcopy(policy))
        with torch.no_grad():
            policy_of(algo).log_std.add_(0.1)
        if symmetry is not None:
            algo.use_mirror_map(MirrorMap(Mirror.of([0, 1], [1, -1], "test"), Mirror.of([0], [-1], "test")))
        found.append(algo.update(rollout)["reference_kl"])
    assert found[0] == pytest.approx(found[1]) != 0


def test_warm_up_changes_the_critic_alone() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2, learning_rate=0.01, ent_coef=0.1, kl_coef=0.1), policy)
    for _ in range(2):
        before, critic = actor_state(policy), copy.deepcopy(policy.critic.state_dict())
        metrics = algo.update(make_rollout(policy))
        assert is_same(before, policy)
        assert not any(torch.equal(value, critic[name]) for name, value in policy.critic.state_dict().items())
        assert metrics["approx_kl"] == pytest.approx(0, abs=1e-9)
    algo.update(make_rollout(policy))
    assert not is_same(before, policy)


def test_adaptive_rate_waits_for_the_end_of_the_warm_up() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2, lr_schedule="adaptive", learning_rate=3e-4), policy)
    rates = [algo.update(make_rollout(policy))["learning_rate"] for _ in range(3)]
    assert rates[:2] == pytest.approx([3e-4, 3e-4])
    assert rates[2] != pytest.approx(3e-4)


def test_warm_up_trains_no_layer_that_actor_and_critic_share() -> None:
    torch.manual_seed(0)
    memory, actor, critic = nn.GRUCell(2, 4), nn.Linear(6, 1), nn.Linear(6, 1)
    policy = ActorCriticRecurrent(2, 1, "cpu", memory, actor, critic)
    algo = PPO(PPOCfg(critic_warmup=1, learning_rate=0.01), policy)
    collector = SyncCollector(ScriptedEnv(2), policy, "cpu")
    before = copy.deepcopy(policy.state_dict())
    algo.update(collector.collect(6))
    changed = {name for name, value in policy.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"critic.weight", "critic.bias"}
    algo.update(collector.collect(6))
    assert not torch.equal(memory.weight_ih, before["memory.weight_ih"])  # trained again


def test_warm_up_continues_where_a_checkpoint_left_it() -> None:
    policy = make_policy()
    algo = PPO(PPOCfg(critic_warmup=2), policy)
    algo.update(make_rollout(policy))
    other = PPO(PPOCfg(critic_warmup=2), policy)
    other.load_state_dict(copy.deepcopy(algo.state_dict()))
    before = actor_state(policy)
    other.update(make_rollout(policy))
    assert is_same(before, policy)
    other.update(make_rollout(policy))
    assert not is_same(before, policy)
