"""What every algorithm has: its configuration and its interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.chunks import LogProbLevel
from embodichain.agents.rl.algo.updates import take_step_counts
from embodichain.agents.rl.models import Policy
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
        if self.batch_size <= transitions:
            return []
        return [
            f"algorithm.cfg.batch_size: {self.batch_size} is more than a rollout has: {num_envs} environments "
            f"(trainer.num_envs) x {buffer_size} steps (trainer.buffer_size) = {transitions}"
        ]


class BaseAlgorithm(ABC):
    """Improves a policy from rollouts.

    Args:
        cfg: an instance of the class's ``cfg_class``.
        policy: the policy to improve, on ``cfg.device``.
    """

    cfg_class: ClassVar[type[AlgorithmCfg]] = AlgorithmCfg
    """The class of ``cfg``; ``build_algo`` reads it."""

    device: torch.device
    """Where updates run."""
    reset_every_rollout: bool = False
    """Whether every rollout is to begin with new episodes in all environments; the trainer sees to it."""
    progress: float = 0.0
    """Share of the training that is done, [0, 1)."""
    parameters: list[nn.Parameter]
    """The policy's."""
    batch_size: int
    """Transitions of a minibatch."""

    def __init__(self, cfg: AlgorithmCfg, policy: Policy) -> None:
        self.policy = policy
        self.parameters = list(policy.parameters())  # listing them takes as long as a small network's layer
        self.device = torch.device(cfg.device)
        self.batch_size = cfg.batch_size

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
        """Return what, beside the policy, the next update depends on, for a checkpoint: here all optimisers' states."""
        return {name: optimizer.state_dict() for name, optimizer in self._optimizers().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` returned."""
        for name, optimizer in self._optimizers().items():
            # Which of an optimiser's forms is used depends on the device, which may be another one now.
            groups = [
                group | {"fused": own["fused"]} if "fused" in own else group
                for group, own in zip(state[name]["param_groups"], optimizer.param_groups, strict=True)
            ]
            optimizer.load_state_dict({**state[name], "param_groups": groups})
            for group in optimizer.param_groups:
                if isinstance(group["lr"], torch.Tensor):  # one that adapts
                    group["lr"] = group["lr"].to(self.device)

    def take_step_counts(self) -> tuple[int, int]:
        """Return how many steps ``gradient_step`` was asked for since the last call, and how many it skipped."""
        counts = [c for optimizer in self._optimizers().values() if (c := take_step_counts(optimizer)) is not None]
        if not counts:
            return 0, 0
        asked, skipped = torch.stack(counts).sum(0).tolist()
        return asked, skipped

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: value for name, value in vars(self).items() if isinstance(value, torch.optim.Optimizer)}
