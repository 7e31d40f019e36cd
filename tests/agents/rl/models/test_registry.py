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
    ActorCriticRecurrent,
    Policy,
    RunningNormalizer,
    build_policy,
    get_registered_policy_names,
    register_policy,
)
from embodichain.agents.rl.models.actor_critic import ActorCriticCfg
from embodichain.agents.rl.models.registry import _POLICIES, parse_policy_block
from embodichain.utils import ConfigError
from embodichain.utils.observations import flatten_dict_observation
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


IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
SPACE = spaces.Dict(
    {
        "robot": spaces.Dict({"qvel": spaces.Box(-1, 1, (2,)), "qpos": spaces.Box(-1, 1, (2,))}),
        "object": spaces.Dict({"pose": spaces.Box(-1, 1, (2, 2)), "goal_pos": spaces.Box(-1, 1, (1,))}),
        "sensor": spaces.Dict({"cam": spaces.Dict({"color": IMAGE})}),
    }
)
# The flat observation: object/goal_pos 0, object/pose 1-4, robot/qpos 5-6, robot/qvel 7-8. O = 9.
O = 9  # noqa: E741

MLP_BLOCK: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}}
CNN_BLOCK: dict[str, Any] = {
    "type": "cnn",
    "keys": ["sensor/cam/color"],
    "network_cfg": {"channels": [2], "kernel_sizes": [4], "strides": [2], "hidden_sizes": [4]},
}


def build(**block: Any) -> Any:
    block = {"name": "actor_critic", "actor": MLP_BLOCK, "critic": MLP_BLOCK} | block
    return build_policy(block, O, ACTION, "cpu", observation_space=SPACE)


def what_matters(policy: Any, output: str) -> list[int]:
    """Return the columns of the flat observation on which the value or the most likely action depends."""
    obs = torch.zeros(1, O, requires_grad=True)
    td = TensorDict({"obs": obs, "state": torch.zeros(1, policy.state_size)}, batch_size=[1])
    policy.forward(td, deterministic=True)[output].sum().backward()
    assert obs.grad is not None
    return obs.grad[0].nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("name", ["actor_critic", "actor_critic_recurrent"])
def test_each_network_reads_the_entries_of_its_group(name: str) -> None:
    torch.manual_seed(1)
    smooth = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
    groups = {"actor": ["robot/*", "object/goal_pos"], "critic": ["*"]}
    policy = build(name=name, actor=smooth, critic=smooth, obs_groups=groups)
    assert what_matters(policy, "action") == [0, 5, 6, 7, 8]
    assert what_matters(policy, "value") == list(range(O))


def test_columns_are_those_of_the_flattened_observation() -> None:
    obs = TensorDict(
        {
            "robot": {"qvel": torch.tensor([[7.0, 8.0]]), "qpos": torch.tensor([[5.0, 6.0]])},
            "object": {"pose": torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), "goal_pos": torch.zeros(1, 1)},
            "sensor": {"cam": {"color": torch.zeros(1, 12, 10, 3, dtype=torch.uint8)}},
        },
        batch_size=[1],
    )
    flat = flatten_dict_observation(obs)
    policy = build(obs_groups={"actor": ["object/pose"], "critic": ["robot/qv*"]})
    assert policy.actor[0](flat).tolist() == [[1, 2, 3, 4]]
    assert policy.critic[0](flat).tolist() == [[7, 8]]


def test_without_groups_networks_are_what_they_were() -> None:
    assert [type(net).__name__ for net in (build().actor, build().critic)] == ["MLP", "MLP"]
    assert set(build().state_dict()) == set(build(obs_groups={"actor": ["*"]}, squash=True).state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"obs_groups": {"actor": ["robot/*", "robt/*"]}},
            r"obs_groups.actor\[1\]: unknown entry or pattern 'robt/\*'.*object/goal_pos, object/pose, robot/qpos",
        ),
        ({"obs_groups": {"critic": []}}, "policy.critic: there is no entry to read but images.*'cnn'"),
        ({"name": "actor_critic_recurrent", "obs_groups": {"actor": []}}, "there is no entry to read but images"),
        ({"critic": {**CNN_BLOCK, "keys": ["robot/qpos"]}}, "policy.critic.keys: unknown image 'robot/qpos'"),
    ],
)
def test_block_that_does_not_fit_the_observation_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**change)


@pytest.mark.parametrize("change", [{"obs_groups": {"actor": ["robot/*"]}}, {"actor": CNN_BLOCK}])
def test_entries_cannot_be_named_without_the_structured_space(change: dict[str, Any]) -> None:
    block = {"name": "actor_critic", "actor": MLP_BLOCK, "critic": MLP_BLOCK} | change
    with pytest.raises(ValueError, match=r"policy\.(obs_groups\.actor|actor\.keys): needs .* observation space"):
        build_policy(block, O, ACTION, "cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actor": {"type": "cmn"}}, r"policy\.actor\.type: unknown network type 'cmn'\. Did you mean 'cnn'"),
        ({"actor": {**CNN_BLOCK, "network_cfg": {"chanels": [2]}}}, "chanels: unknown key. Did you mean 'channels'"),
        ({"actor": {**CNN_BLOCK, "network_cfg": {"channels": [2]}}}, "actor.network_cfg: .*of one length"),
        ({"log_std_range": [2, -5]}, "policy.log_std_range: the lowest must be below the highest"),
        ({"init_log_std": 3.0}, r"policy.init_log_std: 3.0 is outside log_std_range \[-5.0, 2.0\]"),
        ({"obs_groups": {"actr": ["*"]}}, "policy.obs_groups: 'actr': did you mean 'actor'"),
        ({"name": "actor_critic_recurrent", "actor": CNN_BLOCK}, "policy.actor.type: .*'mlp'"),
    ],
)
def test_mistake_in_a_block_is_found_before_anything_is_built(change: dict[str, Any], message: str) -> None:
    block = {"name": "actor_critic", "actor": MLP_BLOCK, "critic": MLP_BLOCK} | change
    with pytest.raises(ValueError, match=message):
        parse_policy_block(block)
    parse_policy_block({"name": "actor_critic", "actor": MLP_BLOCK, "critic": CNN_BLOCK})


def test_group_that_no_network_reads_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    parse_policy_block({"name": "actor_critic", "actor": {}, "critic": {}, "obs_groups": {"policy": ["x"]}})
    line = "policy.obs_groups.policy: only actor, critic, teacher are read by the library's networks"
    assert line in capsys.readouterr().err


def test_options_reach_the_policy() -> None:
    policy = build(squash=True, log_std_range=[-1, 1], init_log_std=0.5)
    assert isinstance(policy, ActorCritic)
    assert policy.squash is not None
    assert policy.extra_fields == (("raw_action", 2),)
    assert policy.log_std_range == (-1, 1)
    recurrent = build(name="actor_critic_recurrent", hidden_size=6, sequence_length=3, squash=True, normalize_obs=True)
    assert isinstance(recurrent, ActorCriticRecurrent)
    assert (recurrent.state_size, recurrent.sequence_length) == (6, 3)
    assert recurrent.extra_fields == (("raw_action", 2),)
