"""The scale of what a policy reads, as EmbodiChain's own configs leave it: they say nothing about normalisation."""

import copy
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.build import build_envs, build_learner
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.run_config import load_run_config
from tests.lab.originals import PUSH_CUBE, PUSH_CUBE_TRAIN


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
