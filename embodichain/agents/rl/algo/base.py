"""What every algorithm has: its configuration and its interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from embodichain.agents.rl.algo.chunks import LogProbLevel
from embodichain.agents.rl.algo.updates import take_step_counts
from embodichain.agents.rl.models import EVALUATED, Policy
from embodichain.utils import configclass

__all__ = ["AlgorithmCfg", "BaseAlgorithm"]


@configclass
class AlgorithmCfg:
    """Settings that the algorithms share."""

    device: str = "cpu"
    """Where updates run; the trainer's device."""
    learning_rate: PositiveFloat = 3e-4
    """Step size of Adam."""
    n_epochs: PositiveInt = 10
    """Passes over each rollout."""
    batch_size: PositiveInt = 2048
    """Transitions per minibatch, in each of several processes; the last one of an epoch holds the remainder. Left
    out, it is a whole rollout where that has fewer."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Discount per control step."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Weight of longer returns in the advantage: 0 is the one-step error, 1 the whole return."""
    logprob_level: LogProbLevel = "action"
    """Of policies that choose chunks of actions: what has a probability ratio of its own. Each entry of an action that
    the policy tells apart (``"token"``), each action, or the whole chunk; what was not executed never counts."""
    max_grad_norm: PositiveFloat = 0.5
    """Norm to which the gradient of all parameters together is cut."""

    def check_run(self, num_envs: int, buffer_size: int) -> list[str]:
        """Return what makes these settings impossible for rollouts of so many environments and steps, a line each."""
        transitions = num_envs * buffer_size
        # The default is an upper limit: a small rollout makes one minibatch, and nobody has to write a size for it.
        if self.batch_size <= transitions or self.batch_size == AlgorithmCfg.batch_size:
            return []
        return [
            f"algorithm.cfg.batch_size: {self.batch_size} is more than a rollout has: {num_envs} environments "
            f"(trainer.num_envs) x {buffer_size} steps (trainer.buffer_size) = {transitions}"
        ]


class BaseAlgorithm(ABC):
    """Improves a policy from rollouts.

    A subclass has ``update``, and sets ``cfg``, ``policy`` and ``device``, itself or by ``super().__init__(cfg,
    policy)``. All else that is here follows from these three; a subclass may set it instead.

    Args:
        cfg: an instance of the class's ``cfg_class``.
        policy: the policy to improve, on ``cfg.device``.
    """

    cfg_class: ClassVar[type[Any]] = AlgorithmCfg
    """The class of ``cfg``, a ``@configclass`` with a ``device``; ``build_algo`` reads it."""
    reads_evaluated: ClassVar[tuple[str, ...]] = EVALUATED
    """What it reads of ``Policy.evaluate_actions``; a policy that does not return it is refused at the start."""

    cfg: Any
    """The settings."""
    policy: Policy
    """What is improved."""
    progress: float = 0.0
    """Share of the training that is done, [0, 1)."""

    def __init__(self, cfg: Any, policy: Policy) -> None:
        self.cfg = cfg
        self.policy = policy

    # Each is computed when it is first asked for, and then an attribute like any other.

    @cached_property
    def device(self) -> torch.device:
        """Where updates run."""
        return torch.device(self.cfg.device)

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The policy's; listing them takes as long as a small network's layer."""
        return list(self.policy.parameters())

    @cached_property
    def batch_size(self) -> int:
        """Transitions of a minibatch; where the settings have none, as many as by default."""
        size: int = getattr(self.cfg, "batch_size", AlgorithmCfg.batch_size)
        return size

    @cached_property
    def reset_every_rollout(self) -> bool:
        """Whether every rollout is to begin with new episodes in all environments; the trainer sees to it."""
        return bool(getattr(self.cfg, "reset_every_rollout", False))

    @abstractmethod
    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy.

        Args:
            rollout: complete rollout [N, T+1] (fields in ``buffer/layout.py``) of the policy as it is now, or of
                earlier versions of it where it has ``lag``.

        Returns:
            Scalars to log: name -> value.
        """

    def set_progress(self, fraction: float) -> None:
        """Take note of the share of the training that is done, [0, 1); the trainer says it before each update."""
        self.progress = fraction

    def state_dict(self) -> dict[str, Any]:
        """Return what, beside the policy, the next update depends on, for a checkpoint, as plain data.

        Here it is the states of the attributes that are optimisers, learning-rate schedules, or networks beside the
        policy's own. What else changes from update to update a subclass adds.
        """
        return {name: value.state_dict() for name, value in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` returned."""
        for name, value in self._stateful().items():
            if isinstance(value, torch.optim.Optimizer):
                self._load_optimizer(value, state[name])
            else:
                value.load_state_dict(state[name])

    def take_step_counts(self) -> tuple[int, int]:
        """Return how many steps ``gradient_step`` was asked for since the last call, and how many it skipped."""
        counts = [c for optimizer in self._optimizers().values() if (c := take_step_counts(optimizer)) is not None]
        if not counts:
            return 0, 0
        asked, skipped = torch.stack(counts).sum(0).tolist()
        return asked, skipped

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: value for name, value in vars(self).items() if isinstance(value, torch.optim.Optimizer)}

    def _stateful(self) -> dict[str, Any]:
        kinds = (torch.optim.Optimizer, LRScheduler, nn.Module)
        policy = set(self.policy.modules())
        return {name: value for name, value in vars(self).items() if isinstance(value, kinds) and value not in policy}

    def _load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        # Which of an optimiser's forms is used depends on the device, which may be another one now.
        groups = [
            group | {"fused": own["fused"]} if "fused" in own else group
            for group, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
        ]
        optimizer.load_state_dict({**state, "param_groups": groups})
        for group in optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):  # one that adapts
                group["lr"] = group["lr"].to(self.device)
