"""Exported policies act as the policies do. Shapes: N = 20 environments, 50 steps: 1,000 observations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.export import FORMATS, DeployedPolicy, ParityError, check_parity, record_steps
from embodichain.agents.rl.export.module import actor_entries
from embodichain.agents.rl.models import Policy, build_policy

pytest.importorskip("onnxscript")

NET: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "tanh"}}
CNN = {
    "type": "cnn",
    "keys": ["sensor/cam/color"],
    "network_cfg": {"channels": [4], "kernel_sizes": [4], "strides": [4], "hidden_sizes": [8]},
}
SPACE = spaces.Dict(
    {
        "robot": spaces.Dict({"qpos": spaces.Box(-9, 9, (2,)), "qvel": spaces.Box(-9, 9, (3,))}),
        "sensor": spaces.Dict({"cam": spaces.Dict({"color": spaces.Box(0, 255, (8, 8, 3), np.uint8)})}),
        "task": spaces.Dict({"hidden": spaces.Box(-9, 9, (2, 2))}),
    }
)
LIMIT = 0.0625
ACTIONS = spaces.Box(-LIMIT, LIMIT, (3,))
BLOCKS: dict[str, dict[str, Any]] = {
    "actor-critic": {"name": "actor_critic", "actor": NET, "critic": NET, "normalize_obs": True},
    "squashed": {"name": "actor_critic", "actor": NET, "critic": NET, "squash": True},
    "asymmetric": {"name": "actor_critic", "actor": NET, "critic": NET, "obs_groups": {"actor": ["robot/*"]}},
    "actor-only": {"name": "actor_only", "actor": NET, "normalize_obs": True},
    "CNN": {"name": "actor_critic", "actor": CNN, "critic": NET, "normalize_obs": True},
    "GRU": {"name": "actor_critic_recurrent", "actor": NET, "critic": NET, "hidden_size": 8, "normalize_obs": True},
}


class RandomEnv:
    """Observations without sense; an episode ends by chance, every tenth step."""

    num_envs = 20
    device = torch.device("cpu")
    single_action_space = ACTIONS

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def reset(self, seed: int) -> tuple[TensorDict, dict[str, Any]]:
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, None, Tensor, Tensor, dict[str, Any]]:
        done = torch.rand(self.num_envs, generator=self._generator) < 0.1
        return self._obs(), None, done, torch.zeros_like(done), {}

    def _obs(self) -> TensorDict:
        def draw(*shape: int) -> Tensor:
            return torch.randn(self.num_envs, *shape, generator=self._generator)

        color = torch.randint(0, 256, (self.num_envs, 8, 8, 3), dtype=torch.uint8, generator=self._generator)
        entries = {
            "robot": {"qpos": draw(2), "qvel": draw(3)},
            "sensor": {"cam": {"color": color}},
            "task": {"hidden": draw(2, 2)},
        }
        return TensorDict(entries, batch_size=[self.num_envs])


def policy_of(kind: str) -> Policy:
    torch.manual_seed(0)
    policy = build_policy(BLOCKS[kind], 9, ACTIONS, "cpu", observation_space=SPACE).eval()
    policy.update_normalizer(3 * torch.randn(100, 9) + 1)
    return policy


def export(kind: str, file_format: str, folder: Path) -> tuple[DeployedPolicy, Any, list[Any]]:
    policy = policy_of(kind)
    entries = actor_entries(BLOCKS[kind], SPACE, policy.obs_keys)
    module = DeployedPolicy(policy, SPACE, entries, ACTIONS, []).eval()
    env: Any = RandomEnv()
    steps = record_steps(env, policy, torch.device("cpu"), entries, 1000, seed=0)
    chosen = FORMATS[file_format]
    spec = {"inputs": {name: {"shape": list(x[0])} for name, x in module.inputs.items()}, "outputs": module.outputs}
    path = folder / f"policy{chosen.suffix}"
    chosen.write(module, spec, path)
    return module, chosen.load(path), steps


IN_ONNX = ["actor-critic", "actor-only", "CNN", "GRU"]  # an export takes seconds
OTHERS = [(kind, file_format) for kind in ("CNN", "GRU") for file_format in ("torchscript", "pt2")]
OTHERS += [("squashed", "torchscript"), ("asymmetric", "pt2")]


@pytest.mark.parametrize(("kind", "file_format"), [*((kind, "onnx") for kind in IN_ONNX), *OTHERS])
def test_exported_policy_acts_as_the_policy(kind: str, file_format: str, tmp_path: Path) -> None:
    module, run, steps = export(kind, file_format, tmp_path)
    assert sum(len(step.action) for step in steps) == 1000
    assert check_parity(run, module.inputs, steps) <= 1e-5
    # Some actions are beyond the limits before they are clipped, or else clipping is not tested.
    assert any((np.abs(step.action) == LIMIT).any() for step in steps) or kind == "squashed"


def test_entries_that_only_the_critic_reads_are_not_needed() -> None:
    space, keys = SPACE, ["sensor/cam/color"]
    assert actor_entries(BLOCKS["asymmetric"], space, []) == ["robot/qpos", "robot/qvel"]
    assert actor_entries(BLOCKS["CNN"], space, keys) == ["robot/qpos", "robot/qvel", "task/hidden", *keys]


def test_difference_is_found(tmp_path: Path) -> None:
    policy = policy_of("GRU")
    entries = actor_entries(BLOCKS["GRU"], SPACE, ())
    module = DeployedPolicy(policy, SPACE, entries, ACTIONS, []).eval()
    env: Any = RandomEnv()
    steps = record_steps(env, policy, torch.device("cpu"), entries, 100, seed=0)

    def run(inputs: Any, shift: float = 0.0) -> dict[str, np.ndarray]:
        with torch.no_grad():
            action, state = module([torch.from_numpy(inputs[name]) for name in module.inputs])
        return {"action": action.numpy() + np.float32(shift), "next_state": state.numpy()}

    assert check_parity(run, module.inputs, steps) == 0.0
    for shift in (2e-5, float("nan")):
        with pytest.raises(ParityError, match="step 0 of 5: the exported policy's action differs"):
            check_parity(partial(run, shift=shift), module.inputs, steps)
    # A memory that is not cleared where episodes begin shows, too.
    never = [type(step)(step.inputs, step.action, np.zeros(20, dtype=bool)) for step in steps]
    with pytest.raises(ParityError):
        check_parity(run, module.inputs, never)
