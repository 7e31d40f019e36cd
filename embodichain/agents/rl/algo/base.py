"""What every algorithm has: its settings, its interface, its optimizer and its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from embodichain.agents.rl.algo.optim import gradient_step, take_step_counts
from embodichain.agents.rl.models import EVALUATED, Policy
from embodichain.utils import configclass

__all__ = ["BaseAlgorithm", "BaseAlgorithmCfg"]


@configclass
class BaseAlgorithmCfg:
    """Settings that every algorithm has; those of on-policy algorithms are ``AlgorithmCfg``'s."""

    device: str = "cpu"
    """Where updates run; the trainer's device."""
    learning_rate: PositiveFloat = 3e-4
    """Step size of Adam."""
    batch_size: PositiveInt = 2048
    """Transitions per minibatch, in each of several processes."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Discount per control step."""
    max_grad_norm: PositiveFloat = 0.5
    """Norm to which the gradient of all parameters together is cut."""


class BaseAlgorithm(ABC):
    """Improves a policy from what was collected.

    A subclass has ``update``, and sets ``cfg``, ``policy`` and ``device``, itself or by ``super().__init__(cfg,
    policy)``. All else that is here follows from these three; a subclass may set it instead.

    Args:
        cfg: an instance of the class's ``cfg_class``.
        policy: the policy to improve, on ``cfg.device``.
    """

    learns_from: ClassVar[Literal["rollouts", "replay"]] = "rollouts"
    """What ``update`` is given: the latest rollout, or a batch drawn from a replay buffer."""
    cfg_class: ClassVar[type[Any]] = BaseAlgorithmCfg
    """The class of ``cfg``, a ``@configclass`` with a ``device``. Registered without one of its own, a class that
    learns from rollouts has ``AlgorithmCfg``."""
    reads_evaluated: ClassVar[tuple[str, ...]] = EVALUATED
    """What it reads of ``Policy.evaluate_actions``; a policy that does not return it is refused at the start."""

    reads_final_obs: bool = False
    """Whether rollouts are to have ``final``, the final observations of truncated steps (see ``buffer/layout.py``)."""

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
        size: int = getattr(self.cfg, "batch_size", BaseAlgorithmCfg.batch_size)
        return size

    @cached_property
    def reset_every_rollout(self) -> bool:
        """Whether every rollout is to begin with new episodes in all environments; the trainer sees to it."""
        return bool(getattr(self.cfg, "reset_every_rollout", False))

    @abstractmethod
    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy.

        Args:
            rollout: where it ``learns_from`` rollouts, a complete one [N, T+1] (fields in ``buffer/layout.py``) of the
                policy as it is now, or of earlier versions of it where it has ``lag``. Else a batch of transitions.

        Returns:
            Scalars to log: name -> value.
        """

    def make_optimizer(self, parameters: list[nn.Parameter], adapts: bool = False) -> torch.optim.Adam:
        """Return Adam with the settings' learning rate and eps 1e-5, as in OpenAI Baselines.

        Args:
            parameters: to optimize.
            adapts: keep the learning rate as a tensor on the device, so that it can change without the host waiting.
        """
        rate = self.cfg.learning_rate
        # The fused form takes a tensor everywhere, skips a step without the host waiting, and needs a quarter of the
        # others' time for networks of 64 units.
        return torch.optim.Adam(
            parameters, lr=torch.tensor(rate, device=self.device) if adapts else rate, eps=1e-5, fused=True
        )

    def linear_learning_rate(self) -> float:
        """Return the settings' learning rate, falling linearly to 0 over the training."""
        rate: float = self.cfg.learning_rate * (1 - self.progress)
        return rate

    def descend(
        self, optimizer: torch.optim.Optimizer, loss: torch.Tensor, samples: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Make a gradient step for the policy, cut to ``max_grad_norm``; see ``gradient_step``."""
        return gradient_step(optimizer, self.parameters, loss, self.cfg.max_grad_norm, samples)

    def set_progress(self, fraction: float) -> None:
        """Take note of the share of the training that is done, [0, 1); the trainer says it before each update."""
        self.progress = fraction

    def state_dict(self) -> dict[str, Any]:
        """Return what, beside the policy, the next update depends on, for a checkpoint, as plain data.

        Here it is the states of the attributes that are optimizers, learning-rate schedules, or networks beside the
        policy's own. What else changes from update to update a subclass adds.
        """
        return {name: value.state_dict() for name, value in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        for name, value in self._stateful().items():
            if isinstance(value, torch.optim.Optimizer):
                self._load_optimizer(value, state[name])
            else:
                value.load_state_dict(state[name])

    def stores(self) -> dict[str, torch.Tensor]:
        """Return large tensors that grow from update to update, such as a replay buffer's, by name.

        The trainer keeps a copy of ``state_dict`` after every iteration, and none of these: a checkpoint is written
        from the tensors themselves. It may be written after an interrupted iteration, so that ``state_dict`` has to say
        how many of their rows count: further ones are of an iteration that the checkpoint does not have.
        """
        return {}

    def load_stores(self, stores: dict[str, torch.Tensor]) -> None:  # noqa: B027 (nothing where there are none)
        """Take what ``stores`` returned, after ``load_state_dict``; nothing where the checkpoint has none for it."""

    def take_step_counts(self) -> tuple[int, int]:
        """Return how many steps ``gradient_step`` was asked for since the last call, and how many it skipped."""
        optimizers = (value for value in vars(self).values() if isinstance(value, torch.optim.Optimizer))
        counts = [c for optimizer in optimizers if (c := take_step_counts(optimizer)) is not None]
        if not counts:
            return 0, 0
        asked, skipped = torch.stack(counts).sum(0).tolist()
        return asked, skipped

    def _stateful(self) -> dict[str, Any]:
        kinds = (torch.optim.Optimizer, LRScheduler, nn.Module)
        policy = set(self.policy.modules())
        return {name: value for name, value in vars(self).items() if isinstance(value, kinds) and value not in policy}

    def _load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        # Which of an optimizer's forms is used depends on the device, which may be another one now.
        groups = [
            group | {"fused": own["fused"]} if "fused" in own else group
            for group, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
        ]
        optimizer.load_state_dict({**state, "param_groups": groups})
        for group in optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):  # one that adapts
                group["lr"] = group["lr"].to(self.device)
