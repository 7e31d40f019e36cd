import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn
from torch.distributions import Independent, Normal

from embodichain.agents.rl.models import ActorCritic, Policy, check_policy, register_policy
from embodichain.agents.rl.models.policy import check_policy_class
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import linear_policy
from tests.agents.rl.users_classes import ACTIONS, SIZE, Users

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


@pytest.mark.parametrize(
    ("method", "got"), [("forward", "None"), ("get_action", "None"), ("evaluate_actions", "tuple")]
)
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
        r"the same observation and action. Both need the same terms \(such as tanh's\)",
        complaint(policy),
    )


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
