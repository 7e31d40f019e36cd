"""``embodichain verify-backends``: the two engines side by side, on the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from embodichain.tools.verify.compare import (
    FIELDS,
    LIMIT,
    Actor,
    Difference,
    Spread,
    compare_runs,
    compare_steps,
    random_actions,
)
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import placed
from embodichain.utils.module_utils import add_allow_import, allowed_imports

__all__ = ["add_arguments", "run"]

_SHOWN = (1, 2, 5)  # and tens of these


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        devices: the engines, as ``sim_device``.
        steps: how far they are apart after one step from the same state, by field.
        drift: step by step, without bringing the states together again.
        success: of the policy on either engine; empty without one.
        agree: whether they agree.
    """

    devices: tuple[str, str]
    steps: dict[str, Spread]
    drift: list[Difference]
    success: list[Evaluation]
    agree: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help="a training config; its environment is compared")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="a policy of it, to act and to be evaluated")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help=f"of MuJoCo Warp: 'cuda:<number>', or '{WARP_ON_CPU}' (default: the first GPU, else that)",
    )
    parser.add_argument("--envs", type=_positive, default=8, metavar="N", help="environments (default: %(default)s)")
    parser.add_argument("--steps", type=_positive, default=50, metavar="T", help="steps (default: %(default)s)")
    parser.add_argument(
        "--episodes",
        type=_positive,
        default=50,
        metavar="E",
        help="of the policy on each engine (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of states and actions (default: %(default)s)")
    add_allow_import(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Compare, and print what was found; return 0 if the engines agree, else 1.

    Raises:
        ConfigError: the config is wrong, an engine cannot run it, or the checkpoint does not fit it.
    """
    device = args.device or ("cuda:0" if torch.cuda.is_available() else WARP_ON_CPU)
    with placed("--device: "):
        if not parse_sim_device(device)[0]:
            raise ConfigError(f"must be 'cuda:<number>' or '{WARP_ON_CPU}', got '{device}'")
    allowed = allowed_imports(args)
    config = load_run_config(args.config, ["trainer.device=cpu", "trainer.sim_device=cpu"], allowed)
    content = None if args.checkpoint is None else load_checkpoint(args.checkpoint)
    devices = ("cpu", device)
    envs: list[EmbodiedEnv] = []
    try:
        for name in devices:
            envs.append(_build(config, name, args.envs))
        verdict = _verify(config, envs, devices, content, args)
    finally:
        for env in envs:
            env.close()
    print(json.dumps(asdict(verdict), indent=2, default=str) if args.json else _describe(verdict, args))
    return 0 if verdict.agree else 1


def _build(config: RunConfig, device: str, num_envs: int) -> EmbodiedEnv:
    """Build the environment on an engine; whatever its episodes would write is left out."""
    sim_cfg = replace(config.env.sim_cfg, sim_device=device)
    env = replace(config.env, num_envs=num_envs, sim_cfg=sim_cfg, group_size=1, dataset={})
    return build_env(config.env_id, env)


def _verify(
    config: RunConfig,
    envs: Sequence[EmbodiedEnv],
    devices: tuple[str, str],
    content: dict[str, Any] | None,
    args: argparse.Namespace,
) -> Verdict:
    policy = None if content is None else _load_policy(config, envs[0], content, args.checkpoint)
    act = random_actions(envs[0], args.seed) if policy is None else _actor(policy)
    steps = compare_steps(envs, act, args.steps, args.seed)
    drift = compare_runs(envs, act, args.steps, args.seed)
    success = []
    if policy is not None:
        cpu = torch.device("cpu")
        success = [Evaluator(env, args.episodes, args.seed, cpu, Path("videos")).run(policy, "verify") for env in envs]
    agree = bool(steps) and all(spread.median <= LIMIT for spread in steps.values()) and _overlap(success)
    return Verdict(devices, steps, drift, success, agree)


def _load_policy(config: RunConfig, env: EmbodiedEnv, content: dict[str, Any], path: Path) -> Policy:
    policy = build_env_policy(config, env, torch.device("cpu"))
    load_policy_state(policy, content["policy"], f"--checkpoint {path}")
    return policy


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


def _describe(verdict: Verdict, args: argparse.Namespace) -> str:
    one, other = verdict.devices
    lines = [f"engines: mujoco.batch on {one}, MuJoCo Warp on {other}; {args.envs} environments", ""]
    for name, spread in verdict.steps.items():
        lines.append(
            f"one step from the same state, {spread.count} times, {name}: median {spread.median:.1e} apart, "
            f"nine in ten {spread.ninetieth:.1e}, at most {spread.largest:.1e}"
        )
    if not verdict.steps:
        lines.append("one step from the same state: nothing to compare, all episodes ended in their first step")
    lines += [
        "",
        "the same start and the same actions:",
        f"{'step':>6}{'envs':>6}" + "".join(f"{name + part:>13}" for name in FIELDS for part in (" median", " max")),
    ]
    lines[-1] += f"{'reward max':>13}"
    for row in verdict.drift:
        if row is verdict.drift[-1] or _is_shown(row.step):
            cells = [row.median[name] if part else row.largest[name] for name in FIELDS for part in (1, 0)]
            lines.append(f"{row.step:>6}{row.envs:>6}" + "".join(f"{cell:>13.1e}" for cell in (*cells, row.reward)))
    for name, evaluation in zip(verdict.devices, verdict.success, strict=False):
        low, high = evaluation.success_interval
        lines += [] if lines[-1].startswith("success") else [""]
        lines.append(
            f"success on {name}: {evaluation.success_rate:.1%} of {evaluation.episodes} episodes "
            f"(95 %: {low:.1%} to {high:.1%}), mean return {evaluation.avg_reward:.3f}"
        )
    return "\n".join([*lines, "", "the engines agree" if verdict.agree else "the engines do NOT agree"])


def _is_shown(step: int) -> bool:
    while step % 10 == 0:
        step //= 10
    return step in _SHOWN


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number
