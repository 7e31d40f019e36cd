"""The base of all algorithms: hyperparameters, interface, optimizer and state."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from embodichain.agents.rl.algo.optim import FusedAdam, take_step_counts
from embodichain.agents.rl.buffer import ReplayBuffer
from embodichain.agents.rl.models.policy import EVALUATED, Policy
from embodichain.utils import ConfigError, configclass


@configclass
class BaseAlgorithmCfg:
    """Hyperparameters of every algorithm; on-policy algorithms have ``AlgorithmCfg``."""

    device: str = "cpu"
    """Where updates run; the trainer's device."""
    learning_rate: PositiveFloat = 3e-4
    """Step size of Adam."""
    weight_decay: NonNegativeFloat = 0.0
    """Each gradient step first multiplies the parameters, a log-std among them, by 1 - learning rate * weight decay
    (AdamW); SAC's temperature is left out."""
    batch_size: PositiveInt = 2048
    """Transitions per minibatch, in each of several processes."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Discount per control step."""
    max_grad_norm: PositiveFloat = 0.5
    """Largest norm of the gradient of all parameters together; a longer one is scaled down."""

    def problems(self, num_envs: int) -> list[str]:
        """Return the errors of these hyperparameters for N environments, one line each."""
        return []

    def notices(self, rollout_steps: int, env_steps: int) -> list[str]:
        """Return what has no effect, by the transitions of a rollout and of the training; one line each."""
        return []


class BaseAlgorithm(ABC):
    """Improves a policy from collected experience.

    A subclass has ``update``, and sets ``cfg``, ``policy`` and ``device``, itself or by ``super().__init__(cfg,
    policy)``. All other attributes follow from these three; a subclass may set them.
    """

    learns_from: ClassVar[Literal["rollouts", "replay", "demonstrations"]] = "rollouts"
    """Whether each update learns from the latest rollout alone, from samples of a replay buffer, to which it adds the
    rollout, or from demonstrations: nothing is collected then, and ``update`` gets an empty rollout."""
    needs: Sequence[str] = ()
    """Names of what it is given before the training, each by a method ``use_<name>``: ``"demonstrations"``
    (``buffer.Demonstrations``) and ``"mirror_map"`` (the environment's)."""
    policy_class: ClassVar[type[Any]] = Policy
    """The class of the policies that it improves; others are refused."""
    cfg_class: ClassVar[type[Any]] = BaseAlgorithmCfg
    """The class of ``cfg``, a ``@configclass`` with a ``device``. ``register_algo`` sets ``AlgorithmCfg`` for a class
    that learns from rollouts and has none."""
    reads_evaluated: ClassVar[tuple[str, ...]] = EVALUATED
    """Entries of ``Policy.evaluate_actions`` that it reads; a policy without them is refused at the start."""

    reads_final_obs: bool = False
    """Whether rollouts need ``final``, the final observations of truncated steps (see ``buffer/layout.py``)."""

    cfg: Any
    """The hyperparameters."""
    policy: Policy
    """The policy to improve."""
    progress: float = 0.0
    """Finished share of the training, [0, 1); the trainer sets it before each update."""
    update_share: float = 0.0
    """Share of the training that one update is; the trainer sets it, too."""

    def __init__(self, cfg: Any, policy: Policy) -> None:
        self.check_policy_class(type(policy))
        self.cfg = cfg
        self.policy = policy

    @classmethod
    def check_policy_class(cls, policy_class: type[Policy]) -> None:
        """Raise a ConfigError unless it can improve the policies of a class."""
        if not issubclass(policy_class, cls.policy_class):
            raise ConfigError(
                f"{cls.__name__} improves policies of class {cls.policy_class.__name__}, got {policy_class.__name__}"
            )
        if missing := [name for name in cls.reads_evaluated if name not in policy_class.evaluates]:
            raise ConfigError(
                f"{cls.__name__} reads {', '.join(missing)} from evaluate_actions, and {policy_class.__name__} returns "
                f"{', '.join(policy_class.evaluates) or 'nothing'}"
            )

    # Computed at the first access; a subclass may assign them.

    @cached_property
    def device(self) -> torch.device:
        """Where updates run."""
        return torch.device(self.cfg.device)

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The policy's parameters; cached, as listing them takes as long as a small network's layer."""
        return list(self.policy.parameters())

    @cached_property
    def batch_size(self) -> int:
        """Transitions of a minibatch, also for a ``cfg`` without ``batch_size``."""
        size: int = getattr(self.cfg, "batch_size", BaseAlgorithmCfg.batch_size)
        return size

    @cached_property
    def reset_every_rollout(self) -> bool:
        """Whether every rollout begins with new episodes in all environments."""
        return bool(getattr(self.cfg, "reset_every_rollout", False))

    @abstractmethod
    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy.

        Args:
            rollout: complete, [N, T+1] (fields in ``buffer/layout.py``), of the current policy, or with ``lag`` of
                earlier versions. The next one overwrites it.

        Returns:
            Scalars to log: name -> value.
        """

    def make_optimizer(
        self, parameters: list[nn.Parameter], adapts: bool = False, rate: float | None = None, eps: float = 1e-5
    ) -> torch.optim.Adam:
        """Return AdamW with ``cfg.learning_rate``, or another ``rate``, and ``cfg.weight_decay``.

        The default eps is OpenAI Baselines' for PPO. With ``adapts`` the learning rate is a tensor on the device, so
        that it changes without the host waiting.
        """
        rate = rate or self.cfg.learning_rate
        lr = torch.tensor(rate, device=self.device) if adapts else rate
        return FusedAdam(parameters, lr, eps=eps, weight_decay=self.cfg.weight_decay, fused=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint needs besides the policy, as plain data.

        It has the states of all attributes that are optimizers, learning-rate schedules, or networks that are not the
        policy's. A subclass adds the rest.
        """
        return {name: value.state_dict() for name, value in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        for name, value in self._stateful().items():
            if isinstance(value, torch.optim.Optimizer):
                self._load_optimizer(value, state[name])
            else:
                value.load_state_dict(state[name])

    def prepare(self, rollout: TensorDict) -> None:  # noqa: B027 (nothing where there is no buffer)
        """Allocate what depends on the rollouts, such as a replay buffer; called once, before anything is learned.

        Args:
            rollout: [N, T+1], laid out as ``update`` takes it; its values are undefined.
        """

    def steps_of_update(self, rollout_steps: int) -> int:
        """Return the steps that an update learns from in each process: by default a rollout's."""
        return rollout_steps

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return the replay buffers by name.

        The trainer copies ``state_dict`` after every iteration, but of these only their counts: a checkpoint is
        written from the buffers themselves, their slots into files that several checkpoints share.
        """
        return {}

    def take_step_counts(self) -> list[tuple[int, int]]:
        """Return the result of ``optim.take_step_counts`` for the algorithm's optimizers."""
        return take_step_counts(value for value in vars(self).values() if isinstance(value, torch.optim.Optimizer))

    def _stateful(self) -> dict[str, Any]:
        kinds = (torch.optim.Optimizer, LRScheduler, nn.Module)
        policy = set(self.policy.modules())
        return {name: value for name, value in vars(self).items() if isinstance(value, kinds) and value not in policy}

    def _load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        # The fused form depends on the device, which may differ now.
        groups = [
            group | {"fused": own["fused"]} if "fused" in own else group
            for group, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
        ]
        optimizer.load_state_dict({**state, "param_groups": groups})
        for group in optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):  # an adaptive one
                group["lr"] = group["lr"].to(self.device)
