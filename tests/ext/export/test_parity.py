"""Exported policies act as the policies do. Shapes: N = 20 environments, 50 steps: 1,000 observations."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from embodichain.agents.rl.models import Policy, RunningNormalizer, build_policy
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.ext.export.formats import DeployedPolicy, actor_entries, check_parity, write_onnx
from embodichain.ext.export.onnx_runner import PolicyRunner
from embodichain.tools.policy import ParityError, record_steps
from embodichain.utils import CommandFailedError

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
VLA_SPACE = spaces.Dict(
    {
        "image": spaces.Dict({"cam": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
        "state": spaces.Box(-9, 9, (4,)),
        "instruction": spaces.Box(0, 30, (3,), np.int64),
    }
)
SIMBA: dict[str, Any] = {"type": "simba", "network_cfg": {"width": 8, "num_blocks": 1}}
_LAYERS = {"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
_VISION = {**_LAYERS, "image_size": 16, "patch_size": 8}
_LANGUAGE = {**_LAYERS, "vocab_size": 32, "num_key_value_heads": 1}
_SMOLVLA = {"denoising_steps": 2, "scale_factor": 2}
LIMIT = 0.0625
ACTIONS = spaces.Box(-LIMIT, LIMIT, (3,))
BLOCKS: dict[str, dict[str, Any]] = {
    "actor-critic": {"name": "actor_critic", "actor": NET, "critic": NET, "normalize_obs": True},
    "squashed": {"name": "actor_critic", "actor": NET, "critic": NET, "squash": True},
    "scaled": {"name": "actor_critic", "actor": NET, "critic": NET, "scale_actions": True},
    "asymmetric": {"name": "actor_critic", "actor": NET, "critic": CNN, "obs_groups": {"actor": ["robot/*"]}},
    "actor-only": {"name": "actor_only", "actor": NET, "normalize_obs": True},
    "soft": {"name": "soft_actor_critic", "actor": CNN, "critic": NET, "normalize_obs": True},
    "deterministic": {"name": "deterministic_actor_critic", "actor": SIMBA, "critic": NET, "normalize_obs": True},
    "CNN": {"name": "actor_critic", "actor": CNN, "critic": NET, "normalize_obs": True},
    "GRU": {"name": "actor_critic_recurrent", "actor": NET, "critic": NET, "hidden_size": 8, "normalize_obs": True},
    "chunks": {"name": "actor_critic", "actor": NET, "critic": NET, "chunk_length": 2},
    "VLA": {
        "name": "vla",
        "vla_config": {"model_config": {"chunk_length": 2, "channels": [4, 4], "width": 8, "heads": 2, "depth": 1}},
    },
    "VLA SmolVLA": {
        "name": "vla",
        "vla_config": {
            "model_class": "embodichain.agents.rl.models.SmolVLA",
            "model_config": {"chunk_length": 2, "vision": _VISION, "language": _LANGUAGE, **_SMOLVLA},
        },
    },
}


WRITTEN = ("GRU", "VLA", "VLA SmolVLA", "asymmetric", "chunks", "deterministic", "soft")
"""A GRU, two VLAs, two MLPs, one with a critic that alone reads images, a SimBa network and a CNN; a user's network is
below."""


class RandomEnv:
    """Observations without sense; an episode ends by chance, every tenth step."""

    num_envs = 20
    device = torch.device("cpu")
    single_action_space = ACTIONS

    def __init__(self, space: spaces.Dict = SPACE) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._space = space

    def reset(self, seed: int) -> tuple[TensorDict, dict[str, Any]]:
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, None, Tensor, Tensor, dict[str, Any]]:
        done = torch.rand(self.num_envs, generator=self._generator) < 0.1
        return self._obs(), None, done, torch.zeros_like(done), {}

    step_chunk = step

    def _obs(self) -> TensorDict:
        return TensorDict(self._draw(self._space), batch_size=[self.num_envs])

    def _draw(self, space: spaces.Space[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {name: self._draw(part) for name, part in space.items()}
        assert isinstance(space, spaces.Box)
        shape = (self.num_envs, *space.shape)
        if space.dtype.kind == "f":
            return torch.randn(shape, generator=self._generator)
        dtype = torch.uint8 if space.dtype == np.uint8 else torch.int64
        return torch.randint(int(space.high.max()) + 1, shape, dtype=dtype, generator=self._generator)


def space_of(kind: str) -> spaces.Dict:
    return VLA_SPACE if kind.startswith("VLA") else SPACE


def steps_of(kind: str) -> int:
    """Return how many observations are compared: fewer of a VLA, which takes long for each."""
    return 100 if kind.startswith("VLA") else 1000


def policy_of(kind: str) -> Policy:
    if kind == "VLA SmolVLA":
        pytest.importorskip("transformers", reason="needs the extra vla")
    torch.manual_seed(0)
    policy = build_policy(BLOCKS[kind], 9, ACTIONS, "cpu", observation_space=space_of(kind)).eval()
    policy.update_normalizer(3 * torch.randn(100, 9) + 1)
    return policy


def record(kind: str, observations: int) -> tuple[DeployedPolicy, list[Any]]:
    policy, space = policy_of(kind), space_of(kind)
    entries = actor_entries(parse_policy_block(BLOCKS[kind]), space, policy)
    module = DeployedPolicy(policy, space, entries, ACTIONS, []).eval()
    env: Any = RandomEnv(space)
    return module, record_steps(env, policy, torch.device("cpu"), entries, observations, seed=0)


def exported(module: DeployedPolicy, path: Path) -> Any:
    spec = {
        "inputs": {name: {"shape": list(x[0])} for name, x in module.inputs.items()},
        "outputs": module.outputs,
        "memory": module.memory,
    }
    write_onnx(module, spec, path)
    return PolicyRunner(path).run


def in_torch(module: DeployedPolicy, inputs: Any, shift: float = 0.0) -> dict[str, np.ndarray]:
    with torch.no_grad():
        outputs = module([torch.from_numpy(inputs[name]) for name in module.inputs])
    values = {name: value.numpy() for name, value in zip(module.outputs, outputs, strict=True)}
    return values | {"action": values["action"] + np.float32(shift)}


# An export takes seconds: a file is written of each kind of network, and of the others the module is run that would be.
@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_exported_policy_acts_as_the_policy(kind: str, tmp_path: Path) -> None:
    module, steps = record(kind, steps_of(kind))
    run = exported(module, tmp_path / "policy.onnx") if kind in WRITTEN else partial(in_torch, module)
    assert sum(len(step.action) for step in steps) == steps_of(kind)
    assert check_parity(run, module, steps) <= 1e-5
    # Some actions are beyond the limits before they are clipped, or else clipping is not tested.
    assert any((np.abs(step.action) == LIMIT).any() for step in steps) or kind in (
        "squashed",
        "scaled",
        "soft",
        "deterministic",
    )


def test_entries_that_only_the_critic_reads_are_not_needed() -> None:
    needed = {
        kind: actor_entries(parse_policy_block(BLOCKS[kind]), space_of(kind), policy_of(kind))
        for kind in ("asymmetric", "CNN", "VLA")
    }
    assert needed["asymmetric"] == ["robot/qpos", "robot/qvel"]
    assert needed["CNN"] == ["robot/qpos", "robot/qvel", "task/hidden", "sensor/cam/color"]
    assert needed["VLA"] == ["image/cam", "state", "instruction"]


def test_difference_is_found() -> None:
    module, steps = record("GRU", 100)
    run = partial(in_torch, module)
    assert check_parity(run, module, steps) == 0.0
    for shift in (2e-5, float("nan")):
        with pytest.raises(ParityError, match="step 0 of 5: the exported policy's action differs"):
            check_parity(partial(run, shift=shift), module, steps)
    # A memory that is not cleared where episodes begin shows, too.
    never = [type(step)(step.inputs, step.action, np.zeros(20, dtype=bool)) for step in steps]
    with pytest.raises(ParityError):
        check_parity(run, module, never)


def test_memory_is_not_taken_for_an_entry_of_the_same_name() -> None:
    space = spaces.Dict({"state": spaces.Box(-9, 9, (4,))})
    policy = build_policy(BLOCKS["GRU"], 4, ACTIONS, "cpu", observation_space=space).eval()
    module = DeployedPolicy(policy, space, ["state"], ACTIONS, [])
    assert module.memory == "memory"
    assert {name: shape for name, (shape, _) in module.inputs.items()} == {"state": (4,), "memory": (8,)}


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
