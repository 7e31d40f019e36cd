from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn
from torch.distributions import Independent, Normal

from embodichain.agents.rl.models import (
    ActorCritic,
    ActorCriticCfg,
    Policy,
    RunningNormalizer,
    build_policy,
    check_policy,
    get_registered_policy_names,
    register_policy,
)
from embodichain.agents.rl.models.registry import _POLICIES, check_policy_class
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import linear_policy
from tests.agents.rl.users_classes import ACTIONS, SIZE, Users

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
    ],
)
def test_block_that_does_not_fit_is_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_policy(block, OBS, ACTION, "cpu")


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


def test_policy_may_ask_for_the_structured_observation_space() -> None:
    class Structured(UserPolicy):
        def __init__(self, observation_space: spaces.Dict) -> None:
            super().__init__(0, observation_space, OBS)

    register_policy("structured")(Structured)
    structured = spaces.Dict({"robot": spaces.Dict({"qpos": OBS})})
    policy = build_policy({"name": "structured"}, OBS, ACTION, "cpu", observation_space=structured)
    assert isinstance(policy, UserPolicy)
    assert policy.given[1] is structured


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


GRPO_READS = ("log_prob", "entropy")


class WritesOnly(Users):
    """``get_value`` writes and returns nothing; a method of its own chooses the actions."""

    def get_action(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        with torch.no_grad():
            return self.forward(tensordict, deterministic)

    def forward(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        super().forward(tensordict, deterministic)
        return tensordict

    def get_value(self, tensordict: TensorDict) -> None:  # type: ignore[override]
        tensordict["value"] = self.critic(tensordict["obs"]).squeeze(-1)


class Recurrent(Users):
    """Adds its state to the observation, in sequences of 3; stores a field, and reads an image."""

    state_size = SIZE
    sequence_length = 3
    extra_fields = (("noise", 4),)
    obs_keys = ("cam/color",)

    def distribution(self, tensordict: TensorDict) -> Independent:
        image = tensordict["entries"]["cam/color"]
        assert image.dtype == torch.uint8
        assert image.shape[-3:] == (5, 6, 3)
        return Independent(Normal(self.actor(tensordict["obs"] + tensordict["state"]), self.log_std.exp()), 1)

    def forward(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        tensordict["next_state"] = tensordict["obs"] + tensordict["state"]
        tensordict["noise"] = torch.rand(*tensordict.batch_size, 4)
        return super().forward(tensordict, deterministic)

    def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
        assert tensordict.batch_size == (2, 3)  # sequences
        assert tensordict["done"].shape == (2, 3)
        assert tensordict["noise"].shape == (2, 3, 4)
        return super().evaluate_actions(tensordict)


IMAGES = spaces.Dict({"cam": spaces.Dict({"color": spaces.Box(0, 255, (5, 6, 3), np.uint8)})})


def look(policy: Policy, **given: Any) -> None:
    check_policy(policy, SIZE, ACTIONS, "cpu", **given)


def complaint(policy: Policy, **given: Any) -> str:
    with pytest.raises(ConfigError) as info:
        look(policy, **given)
    assert "\n" not in str(info.value)
    return str(info.value)


@pytest.mark.parametrize(
    "policy",
    [Users(), WritesOnly(), linear_policy(obs_dim=SIZE, action_dim=ACTIONS)],
    ids=["log_prob", "writes", "ours"],
)
def test_policy_with_everything_that_is_needed_passes(policy: Policy) -> None:
    look(policy)
    look(policy, evaluated=GRPO_READS)


def test_recurrent_policy_that_reads_images_in_sequences_passes() -> None:
    look(Recurrent(), observation_space=IMAGES)


def test_policy_of_entries_is_not_called_without_their_space() -> None:
    look(Recurrent())


def test_entry_that_the_observation_has_not_is_named() -> None:
    policy = Recurrent()
    policy.obs_keys = ("cam/colour",)
    assert "unknown entry of the observation 'cam/colour'. Did you mean 'cam/color'?" in complaint(
        policy, observation_space=IMAGES
    )


def test_chunks_have_a_log_probability_for_each_component() -> None:
    class Chunked(ActorCritic):  # of another type than the built-in ones, so that it is called
        pass

    actor, critic = nn.Linear(SIZE, 4 * ACTIONS), nn.Linear(SIZE, 1)
    look(Chunked(SIZE, ACTIONS, "cpu", actor, critic, chunk_length=4))

    class Summed(Chunked):
        def evaluate_actions(self, td: TensorDict) -> TensorDict:
            out = super().evaluate_actions(td)
            out["entropy"] = out["entropy"].sum((-1, -2))
            return out

    # 2 rows x 2 steps = 4 transitions
    assert "evaluate_actions returned 'entropy' of shape [4]; expected is" in complaint(
        Summed(SIZE, ACTIONS, "cpu", actor, critic, chunk_length=4)
    )


def test_built_in_policies_are_not_called() -> None:
    policy = linear_policy(obs_dim=SIZE + 1)  # it would fail
    look(policy)


class Forgetful(Users):
    """Leaves out an entry of a method's result."""

    method, name = "", ""

    def forward(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        out = super().forward(tensordict, deterministic)
        return out.exclude(self.name) if self.method == "forward" else out

    def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
        out = super().evaluate_actions(tensordict)
        return out.exclude(self.name) if self.method == "evaluate_actions" else out


@pytest.mark.parametrize(
    ("method", "name"),
    [("forward", "action"), ("forward", "value"), ("evaluate_actions", "log_prob"), ("evaluate_actions", "value")],
)
def test_missing_entry_is_named(method: str, name: str) -> None:
    policy = Forgetful()
    policy.method, policy.name = method, name
    assert f"policy Forgetful: {method} returned no '{name}'; expected is a TensorDict with '" in complaint(policy)
    if (method, name) == ("evaluate_actions", "value"):
        look(policy, evaluated=GRPO_READS)  # it is only needed where the algorithm reads it


def test_log_probability_is_not_taken_from_a_copied_batch() -> None:
    class Copying(Users):
        def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
            return tensordict.clone().update(super().evaluate_actions(tensordict).exclude("log_prob"))

    assert "evaluate_actions returned no 'log_prob'" in complaint(Copying())


def test_overwritten_log_probability_is_refused() -> None:
    class Overwriting(Users):
        def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
            evaluated = super().evaluate_actions(tensordict)
            tensordict["sample_log_prob"] = evaluated["log_prob"]
            return evaluated

    assert complaint(Overwriting()) == (
        "policy Overwriting: evaluate_actions writes 'sample_log_prob' into the TensorDict that it is given, in the "
        "place of the rollout's. Expected is a new TensorDict"
    )


def test_value_with_a_dimension_too_many_is_refused() -> None:
    class Column(Users):
        def get_value(self, tensordict: TensorDict) -> TensorDict:
            tensordict["value"] = self.critic(tensordict["obs"])  # [2, 1] would broadcast to [2, 2] in the loss
            return tensordict

    assert "policy Column: forward returned 'value' of shape [2, 1]; expected is" in complaint(Column())


@pytest.mark.parametrize(("method", "got"), [("forward", "None"), ("evaluate_actions", "tuple")])
def test_method_that_returns_something_else_is_refused(method: str, got: str) -> None:
    result = None if got == "None" else (torch.zeros(2), torch.zeros(2))
    policy = type("Other", (Users,), {method: lambda self, td, deterministic=False: result})()
    assert complaint(policy).startswith(f"policy Other: {method} returned {got}; expected is a TensorDict with ")


def test_disagreeing_log_probabilities_are_shown() -> None:
    class Squashed(Users):
        extra_fields = (("raw", ACTIONS),)

        def forward(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
            raw = super().forward(tensordict, deterministic)["action"]
            tensordict["raw"], tensordict["action"] = raw, raw.tanh()
            tensordict["sample_log_prob"] -= (1 - raw.tanh().square()).log().sum(-1)
            return tensordict

        def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
            evaluated = super().evaluate_actions(tensordict.clone().set("action", tensordict["raw"]))
            evaluated["log_prob"] -= self.jacobian * (1 - tensordict["action"].square()).log().sum(-1)
            return evaluated

    policy = Squashed()
    policy.jacobian = 1.0  # type: ignore[assignment]
    look(policy)
    policy.jacobian = 0.0  # type: ignore[assignment]
    assert re.fullmatch(
        r"policy Squashed: forward wrote, and evaluate_actions gives, the log-probabilities -?[\d.]+ and -?[\d.]+ for "
        r"the same observation and action. Both need the same terms \(such as that of tanh\)",
        complaint(policy),
    )


NETWORK = {"type": "mlp", "network_cfg": {"hidden_sizes": [8]}}
SMALL_VLA = {"channels": [4, 8], "width": 8, "depth": 1, "heads": 2, "chunk_length": 2}
VLA_SPACE = spaces.Dict(
    {
        "image": spaces.Dict({"front": spaces.Box(0, 255, (16, 16, 3), np.uint8)}),
        "state": spaces.Box(-1, 1, (SIZE,)),
        "instruction": spaces.Box(0, 50, (8,), np.int64),
    }
)


@pytest.mark.ext
@pytest.mark.parametrize(
    "block",
    [
        {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True},
        {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "squash": True},
        {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "squash": True, "chunk_length": 3},
        {"name": "actor_critic_recurrent", "actor": NETWORK, "critic": NETWORK},
        {"name": "actor_critic_recurrent", "actor": NETWORK, "critic": NETWORK, "sequence_length": 3, "squash": True},
        {"name": "actor_only", "actor": NETWORK},
        {"name": "vla", "vla_config": {"model_config": SMALL_VLA}},
    ],
    ids=str,
)
def test_shipped_policies_pass_the_checks(block: dict[str, Any]) -> None:
    policy = build_policy(block, SIZE, spaces.Box(-2, 3, (ACTIONS,)), "cpu", observation_space=VLA_SPACE)
    policy.__class__ = type("Users", (type(policy),), {})  # built-in classes are not checked
    look(policy, observation_space=VLA_SPACE)


def test_dropout_and_noisy_estimates_are_no_mismatch() -> None:
    class Dropping(Users):
        def distribution(self, tensordict: TensorDict) -> Independent:
            mean = nn.functional.dropout(self.actor(tensordict["obs"]), training=self.training)
            return Independent(Normal(mean, self.log_std.exp()), 1)

    class Estimating(Users):
        def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
            evaluated = super().evaluate_actions(tensordict)
            evaluated["log_prob"] += torch.randn(tensordict.batch_size)
            return evaluated

    look(Dropping())
    look(Estimating())


def test_look_leaves_generators_and_buffers_as_they_were() -> None:
    class Normalising(Users):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(SIZE)

        def distribution(self, tensordict: TensorDict) -> Independent:
            random.random(), np.random.rand()  # noqa: NPY002
            return Independent(Normal(self.actor(self.norm(tensordict["obs"])), self.log_std.exp()), 1)

    def draws() -> tuple[Any, ...]:
        return torch.rand(3).tolist(), random.random(), np.random.rand()  # noqa: NPY002

    def seed() -> None:
        torch.manual_seed(4), random.seed(4), np.random.seed(4)  # noqa: NPY002

    seed()
    expected = draws()
    policy = Normalising()
    nn.init.ones_(policy.norm.running_mean)  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    seed()
    look(policy)
    assert draws() == expected
    assert policy.training
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


class NoForward(Policy):
    def get_value(self, td: TensorDict) -> TensorDict:
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return td


class NotDeterministic(Users):
    def get_action(self, tensordict: TensorDict) -> TensorDict:  # type: ignore[override]
        return self.forward(tensordict)


@pytest.mark.parametrize(
    ("policy_class", "message"),
    [
        (NoForward, "policy NoForward: lacks forward(td, deterministic=False)"),
        (nn.Linear, "policy Linear: is no subclass of embodichain.agents.rl.models.Policy"),
        (7, "policy 7: is no subclass of embodichain.agents.rl.models.Policy"),
    ],
)
def test_class_that_is_no_policy_is_refused(policy_class: Any, message: str) -> None:
    with pytest.raises(ConfigError) as info:
        register_policy("mine")(policy_class)
    assert str(info.value) == message


def test_other_signature_is_shown_with_the_expected_one() -> None:
    with pytest.raises(
        ConfigError, match=r"expected is get_action\(td, deterministic=False\), got get_action\(self, t"
    ):
        check_policy_class(NotDeterministic)
