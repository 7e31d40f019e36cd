from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import (
    ActorCritic,
    ActorCriticCfg,
    Policy,
    RunningNormalizer,
    build_policy,
    get_registered_policy_names,
    register_policy,
)
from embodichain.agents.rl.models.registry import _POLICIES
from embodichain.utils import ConfigError

OBS = spaces.Box(-np.inf, np.inf, (4, 3))  # flattened observations of 4 environments: O = 3
ACTION = spaces.Box(-1, 1, (2,))
BLOCK: dict[str, Any] = {
    "name": "actor_critic",
    "actor": {"network_cfg": {"hidden_sizes": [5]}},
    "critic": {"type": "mlp"},
}


class UserPolicy(Policy):
    def __init__(self, action_dim: int, config: object, obs_space: spaces.Box, gain: float = 1.0) -> None:
        super().__init__()
        self.given = (action_dim, config, obs_space, gain)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return td


@pytest.fixture(autouse=True)
def restored_registry() -> Iterator[None]:
    before = dict(_POLICIES)
    yield
    _POLICIES.clear()
    _POLICIES.update(before)


def test_actor_critic_is_built_from_its_block_and_the_spaces() -> None:
    policy = build_policy({**BLOCK, "normalize_obs": True, "init_log_std": -0.5}, OBS, ACTION, "cpu")
    assert isinstance(policy, ActorCritic)
    assert isinstance(policy.normalizer, RunningNormalizer)
    assert policy.log_std.tolist() == [-0.5, -0.5]
    td = policy.get_action(TensorDict({"obs": torch.zeros(4, 3)}, batch_size=[4]))
    assert td["action"].shape == (4, 2)
    assert [p.shape[0] for p in policy.actor.parameters()] == [5, 5, 2, 2]


def test_typed_block_and_plain_sizes_do_as_well() -> None:
    policy = build_policy(ActorCriticCfg(**BLOCK), 3, 2, "cpu")
    assert isinstance(policy, ActorCritic)
    assert (policy.obs_dim, policy.action_dim) == (3, 2)


def test_networks_that_are_passed_in_take_the_place_of_the_block_s() -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
    policy = build_policy({"name": "actor_critic"}, OBS, ACTION, "cpu", actor=actor, critic=critic)
    assert isinstance(policy, ActorCritic)
    assert policy.actor is actor
    assert policy.critic is critic


def test_orthogonal_actor_starts_with_a_small_last_layer() -> None:
    net = {"network_cfg": {"hidden_sizes": [8], "orthogonal_init": True}}
    policy = build_policy({"name": "actor_critic", "actor": net, "critic": net}, OBS, ACTION, "cpu")
    assert isinstance(policy, ActorCritic)
    norms = [list(network.parameters())[-2].norm(dim=1) for network in (policy.actor, policy.critic)]
    torch.testing.assert_close(norms, [torch.full((2,), 0.01), torch.ones(1)])


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, "'actor' and 'critic'$"), ({"actor": {}}, "no 'critic'$"), ({"critic": {}}, "no 'actor'$")],
)
def test_actor_critic_without_a_network_is_an_error_that_says_so(given: dict, missing: str) -> None:
    with pytest.raises(ValueError, match=f"'actor_critic' needs an 'actor' and a 'critic'.*{missing}"):
        build_policy({"name": "actor_critic", **given}, OBS, ACTION, "cpu")


def test_action_dim_must_be_the_environment_s() -> None:
    assert build_policy({**BLOCK, "action_dim": 2}, OBS, ACTION, "cpu")
    with pytest.raises(ValueError, match=r"policy.action_dim is 7, the environment's action size is 2"):
        build_policy({**BLOCK, "action_dim": 7}, OBS, ACTION, "cpu")


def test_unknown_keys_of_a_built_in_block_are_refused() -> None:
    with pytest.raises(ValueError, match="normalise_obs"):
        build_policy({**BLOCK, "normalise_obs": True}, OBS, ACTION, "cpu")


def test_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    register_policy("mine")(UserPolicy)
    with pytest.raises(ValueError, match=r"'actor_criti'.*Did you mean 'actor_critic'.*actor_critic, .*mine"):
        build_policy({"name": "actor_criti"}, OBS, ACTION, "cpu")
    with pytest.raises(ValueError, match=r"policy.name: required, but missing. Known: actor_critic"):
        build_policy({}, OBS, ACTION, "cpu")


@pytest.mark.parametrize("name", ["mine", f"{__name__}.UserPolicy"])
def test_user_s_policy_is_given_what_its_init_asks_for(name: str) -> None:
    register_policy("mine")(UserPolicy)
    assert "mine" in get_registered_policy_names()
    block = {"name": name, "anything": [1, 2]}
    policy = build_policy(block, OBS, ACTION, "cpu")
    assert isinstance(policy, UserPolicy)
    assert policy.given == (2, block, OBS, 1.0)


def test_user_s_policy_may_ask_for_the_structured_observation_space() -> None:
    class Structured(UserPolicy):
        def __init__(self, observation_space: spaces.Dict) -> None:
            super().__init__(0, observation_space, OBS)

    register_policy("structured")(Structured)
    structured = spaces.Dict({"robot": spaces.Dict({"qpos": OBS})})
    policy = build_policy({"name": "structured"}, OBS, ACTION, "cpu", observation_space=structured)
    assert isinstance(policy, UserPolicy)
    assert policy.given[1] is structured


def test_user_s_policy_that_requires_something_else_is_refused() -> None:
    class Demanding(UserPolicy):
        def __init__(self, obs_dim: int, temperature: float) -> None:
            raise AssertionError("not reached")

    register_policy("demanding")(Demanding)
    with pytest.raises(ValueError, match=r"Demanding.__init__ requires temperature.*obs_dim.*config"):
        build_policy({"name": "demanding"}, OBS, ACTION, "cpu")


def test_dotted_path_never_imports_a_module() -> None:
    with pytest.raises(
        ValueError, match=r"'antigravity' is not imported: list it in trainer.import_modules, pass --import"
    ):
        build_policy({"name": "antigravity.Policy"}, OBS, ACTION, "cpu")


@pytest.mark.parametrize("name", [f"{__name__}.OBS", f"{__name__}.Missing", "os.getcwd"])
def test_dotted_path_must_name_a_policy_class(name: str) -> None:
    with pytest.raises(ValueError, match="has no Policy class"):
        build_policy({"name": name}, OBS, ACTION, "cpu")


class Incomplete(Policy):
    def get_value(self, td: TensorDict) -> TensorDict:
        return td


def test_dotted_path_of_a_policy_that_lacks_a_method_is_refused_before_it_is_built() -> None:
    with pytest.raises(ValueError, match=r"policy Incomplete: lacks forward\(td.*\), evaluate_actions"):
        build_policy({"name": f"{__name__}.Incomplete"}, OBS, ACTION, "cpu")


def test_name_of_a_shipped_policy_is_not_taken_in_silence() -> None:
    message = "^policy 'vla' is registered already, by .*VLAPolicy: choose another name, or override=True$"
    with pytest.raises(ConfigError, match=message):
        register_policy("vla")(ActorCritic)
    register_policy("vla", override=True)(ActorCritic)
    assert _POLICIES["vla"] is ActorCritic
