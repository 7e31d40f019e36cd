"""The algorithm under test, small policies, scripted rollouts, and hooks that record gradients.

Legend: N envs, T rollout steps, O observation size, A action size, S states.

Observations of all probes are independent of the actions, so a rollout needs no environment.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.utils import ConfigError, from_dict, replace

GROUP_SIZE = 8  # environments per group, for group-relative algorithms

# Defaults of the probes: one full-batch step of the plain loss. Settings that an algorithm lacks are left out.
_PLAIN = {
    "device": "cpu",
    "learning_rate": 0.05,
    "n_epochs": 1,
    "gamma": 0.5,
    "gae_lambda": 1.0,
    "max_grad_norm": 1e6,
    "clip_coef": 0.2,
    "ent_coef": 0.0,
    "kl_coef": 0.0,
    "group_size": GROUP_SIZE,
}


class CheckFailedError(Exception):
    """Arguments: expected result, result, likely cause."""


class CheckSkippedError(Exception):
    """A check does not apply; the message says why."""


def expect(condition: Any, expected: str, got: str, cause: str) -> None:
    """Raise CheckFailedError unless the condition holds, a bool or a tensor with one element."""
    if not condition:
        raise CheckFailedError(expected, got, cause)


class Patient:
    """The algorithm under test, built once per probe with the settings that the probe needs.

    It improves a small ``ActorCritic``.

    Args:
        cfg_kwargs: settings of the algorithm; probes override some.
    """

    def __init__(self, algo_class: type[BaseAlgorithm], cfg_kwargs: Mapping[str, Any]) -> None:
        if (needs := ", ".join(algo_class.needs)) or algo_class.learns_from != "rollouts":
            source = needs or algo_class.learns_from
            raise ConfigError(
                f"{algo_class.__name__} learns from {source}; the checks are of updates from rollouts alone"
            )
        self.algo_class = algo_class
        self._cfg = from_dict(algo_class.cfg_class, dict(cfg_kwargs), "cfg")

    def has(self, setting: str) -> bool:
        """Return whether the algorithm's config has a setting."""
        return hasattr(self._cfg, setting)

    def require(self, setting: str) -> None:
        """Skip the check where the algorithm's config lacks a setting."""
        if not self.has(setting):
            raise CheckSkippedError(f"the config has no {setting}")

    def build(self, policy: Policy, rollout: TensorDict, **settings: Any) -> BaseAlgorithm:
        """Build the algorithm, and prepare it for rollouts of this size as the trainer does.

        Args:
            rollout: [N, T+1]; one minibatch has the size of a whole rollout.
            settings: replace the probes' defaults.
        """
        num_envs, slots = rollout.batch_size
        wanted = {**_PLAIN, "batch_size": num_envs * (slots - 1), **settings}
        cfg = replace(self._cfg, **{name: value for name, value in wanted.items() if self.has(name)})
        algorithm = self.algo_class(cfg, policy)
        algorithm.prepare(rollout)
        return algorithm

    def train(self, policy: Policy, collect: Callable[[], TensorDict], **settings: Any) -> Iterator[None]:
        """Update a policy endlessly, each time with a new rollout [N, T+1] from ``collect``; yield after each."""
        rollout = collect()
        algorithm = self.build(policy, rollout, **settings)
        while True:
            algorithm.update(rollout)
            yield
            rollout = collect()


def table_policy(num_states: int, choices: tuple[int, ...] = ()) -> ActorCritic:
    """Return a tabular policy for S states, all 0: a value and a mean action for each, and std 1.

    With ``choices`` its actions are discrete, of equal probability.
    """
    actor, critic = (nn.Linear(num_states, size, bias=False) for size in (sum(choices) or 1, 1))
    for table in (actor, critic):
        nn.init.zeros_(table.weight)
    return ActorCritic(num_states, 1, "cpu", actor, critic, choices=choices)


def one_hot(states: Tensor, num_states: int) -> Tensor:
    """Return the observations [..., S] of states [...]."""
    return nn.functional.one_hot(states, num_states).float()


@torch.no_grad()
def values(policy: Policy, num_states: int) -> list[float]:
    """Return a table policy's value of each state."""
    td = policy.get_value(TensorDict({"obs": torch.eye(num_states)}, batch_size=[num_states]))
    return [float(value) for value in td["value"]]


