"""The algorithm under examination."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.models import Policy
from embodichain.tools.doctor.report import CheckSkippedError
from embodichain.utils.configclass import replace
from embodichain.utils.validation import from_dict

__all__ = ["GROUP_SIZE", "Patient"]

GROUP_SIZE = 8  # environments that start alike, for algorithms that compare within groups

# What suits most probes: one full-batch step of the plain loss. Only the settings that an algorithm has are used.
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


class Patient:
    """An algorithm that is built anew for each probe, with the settings that the probe needs.

    Args:
        cfg_kwargs: its settings; those that a probe fixes are replaced.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """

    def __init__(self, algo_class: type[BaseAlgorithm], cfg_kwargs: Mapping[str, Any]) -> None:
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
        """Build the algorithm.

        Args:
            policy: what it is to improve.
            rollout: [N, T+1], of the size of those to come: one minibatch holds it all.
            settings: in place of those that suit most probes.
        """
        num_envs, slots = rollout.batch_size
        wanted = {**_PLAIN, "batch_size": num_envs * (slots - 1), **settings}
        cfg = replace(self._cfg, **{name: value for name, value in wanted.items() if self.has(name)})
        return self.algo_class(cfg, policy)

    def train(self, policy: Policy, collect: Callable[[], TensorDict], **settings: Any) -> Iterator[None]:
        """Update a policy for ever, each time from a rollout of its own; yield after each update.

        Args:
            collect: returns a rollout [N, T+1] of the policy as it is.
            settings: as in ``build``.
        """
        rollout = collect()
        algorithm = self.build(policy, rollout, **settings)
        while True:
            algorithm.update(rollout)
            yield
            rollout = collect()
