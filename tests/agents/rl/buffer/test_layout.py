"""Legend: N envs, T rollout steps, O flattened observation size, A action size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.layout import ROLLOUT_FIELDS, RolloutField, RolloutOrigin, allocate_rollout
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.vec_env import VecEnv
from tests.agents.rl.collector.test_sync_collector import CountingPolicy, TableEnv
from tests.agents.rl.fakes import NETWORK, ChunkedEnv, ScriptedEnv, linear_policy


def test_fields_have_the_documented_shapes_and_dtypes() -> None:
    rollout = allocate_rollout(num_envs=2, rollout_len=3, obs_dim=5, action_dim=4, device="cpu")
    assert rollout.batch_size == (2, 4)  # [N, T+1]
    assert {name: (tuple(x.shape[2:]), x.dtype) for name, x in rollout.items()} == {
        "obs": ((5,), torch.float32),
        "action": ((4,), torch.float32),
        "sample_log_prob": ((), torch.float32),
        "value": ((), torch.float32),
        "final_value": ((), torch.float32),
        "reward": ((), torch.float32),
        "done": ((), torch.bool),
        "terminated": ((), torch.bool),
        "truncated": ((), torch.bool),
    }


def test_slice_of_one_step_is_contiguous_in_every_field() -> None:
    rollout = allocate_rollout(num_envs=2, rollout_len=3, obs_dim=5, action_dim=4, device="cpu")
    assert all(x[:, 1].is_contiguous() for x in rollout.values())


T = 4
TABLE = {field.name: field for field in ROLLOUT_FIELDS}


class DivergingEnv(ScriptedEnv):
    def step(self, action: torch.Tensor) -> Any:
        *results, info = super().step(action)
        return *results, info | {"diverged": torch.tensor([True, False])}


def built(name: str, **block: Any) -> Policy:
    env = ScriptedEnv(2)
    block = {"name": name, "actor": NETWORK, **block}
    return build_policy(block, env.flattened_observation_space, env.action_space, torch.device("cpu"))


ALWAYS = {field.name for field in ROLLOUT_FIELDS if field.exists == "always"}
KINDS: list[tuple[str, Callable[[], VecEnv], Callable[[], Policy], set[str]]] = [
    ("PPO", lambda: ScriptedEnv(2), linear_policy, {"info"}),
    ("GRPO", lambda: ScriptedEnv(2), lambda: built("actor_only"), {"info"}),
    ("recurrent", lambda: ScriptedEnv(2), lambda: built("actor_critic_recurrent", critic=NETWORK), {"info", "state"}),
    # Reads an entry of the observation (as policies of images do), remembers, and writes a field of its own.
    ("entries", TableEnv, CountingPolicy, {"entries", "state", "twice"}),
    ("chunks", lambda: ChunkedEnv(2), lambda: linear_policy(chunk_length=3), {"info", "executed"}),
    ("divergences", lambda: DivergingEnv(2), linear_policy, {"info"}),
]


def check(rollout: TensorDict, policy: Policy, expected: set[str]) -> None:
    declared = set(TABLE) | {name for name, _ in policy.extra_fields}
    assert set(rollout.keys()) <= declared
    assert set(rollout.keys()) == ALWAYS | expected
    sizes = {"O": rollout["obs"].shape[-1], "A": rollout["action"].shape[-1], "S": policy.state_size}
    sizes |= {"H": policy.chunk_length, "A'": policy.log_prob_size or sizes["A"]}
    for name in set(TABLE).intersection(rollout.keys()):
        check_field(rollout[name], TABLE[name], rollout.batch_size, sizes, policy.chunk_length > 1)


def check_field(
    value: Any, field: RolloutField, batch_size: torch.Size, sizes: dict[str, int], has_chunks: bool
) -> None:
    if field.name == "origin":
        assert isinstance(value, RolloutOrigin)
        return
    assert isinstance(value, TensorDict) == field.is_nested, field.name
    assert value.batch_size == batch_size if field.is_nested else value.shape[:2] == batch_size
    if field.dtype is not None:
        dims = [dim for dim in field.shape if has_chunks or dim not in ("H", "A'")]
        assert (value.dtype, value.shape[2:]) == (field.dtype, tuple(sizes[dim] for dim in dims)), field.name


@pytest.mark.parametrize(("kind", "env", "policy", "fields"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_every_field_of_a_synchronous_rollout_is_in_the_table(
    kind: str, env: Callable[[], VecEnv], policy: Callable[[], Policy], fields: set[str]
) -> None:
    actor = policy()
    collector = SyncCollector(env(), actor, "cpu")
    check(collector.collect(T), actor, fields)
    collector = SyncCollector(env(), actor, "cpu")
    collector.keeps_final_obs = True
    check(collector.collect(T), actor, fields | {"final"})