def means(policy: Policy, num_states: int) -> list[float]:
    """Return a table policy's mean action in each state."""
    td = policy.get_action(TensorDict({"obs": torch.eye(num_states)}, batch_size=[num_states]), deterministic=True)
    return [float(action) for action in td["action"][:, 0]]


def alternating(num: int) -> Tensor:
    """Return +1, -1, +1, ... [num]; as actions of mean 0 and std 1, their scores cancel exactly."""
    return 1.0 - 2.0 * (torch.arange(num) % 2)


@torch.no_grad()
def play(
    policy: Policy,
    obs: Tensor,
    reward: Tensor | Callable[[Tensor], Tensor],
    terminated: Tensor,
    truncated: Tensor | None = None,
    final_obs: Tensor | None = None,
    action: Tensor | None = None,
) -> TensorDict:
    """Return the rollout [N, T+1] that a collector would write, ``final`` included.

    Args:
        policy: chooses the actions and values the states.
        obs: [N, T+1, O].
        reward: [N, T], or a function from the actions [N, T, A] to it.
        terminated: [N, T] bool.
        truncated: [N, T] bool; None: nowhere.
        final_obs: [N, T, O], the last observations of the episodes; needed where truncated.
        action: [N, T, A], instead of the policy's own samples.
    """
    num_envs, slots, obs_dim = obs.shape
    td = policy.get_action(TensorDict({"obs": obs}, batch_size=[num_envs, slots]))
    written = ("action", "sample_log_prob", "value", *(name for name, _ in policy.extra_fields))
    if action is not None:
        td["action"][:, :-1] = action
        td["sample_log_prob"] = policy.evaluate_actions(td)["sample_log_prob"]
    rollout = allocate_rollout(
        num_envs, slots - 1, obs_dim, td["action"].shape[-1], "cpu", extra_fields=policy.extra_fields, has_final=True
    )
    for name in ("obs", *written):
        rollout[name].copy_(td[name])
    rollout["terminated"][:, :-1] = terminated
    if truncated is not None:
        assert final_obs is not None
        final = policy.get_value(TensorDict({"obs": final_obs}, batch_size=[num_envs, slots - 1]))["value"]
        rollout["truncated"][:, :-1] = truncated
        is_cut = truncated & ~terminated
        rollout["final_value"][:, :-1] = final.masked_fill(~is_cut, 0.0)
        rollout["final"]["obs"][:, :-1] = final_obs * is_cut.unsqueeze(-1)
    rollout["done"].copy_(rollout["terminated"] | rollout["truncated"])
    rollout["reward"][:, :-1] = reward if isinstance(reward, Tensor) else reward(rollout["action"][:, :-1])
    # Slot T of these is padding; its values must not matter.
    for name in ("action", "sample_log_prob", "reward"):
        rollout[name][:, -1] = 1e3
    return rollout


def bandit(
    policy: Policy, states: Tensor, num_states: int, reward: Tensor | Callable[[Tensor], Tensor], action: Any = None
) -> TensorDict:
    """Return a rollout of one-step episodes, [N, 2], that all terminate.

    Args:
        states: [N], one for each environment.
        reward: [N], or a function from the actions [N] to it.
        action: [N], instead of the policy's own samples.
    """
    return play(
        policy,
        one_hot(states[:, None].expand(-1, 2), num_states),
        reward[:, None] if isinstance(reward, Tensor) else lambda a: reward(a[:, 0, 0])[:, None],
        torch.ones(len(states), 1, dtype=torch.bool),
        action=None if action is None else action[:, None, None],
    )


@contextmanager
def gradients(policy: Policy) -> Iterator[dict[str, Tensor]]:
    """Sum the gradients that reach the policy's parameters, by name, before clipping; 0 for parameters without one."""
    sums = {name: torch.zeros_like(parameter) for name, parameter in policy.named_parameters()}

    def add(name: str, gradient: Tensor) -> None:
        sums[name] += gradient.detach()

    handles = [parameter.register_hook(partial(add, name)) for name, parameter in policy.named_parameters()]
    try:
        yield sums
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def step_norms() -> Iterator[list[float]]:
    """Record the gradient norm of each optimizer step, after clipping."""
    norms: list[float] = []

    def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(torch.stack([p.grad.norm() for p in parameters]).norm()) if parameters else 0.0)

    handle = register_optimizer_step_pre_hook(before_step)
    try:
        yield norms
    finally:
        handle.remove()
