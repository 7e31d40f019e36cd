"""The built-in policies from their config block through collection and update. Legend: N envs, T rollout steps."""

import copy
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import PPO, PPOCfg, compute_gae
from embodichain.agents.rl.buffer import iterate_minibatches, learning_batch
from embodichain.agents.rl.build import build_envs, build_learner
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.run_config import load_run_config
from tests.agents.rl.probes import IMAGE, ColourEnv, MemoryEnv, ProbeEnv
from tests.lab.originals import PUSH_CUBE, PUSH_CUBE_TRAIN

MLP: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
CNN: dict[str, Any] = {
    "type": "cnn",
    "keys": [IMAGE],
    "network_cfg": {"channels": [4], "kernel_sizes": [4], "strides": [2], "hidden_sizes": [16]},
}
BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {"name": "actor_critic", "actor": MLP, "critic": MLP},
    "squashed": {"name": "actor_critic", "actor": MLP, "critic": MLP, "squash": True},
    "scaled": {"name": "actor_critic", "actor": MLP, "critic": MLP, "scale_actions": True},
    "asymmetric": {"name": "actor_critic", "actor": MLP, "critic": MLP, "obs_groups": {"actor": ["robot/clock"]}},
    "image": {"name": "actor_critic", "actor": CNN, "critic": CNN},
    "image for the critic": {"name": "actor_critic", "actor": MLP, "critic": CNN, "squash": True},
    "recurrent": {"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 8},
    "scaled recurrent": {
        **{"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 8},
        **{"scale_actions": True, "sequence_length": 3},
    },
    "squashed recurrent in pieces": {
        **{"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 8},
        **{"squash": True, "sequence_length": 3, "obs_groups": {"actor": ["robot/clock"]}},
    },
}


def make(block: dict[str, Any], env: ProbeEnv) -> Policy:
    torch.manual_seed(0)
    return build_policy(
        block,
        env.flattened_observation_space,
        env.single_action_space,
        "cpu",
        observation_space=env.single_observation_space,
    )


def env_of(name: str, num_envs: int = 5) -> ProbeEnv:
    # recurrent: episodes of 4 in rollouts of 6, so that they end inside sequences of 6 and of 3
    return ColourEnv(num_envs) if "image" in name else MemoryEnv(num_envs)


@pytest.mark.parametrize("name", BLOCKS)
def test_ratio_is_one_before_the_first_step_of_an_update(name: str) -> None:
    env = env_of(name)
    policy = make(BLOCKS[name] | {"normalize_obs": True, "init_log_std": -0.5}, env)
    collector = SyncCollector(env, policy, "cpu")
    policy.update_normalizer(collector.collect(6)["obs"][:, :-1])
    rollout = collector.collect(6)
    for minibatch in iterate_minibatches(learning_batch(rollout, policy), 12, "cpu"):
        new = policy.evaluate_actions(minibatch)
        ratio = (new["sample_log_prob"] - minibatch["sample_log_prob"]).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-5, rtol=0)
        assert new["mean"].shape == new["log_std"].shape == minibatch["action"].shape
    batch = learning_batch(rollout, policy, value=rollout["value"][:, :-1])
    torch.testing.assert_close(policy.evaluate_actions(batch)["value"], batch["value"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BLOCKS)
def test_update_reaches_every_parameter(name: str) -> None:
    env = env_of(name)
    policy = make(BLOCKS[name] | {"normalize_obs": True}, env)
    before = {key: value.clone() for key, value in policy.named_parameters()}
    algorithm = PPO(PPOCfg(n_epochs=2, batch_size=12, ent_coef=0.01), policy)
    rollout = SyncCollector(env, policy, "cpu").collect(6)
    losses = algorithm.update(rollout)
    policy.update_normalizer(rollout["obs"][:, :-1])
    assert all(torch.tensor(value).isfinite() for value in losses.values())
    assert [key for key, value in policy.named_parameters() if torch.equal(value, before[key])] == []

    torch.manual_seed(1)
    other = make(BLOCKS[name] | {"normalize_obs": True}, env)
    other.load_state_dict(policy.state_dict())
    results = [p.evaluate_actions(learning_batch(rollout, p))["sample_log_prob"] for p in (policy, other)]
    assert torch.equal(*results)


def train(env: ProbeEnv, block: dict[str, Any], iterations: int) -> float:
    """Return the mean reward of the last steps of episodes in the last rollout; 0 is best, a constant has -1."""
    policy = make(block | {"init_log_std": -1.0}, env)
    collector = SyncCollector(env, policy, "cpu")
    algorithm = PPO(PPOCfg(learning_rate=3e-3, n_epochs=4, batch_size=128, gamma=0.99), policy)
    for _ in range(iterations):
        rollout = collector.collect(8)
        algorithm.update(rollout)
    done = rollout["done"][:, :-1]
    assert compute_gae(rollout, 0.99, 0.95)[0].isfinite().all()
    return float(rollout["reward"][:, :-1][done].mean())


@pytest.mark.e2e
@pytest.mark.learning
def test_colour_is_learned_from_images_alone() -> None:
    assert train(ColourEnv(32), BLOCKS["image"], 30) > -0.25
    assert train(ColourEnv(32), BLOCKS["plain"], 30) < -0.75


@pytest.mark.e2e
@pytest.mark.learning
def test_cue_is_remembered_by_the_recurrent_policy_alone() -> None:
    # The deviation is learned too; at its first value, 0.37, the best policy still pays 0.14.
    assert train(MemoryEnv(64), BLOCKS["recurrent"], 40) > -0.25
    assert train(MemoryEnv(64), BLOCKS["plain"], 40) < -0.75


def share_beyond_the_bounds(**policy_keys: Any) -> float:
    """Return the share of the untrained policy's mean actions that the environment would clip."""
    config = copy.deepcopy(PUSH_CUBE_TRAIN)
    config["trainer"] |= {"gym_config": PUSH_CUBE, "device": "cpu", "num_envs": 8, "enable_eval": False}
    config["policy"] |= policy_keys
    run = load_run_config(config)
    torch.manual_seed(0)
    env, _ = build_envs(run)
    policy, _ = build_learner(run, env, torch.device("cpu"))
    collector = SyncCollector(env, policy, "cpu")
    warm_up = collector.collect(16)
    policy.update_normalizer(warm_up["obs"][:, :-1].flatten(0, 1))
    obs = collector.collect(16)["obs"]
    mean = policy(TensorDict({"obs": obs}, batch_size=obs.shape[:2]), deterministic=True)["action"]
    return (mean.abs() > 1).float().mean().item()


def test_large_joint_efforts_do_not_saturate_a_policy() -> None:
    assert share_beyond_the_bounds() == 0
    assert share_beyond_the_bounds(normalize_obs=False) > 0.1  # nothing is learned there: the arm is driven into limits
