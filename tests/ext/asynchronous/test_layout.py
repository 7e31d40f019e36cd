"""The fields of asynchronous rollouts are declared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embodichain.agents.rl.collector import AsyncCollector
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.ext.asynchronous.vla_buffer import VLABuffer
from tests.agents.rl.buffer.test_layout import KINDS, T, check


@pytest.mark.parametrize(("kind", "env", "policy", "fields"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_every_field_of_an_asynchronous_rollout_is_in_the_table(
    kind: str, env: Callable[[], VecEnv], policy: Callable[[], Policy], fields: set[str]
) -> None:
    actor = policy()
    collector = AsyncCollector([env(), env()], actor, VLABuffer(2), "cpu")
    collector.start()
    try:
        check(collector.collect(T), actor, fields | {"policy_version", "lag", "origin"})
    finally:
        collector.stop()
