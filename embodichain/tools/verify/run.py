"""Runs the two backends side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.build import build_env_policy
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.models import Policy, load_policy_state, policy_input
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.trainer.evaluation import Evaluation, Evaluator
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.backend import WARP_ON_CPU, parse_sim_device
from embodichain.tools.verify.steps import LIMIT, Actor, Difference, Spread, compare_runs, compare_steps, random_actions
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import placed


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        devices: the backends, as ``sim_device``.
        steps: how far they are apart after one step from the same state, by field.
        drift: step by step, without bringing the states together again.
        success: of the policy on either backend; empty without one.
    """

    devices: tuple[str, str]
    steps: dict[str, Spread]
    drift: list[Difference]
    success: list[Evaluation]
    agree: bool
    num_envs: int


def verify_backends(
    config_path: str,
    checkpoint: Path | None,
    device: str | None,
    num_envs: int,
    steps: int,
    episodes: int,
    seed: int,
    allowed_imports: Sequence[str],
) -> Verdict:
    """Compare MuJoCo's and MuJoCo Warp's physics of a training config's environment.

    Args:
        checkpoint: a policy of it, to act and to be evaluated; None: random actions.
        device: of MuJoCo Warp; None: the first GPU, else the CPU.
        episodes: of the policy on each backend.
        allowed_imports: prefixes of modules that the config may name.

    Raises:
        ConfigError: the config is wrong, a backend cannot run it, or the checkpoint does not fit it.
    """
    device = device or ("cuda:0" if torch.cuda.is_available() else WARP_ON_CPU)
    with placed("--device: "):
        if not parse_sim_device(device)[0]:
            raise ConfigError(f"must be 'cuda:<number>' or '{WARP_ON_CPU}', got '{device}'")
    config = load_run_config(config_path, ["trainer.device=cpu", "trainer.sim_device=cpu"], allowed_imports)
    content = None if checkpoint is None else load_checkpoint(checkpoint)
    devices, cpu = ("cpu", device), torch.device("cpu")
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(_build(config, name, num_envs))) for name in devices]
        policy = None
        if content is not None:
            policy = build_env_policy(config, envs[0], cpu)
            load_policy_state(policy, content["policy"], f"--checkpoint {checkpoint}")
        act = random_actions(envs[0], seed) if policy is None else _actor(policy)
        spreads = compare_steps(envs, act, steps, seed)
        drift = compare_runs(envs, act, steps, seed)
        success: list[Evaluation] = []
        if policy is not None:
            success = [Evaluator(env, episodes, seed, cpu, Path("videos")).run(policy, "verify") for env in envs]
    agree = bool(spreads) and all(spread.median <= LIMIT for spread in spreads.values()) and _overlap(success)
    return Verdict(devices, spreads, drift, success, agree, num_envs)


def _build(config: RunConfig, device: str, num_envs: int) -> EmbodiedEnv:
    """Build the environment on a backend; whatever its episodes would write is left out."""
    sim_cfg = replace(config.env.sim_cfg, sim_device=device)
    env = replace(config.env, num_envs=num_envs, sim_cfg=sim_cfg, group_size=1, dataset={})
    return build_env(config.env_id, env)


def _actor(policy: Policy) -> Actor:
    state: list[Tensor] = []

    def act(obs: TensorDict, step: int) -> Tensor:
        if policy.state_size and step == 0:
            state[:] = [torch.zeros(obs.batch_size[0], policy.state_size)]
        given = policy_input(policy, obs, state[0] if state else None, torch.device("cpu"))
        result = policy.get_action(given, deterministic=True)
        if state:
            state[:] = [result["next_state"]]
        action: Tensor = result["action"]
        return action

    return act


def _overlap(success: Sequence[Evaluation]) -> bool:
    """Return whether the success rates' intervals do."""
    if not success:
        return True
    (low, high), (lowest, highest) = (evaluation.success_interval for evaluation in success)
    return low <= highest and lowest <= high
