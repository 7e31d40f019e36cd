"""Compares the two physics backends. Shapes: N environments, A action size, T steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.build import build_env_policy
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.gymnasium_checks import with_scene
from embodichain.agents.rl.models import Policy, load_policy_state, policy_input
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.trainer.evaluation import Evaluation, Evaluator, wilson_interval
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.backend import WARP_ON_CPU, has_warp, parse_sim_device
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import placed
from embodichain.utils.extras import install_extra

FIELDS = ("qpos", "qvel")
LIMIT = 1e-4
"""Largest median difference after one step from the same state that counts as agreement; rad, m, rad/s, m/s."""

_STATE = ("qpos", "qvel", "ctrl", "qacc_warmstart", "qfrc_applied", "mocap_pos", "mocap_quat")

Actor = Callable[[TensorDict, int], Tensor]
"""Returns the action [N, A] for an observation and a step's number."""
_SHOWN = (1, 2, 5)  # and tens of these


@dataclass(frozen=True)
class Verdict:
    """Result of the comparison.

    Attributes:
        devices: the backends, as ``sim_device``.
        steps: differences after one step from the same state, by field.
        drift: differences step by step, without synchronising the states.
        success: of the policy on each backend; empty without a policy.
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
        checkpoint: of a policy to act and to evaluate; None: random actions.
        device: of MuJoCo Warp; None: the first GPU, else the CPU.
        episodes: of the policy on each backend.
        allowed_imports: prefixes of modules that the config may name.

    Raises:
        ConfigError: the config is wrong, a backend cannot run it, or the checkpoint does not fit it.
    """
    if not has_warp():
        raise ConfigError(f"verify-backends compares MuJoCo with MuJoCo Warp, on a GPU or not: {install_extra('gpu')}")
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
    """Build the environment on a backend, without dataset recording."""
    cfg = with_scene(config.env, "verify-backends")
    sim_cfg = replace(cfg.sim_cfg, sim_device=device)
    env = replace(cfg, num_envs=num_envs, sim_cfg=sim_cfg, group_size=1, dataset={}, curriculum={})
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


def _rate(evaluation: Evaluation) -> tuple[float, int]:
    assert evaluation.success_rate is not None  # an environment of ours
    return evaluation.success_rate, evaluation.episodes


def _overlap(success: Sequence[Evaluation]) -> bool:
    """Return whether the success rates' intervals overlap."""
    if not success:
        return True
    (low, high), (lowest, highest) = (wilson_interval(rate, n) for rate, n in map(_rate, success))
    return low <= highest and lowest <= high


@dataclass(frozen=True)
class Difference:
    """Differences of the backends, over the environments that are in their first episode on both.

    Attributes:
        envs: number of these environments.
        median: over environments, of the largest difference, by field.
        largest: over environments, by field.
        reward: largest difference of the step's rewards.
    """

    step: int
    envs: int
    median: dict[str, float]
    largest: dict[str, float]
    reward: float


@dataclass(frozen=True)
class Spread:
    """Quantiles of differences after single steps."""

    median: float
    ninetieth: float
    largest: float
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Spread:
        """Return the spread of some numbers."""
        return cls(float(values.median()), float(values.quantile(0.9)), float(values.max()), len(values))


def random_actions(env: EmbodiedEnv, seed: int) -> Actor:
    """Return an actor that holds random actions for 5 steps each, between -1 and 1 or narrower limits."""
    generator = torch.Generator().manual_seed(seed)
    low, high = (limit.cpu().clamp(-1.0, 1.0) for limit in (env.action_manager.low, env.action_manager.high))
    drawn: dict[int, Tensor] = {}

    def act(obs: TensorDict, step: int) -> Tensor:
        number = step // 5
        if number not in drawn:
            drawn[number] = low + (high - low) * torch.rand(env.num_envs, len(low), generator=generator)
        return drawn[number]

    return act


def compare_runs(envs: Sequence[EmbodiedEnv], act: Actor, num_steps: int, seed: int) -> list[Difference]:
    """Return the differences of two environments, step by step, from the same start with the same actions.

    Args:
        envs: of the same config, on two backends.
        act: chooses the actions of both from the first one's observation.
    """
    return [
        Difference(
            step,
            len(reward),
            {name: float(values.median()) for name, values in apart.items()},
            {name: float(values.max()) for name, values in apart.items()},
            float(reward.max()),
        )
        for step, apart, reward in _follow(envs, act, num_steps, seed, resync=False)
    ]


def compare_steps(envs: Sequence[EmbodiedEnv], act: Actor, num_steps: int, seed: int) -> dict[str, Spread]:
    """Return the differences after single steps from the states of the first environment's run, by field."""
    found = [apart for _, apart, _ in _follow(envs, act, num_steps, seed, resync=True)]
    if not found:
        return {}
    return {name: Spread.of(torch.cat([apart[name] for apart in found])) for name in FIELDS}


def _follow(
    envs: Sequence[EmbodiedEnv], act: Actor, num_steps: int, seed: int, resync: bool
) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
    """Yield after each step its number and the differences by field and of the rewards, [environments] each."""
    one, other = envs
    obs, _ = one.reset(seed=seed)
    other.reset(seed=seed)
    alive = torch.ones(one.num_envs, dtype=torch.bool)
    for step in range(1, num_steps + 1):
        if step == 1 or resync:
            _copy_state(one, other)
        action = act(obs, step - 1)
        results = [env.step(action.to(env.device)) for env in envs]
        obs = results[0][0]
        for _, _, terminated, truncated, _ in results:
            alive &= ~(terminated | truncated).cpu()
        if not alive.any():
            return
        apart = {}
        for name in FIELDS:
            ours, theirs = (env.sim.backend.read(name).cpu()[alive] for env in envs)
            apart[name] = (ours - theirs).abs().amax(dim=1)
        yield step, apart, (results[0][1].cpu() - results[1][1].cpu()).abs()[alive]


def _copy_state(source: EmbodiedEnv, target: EmbodiedEnv) -> None:
    for name in _STATE:
        target.sim.backend.write(name, slice(None), source.sim.backend.read(name).to(target.device))


def format_verdict(verdict: Verdict) -> str:
    """Return what was found, for the screen."""
    one, other = verdict.devices
    lines = [f"backends: mujoco.batch on {one}, MuJoCo Warp on {other}; {verdict.num_envs} environments", ""]
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
        rate, episodes = _rate(evaluation)
        low, high = wilson_interval(rate, episodes)
        lines += [] if lines[-1].startswith("success") else [""]
        lines.append(
            f"success on {name}: {rate:.1%} of {episodes} episodes "
            f"(95 %: {low:.1%} to {high:.1%}), mean return {evaluation.avg_reward:.3f}"
        )
    return "\n".join([*lines, "", "the backends agree" if verdict.agree else "the backends do NOT agree"])


def _is_shown(step: int) -> bool:
    while step % 10 == 0:
        step //= 10
    return step in _SHOWN
