"""Single keys of EmbodiChain 0.2.0 to 0.3.2 in a training config: what each becomes, and what is refused."""

import copy
import math
from typing import Any

import pytest

from embodichain.agents.rl.models.networks import _OUTPUT_GAINS
from embodichain.ext.upstream.training import convert_training
from embodichain.utils import ConfigError

Json = dict[str, Any]
X: Json = {"id": "X", "env": {}}


def at(path: str, value: Any, algorithm: str = "ppo") -> Json:
    """Return a training config with one value at a dotted path: 8 environments x 16 steps."""
    config: Json = {
        "trainer": {"num_envs": 8, "buffer_size": 16},
        "policy": {"name": "actor_critic", "actor": {}, "critic": {}},
        "algorithm": {"name": algorithm, "cfg": {}},
    }
    *blocks, key = path.split(".")
    node = config
    for block in blocks:
        node = node.setdefault(block, {})
    node[key] = value
    return config


def read(config: Json) -> tuple[Json, list[str]]:
    """Return the config in our layout and its problems."""
    data = copy.deepcopy(config)
    try:
        return convert_training(data), []
    except ConfigError as error:
        return data, str(error).splitlines()


@pytest.mark.parametrize(
    ("theirs", "value", "ours", "expected"),
    [
        ("algorithm.cfg.optimizer", {"name": "adam", "learning_rate": 0.01}, "algorithm.cfg.learning_rate", 0.01),
        ("algorithm.cfg.optimizer", {"learning_rate": 0.01, "kwargs": {}}, "algorithm.cfg.learning_rate", 0.01),
        ("algorithm.cfg.lr_scheduler", {"name": "linear"}, "algorithm.cfg.lr_schedule", "linear"),
        (
            "algorithm.cfg.lr_scheduler",
            {"name": "linear", "kwargs": {"start_factor": 1.0, "end_factor": 0.0}},
            "algorithm.cfg.lr_schedule",
            "linear",
        ),
        ("algorithm.cfg.schedule", "fixed", "algorithm.cfg.lr_schedule", "constant"),
        ("algorithm.cfg.schedule", "adaptive", "algorithm.cfg.lr_schedule", "adaptive"),
        ("algorithm.cfg.normalize_advantage_per_mini_batch", True, "algorithm.cfg.normalize_advantages", "minibatch"),
        ("algorithm.cfg.normalize_advantage_per_mini_batch", False, "algorithm.cfg.normalize_advantages", "rollout"),
        ("algorithm.cfg.use_clipped_value_loss", True, "algorithm.cfg.clip_value_coef", 0.2),
        # 8 x 16 = 128 transitions in 4 minibatches; 128 in 3 are 43, 43 and 42.
        ("algorithm.cfg.num_mini_batches", 4, "algorithm.cfg.batch_size", 32),
        ("algorithm.cfg.num_mini_batches", 3, "algorithm.cfg.batch_size", 43),
        # 1000 steps are 7.8 rollouts of 128.
        ("trainer.total_timesteps", 1000, "trainer.iterations", 8),
        ("trainer.save_frequency_updates", 20, "trainer.save_freq", "20 it"),
        ("trainer.learning_env", {"name": "X", "cfg": {"robot": 1}}, "trainer.gym_config", {"robot": 1} | X),
        ("trainer.learning_env", "X", "trainer.gym_config", X),
        (
            "trainer.gym_config",
            "extensions/embodichain_tasks/configs/tasks/a/env.json",
            "trainer.gym_config",
            "embodichain_tasks/configs/tasks/a/env.json",
        ),
        ("trainer.gym_config", "extensions/mine/env.json", "trainer.gym_config", "extensions/mine/env.json"),
        ("policy.initial_log_std", -1.0, "policy.init_log_std", -1.0),
        ("policy.initial_action_std", 0.5, "policy.init_log_std", math.log(0.5)),
        ("policy.action_std_range", [0.1, 2], "policy.log_std_range", [math.log(0.1), math.log(2)]),
        ("policy.actor.network_cfg.use_layernorm", True, "policy.actor.network_cfg.layer_norm", True),
        ("policy.critic.network_cfg.dropout_p", 0.1, "policy.critic.network_cfg.dropout", 0.1),
    ],
)
def test_their_key_becomes_ours(theirs: str, value: Any, ours: str, expected: Any) -> None:
    assert read(at(theirs, value)) == (at(ours, expected), [])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("trainer.renderer", "hybrid"),
        ("trainer.eval_seed", 3),
        ("trainer.best_eval_metric", "eval/avg_length"),
        ("trainer.best_eval_mode", "min"),
        ("trainer.save_frequency_updates", 0),
        ("algorithm.cfg.lr_scheduler", {"name": None}),
        ("algorithm.cfg.desired_kl", None),
        ("algorithm.cfg.num_mini_batches", None),
        ("algorithm.cfg.minimum_learning_rate", 1e-5),
        ("algorithm.cfg.action_bound_coef", 0.0),
        ("algorithm.cfg.use_clipped_value_loss", False),
    ],
)
def test_what_has_no_effect_here_is_left_out(path: str, value: Any) -> None:
    found, problems = read(at(path, value))
    assert problems == []
    assert found == at("trainer.num_envs", 8)


