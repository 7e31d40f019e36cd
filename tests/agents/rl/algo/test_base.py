from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import AlgorithmCfg, BaseAlgorithm
from embodichain.agents.rl.models import Policy
from embodichain.utils import configclass
from embodichain.utils.state import freeze
from tests.agents.rl.fakes import assert_same, linear_policy


class Bare(BaseAlgorithm):
    """Sets the three attributes that it must, and nothing else."""

    def __init__(self, cfg: Any, policy: Policy) -> None:
        self.cfg = cfg
        self.policy = policy
        self.device = torch.device(cfg.device)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        return {"loss": 0.0}


class Full(Bare):
    """Keeps two optimizers, a schedule and a network of its own."""

    def __init__(self, cfg: AlgorithmCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.target = nn.Linear(1, 1)
        self.critic = policy.critic  # the policy's own, which is saved with it
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
        self.target_optimizer = torch.optim.SGD(self.target.parameters(), lr=0.5, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        for optimizer, module in ((self.optimizer, self.policy), (self.target_optimizer, self.target)):
            optimizer.zero_grad()
            sum(p.square().sum() for p in module.parameters()).backward()  # type: ignore[union-attr]
            optimizer.step()
        self.schedule.step()
        return {}


@configclass
class NothingButDevice:
    device: str = "cpu"


@configclass
class ResettingCfg(AlgorithmCfg):
    reset_every_rollout: bool = True


def test_attributes_follow_from_cfg_policy_and_device() -> None:
    policy = linear_policy()
    algorithm = Bare(AlgorithmCfg(batch_size=32), policy)
    assert algorithm.batch_size == 32
    assert all(a is b for a, b in zip(algorithm.parameters, policy.parameters(), strict=True))
    assert algorithm.parameters is algorithm.parameters  # listed once
    assert algorithm.progress == 0
    algorithm.progress = 0.5
    assert algorithm.progress == 0.5
    assert not algorithm.reset_every_rollout
    assert algorithm.take_step_counts() == []
    assert algorithm.state_dict() == {}
    algorithm.load_state_dict({})


def test_settings_say_whether_rollouts_begin_anew() -> None:
    assert Bare(ResettingCfg(), linear_policy()).reset_every_rollout
    assert not Bare(ResettingCfg(reset_every_rollout=False), linear_policy()).reset_every_rollout


def test_settings_need_not_have_what_the_algorithm_does_not_use() -> None:
    algorithm = Bare(NothingButDevice(), linear_policy())
    assert algorithm.batch_size == AlgorithmCfg().batch_size
    assert not algorithm.reset_every_rollout


def test_own_optimizers_schedules_and_networks_are_saved() -> None:
    first, second = Full(AlgorithmCfg(), linear_policy()), Full(AlgorithmCfg(), linear_policy())
    rollout = TensorDict()
    for _ in range(3):
        first.update(rollout)
    state = freeze(first.state_dict())
    assert sorted(state) == ["optimizer", "schedule", "target", "target_optimizer"]
    second.policy.load_state_dict(first.policy.state_dict())
    second.load_state_dict(state)
    for algorithm in (first, second):
        algorithm.update(rollout)
    assert_same(first.policy.state_dict(), second.policy.state_dict())
    assert_same(first.target.state_dict(), second.target.state_dict())
    # 4 steps of the schedule, which divides by 10 after every second one: 0.1 / 100
    assert second.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
