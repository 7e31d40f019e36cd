"""The same states and actions on two backends. Shapes: N environments, A action size, T steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv

FIELDS = ("qpos", "qvel")
LIMIT = 1e-4
"""Largest median difference after one step from the same state that counts as agreement; rad, m, rad/s, m/s."""

_STATE = ("qpos", "qvel", "ctrl", "qacc_warmstart", "qfrc_applied", "mocap_pos", "mocap_quat")

Actor = Callable[[TensorDict, int], Tensor]
"""Returns the action [N, A] for an observation and a step's number."""


@dataclass(frozen=True)
class Difference:
    """How far the backends are apart, over the environments that are still in their first episode on both.

    Attributes:
        envs: how many environments these are.
        median: of the environments' largest differences, by field.
        largest: of all, by field.
        reward: largest difference of the step's rewards.
    """

    step: int
    envs: int
    median: dict[str, float]
    largest: dict[str, float]
    reward: float


@dataclass(frozen=True)
class Spread:
    """Of differences after single steps."""

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
    """Return how two environments drift apart that begin alike and are given the same actions, step by step.

    Args:
        envs: of the same config, on two backends.
        act: chooses both's actions by the first one's observation.
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
    """Return what single steps make of the same state, at each step of the first environment's run, by field."""
    found = [apart for _, apart, _ in _follow(envs, act, num_steps, seed, resync=True)]
    if not found:
        return {}
    return {name: Spread.of(torch.cat([apart[name] for apart in found])) for name in FIELDS}


def _follow(
    envs: Sequence[EmbodiedEnv], act: Actor, num_steps: int, seed: int, resync: bool
) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
    """Yield after each step how far the backends are apart, by field, and in their rewards, [environments] each."""
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