@pytest.mark.parametrize("role", ["actor", "critic"])
def test_only_our_gains_of_orthogonal_weights_are_read(role: str) -> None:
    path = f"policy.{role}.network_cfg.orthogonal_init"
    assert read(at(path, [1.414, 1.414, _OUTPUT_GAINS[role]])) == (at(path, True), [])
    for gains in ([1.0, 1.0, _OUTPUT_GAINS[role]], [1.414, 1.414, 0.5], 1.0, []):
        (problem,) = read(at(path, gains))[1]
        assert problem.startswith(f"{path}: must be the gains 1.414 and, of the last layer, ")
    assert read(at(path, False)) == (at(path, False), [])


def test_one_normaliser_is_that_of_both_networks() -> None:
    config = at("policy.actor_obs_normalization", True)
    config["policy"]["critic_obs_normalization"] = True
    assert read(config) == (at("policy.normalize_obs", True), [])
    del config["policy"]["critic"], config["policy"]["critic_obs_normalization"]
    assert read(config)[0]["policy"]["normalize_obs"] is True


def test_numbers_of_minibatches_and_steps_count_before_sizes() -> None:
    config = at("algorithm.cfg.num_mini_batches", 4)
    config["algorithm"]["cfg"]["batch_size"] = 99
    config["trainer"] |= {"total_timesteps": 256, "iterations": 99}
    found, problems = read(config)
    assert problems == []
    assert (found["algorithm"]["cfg"]["batch_size"], found["trainer"]["iterations"]) == (32, 2)


REFUSED = [
    ("algorithm.cfg.optimizer", {"name": "sgd"}, ".name: must be 'adam', got 'sgd': all algorithms use Adam"),
    ("algorithm.cfg.optimizer", {"kwargs": {"eps": 1.0}}, ".kwargs: must be {}, got {'eps': 1.0}: Adam's other"),
    ("algorithm.cfg.optimizer", {"lr": 1.0}, ".lr: has no counterpart here, got 1.0"),
    ("algorithm.cfg.lr_scheduler", {"kwargs": {"end_factor": 0.4}}, ".kwargs.end_factor: must be 0.0, got 0.4: the"),
    ("algorithm.cfg.lr_scheduler", {"name": "cosine"}, ".name: must be 'linear', got 'cosine': the learning rate"),
    ("algorithm.cfg.maximum_learning_rate", 0.5, ": must be 0.01, got 0.5: the adapted learning rate is between"),
    ("algorithm.cfg.schedule", "cosine", ": must be 'fixed' or 'adaptive', got 'cosine'"),
    ("algorithm.cfg.num_mini_batches", 0, ": must be a whole number above 0, got 0"),
    ("algorithm.cfg.num_mini_batches", 129, ": must be at most 128, the transitions of a rollout, got 129"),
    ("trainer.save_frequency_updates", -1, ": must be a whole number above 0, got -1"),
    ("algorithm.cfg.use_clipped_value_loss", 1, ": must be true or false, got 1"),
    ("policy.actor_obs_normalization", "no", ": must be true or false, got 'no'"),
    ("policy.initial_action_std", 0, ": must be a number above 0, got 0"),
    ("policy.action_std_range", 2, ": must be a list of two numbers, got 2"),
    ("policy.actor_obs_normalization", True, ": must be as 'policy.critic_obs_normalization': here both networks"),
]


