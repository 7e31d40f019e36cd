"""Checks of a built policy before the training begins, which the config alone does not allow."""

from __future__ import annotations

import torch

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.buffer import check_sequences
from embodichain.agents.rl.models import Policy, check_policy
from embodichain.agents.rl.models.block import space_size
from embodichain.agents.rl.models.policy import allocate_for
from embodichain.agents.rl.run_config import RunConfig, chunk_problems
from embodichain.agents.rl.task_env import TaskEnv, scene_cfg
from embodichain.utils import logger
from embodichain.utils.device import check_memory
from embodichain.utils.errors import raise_problems
from embodichain.utils.observations import IMAGE_DIMS, entry_spaces, zero_entries


def check_built_policy(run: RunConfig, env: TaskEnv, policy: Policy, device: torch.device) -> None:
    """Check that a policy fits its environment and the rollouts' length, and that the memory suffices to train it.

    Another library's image that no network reads is a warning.

    Raises:
        ConfigError: the parts do not fit, or a user's policy lacks something.
    """
    if get_algo_class(run.algorithm_name).learns_from != "demonstrations":
        raise_problems(chunk_problems(run.trainer.buffer_size, policy.chunk_length))
    check_policy(
        policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
        evaluated=get_algo_class(run.algorithm_name).reads_evaluated,
    )
    if scene_cfg(run.env) is None:  # ours have cameras for other purposes, too
        entries = entry_spaces(env.single_observation_space)
        for name in (
            name for name, box in entries.items() if len(box.shape) == IMAGE_DIMS and name not in policy.obs_keys
        ):
            logger.log_warning(
                f"no network reads the image '{name}': one of the type 'cnn' does, with it in its 'keys'"
            )
    trained = [values for values in policy.parameters() if values.requires_grad]
    what = f"gradients and the saved copy of the policy's {sum(values.numel() for values in trained):,} parameters"
    check_memory("policy", what, 2 * sum(values.nbytes for values in trained), device)


def check_rollouts(run: RunConfig, env: TaskEnv, algorithm: BaseAlgorithm) -> None:
    """Check that the rollouts for an algorithm fit the memory of its device, and its policy's sequences fit them.

    Raises:
        ConfigError: they do not match.
    """
    if algorithm.learns_from == "demonstrations":
        return
    policy, num_steps = algorithm.policy, run.trainer.buffer_size
    num_decisions = num_steps // policy.chunk_length
    rollout = allocate_for(
        policy,
        env.num_envs,
        num_decisions,
        space_size(env.flattened_observation_space),
        space_size(env.single_action_space),
        "meta",  # of which nothing is allocated
        zero_entries(env.single_observation_space, policy.obs_keys, 0),
        has_final=algorithm.reads_final_obs,
    )
    what = f"the {num_steps:,} steps of a rollout in {env.num_envs:,} environments"
    check_memory("trainer.buffer_size", what, rollout.bytes(), algorithm.device)
    if algorithm.learns_from == "rollouts":
        check_sequences(policy, num_decisions, algorithm.batch_size)
