from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import (
    ActorCritic,
    Policy,
    RunningNormalizer,
    build_policy,
    get_registered_policy_names,
    register_policy,
)
from embodichain.agents.rl.models.actor_critic import ActorCriticCfg
from embodichain.agents.rl.models.registry import _POLICIES
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import StubPolicy

OBS = spaces.Box(-np.inf, np.inf, (4, 3))  # flattened observations of 4 environments: O = 3
ACTION = spaces.Box(-1, 1, (2,))
BLOCK: dict[str, Any] = {
    "name": "actor_critic",
    "actor": {"network_cfg": {"hidden_sizes": [5]}},
    "critic": {"type": "mlp"},
}


class UserPolicy(StubPolicy):
    def __init__(self, action_dim: int, config: object, obs_space: spaces.Box, gain: float = 1.0) -> None:
        super().__init__()
        self.given = (action_dim, config, obs_space, gain)


@pytest.fixture(autouse=True)
def restored_registry() -> Iterator[None]:
    with patch.dict(_POLICIES):
        yield


def test_actor_critic_is_built_from_its_block_and_the_spaces() -> None:
    policy = build_policy({**BLOCK, "normalize_obs": True, "init_log_std": -0.5}, OBS, ACTION, "cpu")
    assert isinstance(policy, ActorCritic)
    assert isinstance(policy.normalizer, RunningNormalizer)
    assert policy.log_std.tolist() == [-0.5, -0.5]
    td = policy.get_action(TensorDict({"obs": torch.zeros(4, 3)}, batch_size=[4]))
    assert td["action"].shape == (4, 2)
    assert [p.shape[0] for p in policy.actor.parameters()] == [5, 5, 2, 2]
    policy = build_policy(ActorCriticCfg(**BLOCK, action_dim=2), 3, 2, "cpu")  # a typed block and plain sizes
    assert isinstance(policy, ActorCritic)
    assert (policy.obs_dim, policy.action_dim) == (3, 2)


def test_passed_networks_replace_the_blocks() -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
    policy = build_policy({"name": "actor_critic"}, OBS, ACTION, "cpu", actor=actor, critic=critic)
    assert isinstance(policy, ActorCritic)
    assert policy.actor is actor
    assert policy.critic is critic


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"name": "actor_critic"}, "'actor_critic' needs an 'actor' and a 'critic' network; the block has no 'actor'$"),
        ({"name": "actor_critic", "actor": {}}, "the block has no 'critic'$"),
        ({**BLOCK, "action_dim": 7}, "policy.action_dim is 7, the environment's action size is 2"),
        ({**BLOCK, "normalise_obs": True}, "normalise_obs"),
        ({**BLOCK, "squash": True, "scale_actions": True}, r"^policy\.scale_actions: has no effect with squash, "),
        ({**BLOCK, "name": "soft_actor_critic", "scale_actions": True}, r"^policy\.scale_actions: has no effect with"),
    ],
)
def test_block_that_does_not_fit_is_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_policy(block, OBS, ACTION, "cpu")


@pytest.mark.parametrize("name", ["mine", f"{__name__}.UserPolicy"])
def test_user_s_policy_is_given_what_its_init_asks_for(name: str) -> None:
    register_policy("mine")(UserPolicy)
    assert "mine" in get_registered_policy_names()
    block = {"name": name, "anything": [1, 2]}
    policy = build_policy(block, OBS, ACTION, "cpu")
    assert isinstance(policy, UserPolicy)
    assert policy.given == (2, block, OBS, 1.0)


def test_policy_may_ask_for_the_structured_observation_space() -> None:
    class Structured(UserPolicy):
        def __init__(self, observation_space: spaces.Dict) -> None:
            super().__init__(0, observation_space, OBS)

    register_policy("structured")(Structured)
    structured = spaces.Dict({"robot": spaces.Dict({"qpos": OBS})})
    policy = build_policy({"name": "structured"}, OBS, ACTION, "cpu", observation_space=structured)
    assert isinstance(policy, UserPolicy)
    assert policy.given[1] is structured


def test_observation_space_with_entries_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass the environment's flattened_observation_space"):
        build_policy(BLOCK, spaces.Dict({"qpos": OBS}), ACTION, "cpu")


class Incomplete(Policy):
    def get_value(self, td: TensorDict) -> TensorDict:
        return td


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("antigravity.Policy", "'antigravity' is not imported"),  # and is not imported now
        (f"{__name__}.OBS", "is no subclass of"),
        (f"{__name__}.Missing", "is no subclass of"),
        (f"{__name__}.Incomplete", r"policy Incomplete: lacks forward\(td.*\), evaluate_actions"),
    ],
)
def test_dotted_path_names_a_policy_in_an_imported_module(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_policy({"name": name}, OBS, ACTION, "cpu")


@pytest.mark.ext
def test_name_of_a_shipped_policy_is_not_taken_in_silence() -> None:
    message = "^policy 'vla' is registered already, by .*VLAPolicy: choose another name, or override=True$"
    with pytest.raises(ConfigError, match=message):
        register_policy("vla")(ActorCritic)
    register_policy("vla", override=True)(ActorCritic)
    assert _POLICIES["vla"] is ActorCritic