@pytest.mark.parametrize(("path", "value", "problem"), REFUSED)
def test_what_would_change_the_training_is_refused_in_a_line(path: str, value: Any, problem: str) -> None:
    (line,) = read(at(path, value))[1]
    assert line.startswith(path + problem)


def test_both_forms_of_one_value_are_refused() -> None:
    config = at("algorithm.cfg.optimizer", {"learning_rate": 0.1})
    config["algorithm"]["cfg"]["learning_rate"] = 0.2
    (line,) = read(config)[1]
    assert line.startswith("algorithm.cfg.optimizer.learning_rate: is another form of 'algorithm.cfg.learning_rate'")


@pytest.mark.parametrize(
    ("path", "value", "instead"),
    [
        ("trainer.total_timesteps", 10, "trainer.iterations"),
        ("algorithm.cfg.num_mini_batches", 2, "algorithm.cfg.batch_size"),
    ],
)
def test_size_of_a_rollout_needs_the_number_of_environments(path: str, value: int, instead: str) -> None:
    config = at(path, value)
    del config["trainer"]["num_envs"]
    assert read(config)[1] == [f"{path}: needs 'trainer.num_envs' as well, or write '{instead}'"]


@pytest.mark.parametrize(
    ("config", "start"),
    [
        (
            at("trainer.learning_env", {"name": "PointMassRL"}),
            "trainer.learning_env: 'PointMassRL' belongs to EmbodiCh",
        ),
        (at("trainer.segment_length", 8, "apg"), "algorithm.name: 'apg' differentiates through the simulation"),
    ],
)
def test_differentiable_training_is_refused_in_one_line(config: Json, start: str) -> None:
    (line,) = read(config)[1]
    assert line.startswith(start)


def test_keys_of_users_policies_and_algorithms_are_their_own() -> None:
    config = at("algorithm.cfg.optimizer", {"name": "lion"}, "mine")
    config["policy"] = {"name": "theirs", "initial_action_std": 0.5}
    assert read(config) == (config, [])


@pytest.mark.parametrize("key", ["use_clipped_value_loss", "schedule", "num_mini_batches"])
def test_ppo_alone_has_the_keys_of_ppo(key: str) -> None:
    config = at(f"algorithm.cfg.{key}", True, "grpo")
    assert read(config) == (config, [])  # the parse refuses the key that is in the file


def test_grpo_has_no_learning_rate_that_falls() -> None:
    assert read(at("algorithm.cfg.lr_scheduler", {"name": "linear"}, "grpo"))[1] == [
        "algorithm.cfg.lr_scheduler.name: must be left out, got 'linear': only PPO's learning rate can fall"
    ]


def test_weight_of_the_value_loss_in_their_layout_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    config = at("algorithm.cfg.vf_coef", 0.5)
    read(config)
    assert capsys.readouterr().err == ""
    config["algorithm"]["cfg"]["num_mini_batches"] = 4
    read(config)
    warning = (
        "[WARNING] algorithm.cfg.vf_coef: weights half the squared error here, all of it in EmbodiChain: 1.0 is "
        "EmbodiChain's 0.5"
    )
    assert capsys.readouterr().err.splitlines()[1:] == [warning]
    config = at("algorithm.cfg.vf_coef", 0.5)
    config["trainer"]["renderer"] = "hybrid"
    read(config)
    assert capsys.readouterr().err.splitlines()[1:] == [warning]
