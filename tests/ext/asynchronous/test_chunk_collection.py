"""Asynchronous collection and training with chunks of actions.

Legend: N = 2 envs, T = 4 decisions, H = 3 actions of a chunk.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.collector import AsyncCollector, PolicySnapshot
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.ext.asynchronous.vla_buffer import VLABuffer
from tests.agents.rl.buffer.test_layout import KINDS, check
from tests.agents.rl.buffer.test_layout import T as STEPS
from tests.agents.rl.collector.test_chunk_collection import H, T
from tests.agents.rl.fakes import ChunkedEnv, assert_same, linear_policy
from tests.agents.rl.test_chunk_training import CHUNKS
from tests.agents.rl.whole_trainings import SAME, after
from tests.ext.asynchronous.conftest import Jitter

pytestmark = pytest.mark.usefixtures("own_folder")


def test_chunks_log_probs_follow_from_their_version(jitter: Jitter) -> None:
    policy, fresh = linear_policy(chunk_length=H), linear_policy(chunk_length=H)
    collector = AsyncCollector(ChunkedEnv(2), policy, VLABuffer(2), "cpu")
    snapshots: dict[int, PolicySnapshot] = {}
    collector.start()
    snapshots[collector.publisher.latest.version] = collector.publisher.latest
    rollouts = []
    try:
        for _ in range(5):
            rollouts.append(collector.collect(T))
            snapshots[collector.publisher.latest.version] = collector.publisher.latest
            with torch.no_grad():
                policy.actor.bias.add_(0.1)  # type: ignore[operator]
    finally:
        collector.stop()
    for rollout in rollouts:
        for t in range(T):
            (version,) = rollout["policy_version"][:, t].unique().tolist()  # one for the whole chunk
            fresh.load_state_dict(dict(snapshots[version].tensors))
            at = rollout.exclude("origin")[:, t]
            torch.testing.assert_close(fresh.evaluate_actions(at)["sample_log_prob"], at["sample_log_prob"])


@pytest.mark.parametrize(("kind", "env", "policy", "fields"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_every_field_of_an_asynchronous_rollout_is_in_the_table(
    kind: str, env: Callable[[], VecEnv], policy: Callable[[], Policy], fields: set[str]
) -> None:
    actor = policy()
    collector = AsyncCollector([env(), env()], actor, VLABuffer(2), "cpu")
    collector.start()
    try:
        check(collector.collect(STEPS), actor, fields | {"policy_version", "lag", "origin"})
    finally:
        collector.stop()


@pytest.mark.parametrize("name", list(CHUNKS))
def test_chunks_without_staleness_equal_synchronous_training(tmp_path: Path, name: str) -> None:
    sync = after(tmp_path, 3, **CHUNKS[name])
    ours = after(tmp_path, 3, **CHUNKS[name], trainer__asynchronous={"max_staleness": 0})
    for part in SAME:
        assert_same(ours[part], sync[part], part)
