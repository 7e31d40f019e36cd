"""Policies of users: one with a shared trunk, and some that torch cannot trace."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torch.distributions import Distribution, Independent, Normal

from embodichain.agents.rl.models import Policy, RunningNormalizer
from embodichain.ext.export.formats import DeployedPolicy, check_parity, write_onnx
from embodichain.ext.export.onnx_runner import PolicyRunner
from embodichain.tools.policy import record_steps
from embodichain.utils import CommandFailedError
from tests.ext.export.test_parity import ACTIONS, SPACE, RandomEnv

pytest.importorskip("onnxscript")

ENTRIES = ["robot/qpos", "robot/qvel", "task/hidden"]


class SharedTrunk(Policy):
    """Normal actions, with a std that depends on the state, too."""

    def __init__(self, obs_dim: int, action_dim: int, device: torch.device, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config.get("width", 64)
        self.normalizer = RunningNormalizer(obs_dim)
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, 2 * action_dim)
        self.critic = nn.Linear(width, 1)
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        features = self.trunk(self.normalizer(td["obs"]))
        mean, raw = self.actor(features).chunk(2, dim=-1)
        actions = Independent(Normal(mean, (2.0 * torch.tanh(raw) - 1.0).exp()), 1)  # log-std between -3 and 1
        td["action"] = actions.mean if deterministic else actions.sample()
        td["sample_log_prob"] = actions.log_prob(td["action"])
        td["value"] = self.critic(features).squeeze(-1)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        raise NotImplementedError

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        raise NotImplementedError

    def update_normalizer(self, obs: torch.Tensor) -> None:
        self.normalizer.update(obs)


def build(policy_class: Any) -> Policy:
    torch.manual_seed(0)
    return policy_class(9, 3, torch.device("cpu"), {}).eval()


def write(policy: Policy, folder: Path) -> tuple[DeployedPolicy, Path]:
    module = DeployedPolicy(policy, SPACE, ENTRIES, ACTIONS, []).eval()
    path = folder / "policy.onnx"
    write_onnx(module, {"inputs": ENTRIES, "outputs": module.outputs}, path)
    return module, path


def test_policy_of_a_user_is_exported(tmp_path: Path) -> None:
    policy = build(SharedTrunk)
    env: Any = RandomEnv()
    steps = record_steps(env, policy, torch.device("cpu"), ENTRIES, 100, seed=0)
    module, path = write(policy, tmp_path)
    assert check_parity(PolicyRunner(path).run, module, steps) <= 1e-5
    with pytest.raises(ValueError, match="invalid values"):  # the arguments of distributions are checked again
        torch.distributions.Normal(torch.zeros(1), -torch.ones(1))


def test_policy_that_cannot_be_traced_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Branching(SharedTrunk):
        """Branches on the values of the observation."""

        def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
            td["obs"] = td["obs"] * (2.0 if td["obs"].sum() > 0 else 1.0)
            return super().forward(td, deterministic)

    with pytest.raises(CommandFailedError) as caught:
        write(build(Branching), tmp_path)
    message = str(caught.value)
    assert message.startswith("--format onnx: torch cannot trace Branching.forward: Could not guard on data-dependent")
    assert len(message.splitlines()) == 1
    assert capfd.readouterr().err == ""
    assert Distribution._validate_args
