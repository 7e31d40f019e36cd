"""Distillation: a student imitates a teacher, which reads other observations, in the states that the student reaches.

Legend: N envs, T rollout steps, B minibatch, L sequence length, O flattened observation size, A action size.
"""

from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.optim import MetricMeans, gradient_step
from embodichain.agents.rl.buffer.rollout_buffer import check_rollout, iterate_minibatches, learning_batch
from embodichain.agents.rl.models import Policy
from embodichain.utils import ConfigError, configclass


@configclass
class DistillationCfg(BaseAlgorithmCfg):
    """Hyperparameters of distillation."""

    learning_rate: PositiveFloat = 1e-3
    """Step size of Adam at the beginning; it falls linearly to 0 over the training."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Unused, since rewards are not learned from; accepted so that a config can change its algorithm by name."""
    n_epochs: PositiveInt = 5
    """Passes over each rollout."""
    max_grad_norm: PositiveFloat = 1.0
    """Largest norm of the gradient of all parameters together; a longer one is scaled down."""


class Teacher(nn.Module):
    """A frozen policy that reads columns of another environment's observation.

    Args:
        columns: columns of the flat observation that are the policy's own, int64, in its order; -1 stands for a column
            of zeros.
    """

    columns: torch.Tensor

    def __init__(self, policy: Policy, columns: torch.Tensor) -> None:
        super().__init__()
        if policy.state_size or policy.obs_keys or policy.chunk_length > 1:
            raise ConfigError("a teacher is a policy of single actions, without a hidden state and without images")
        self.policy = policy.eval().requires_grad_(False)
        self.register_buffer("columns", columns)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the most likely actions [..., A] for observations [..., O]."""
        own = nn.functional.pad(obs, (0, 1))[..., self.columns]
        td = TensorDict({"obs": own if self.policy.has_normalizer else own.float()}, batch_size=obs.shape[:-1])
        action: torch.Tensor = self.policy.get_action(td, deterministic=True)["action"]
        return action


class Distillation(BaseAlgorithm):
    """DAgger: a student learns a teacher's actions in its own states.

    Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
    Learning", 2011, with the latest rollout in place of all so far. The student collects it, with exploration, and the
    teacher chooses an action in each of its states. Each update makes ``n_epochs`` passes over the rollout in shuffled
    minibatches, and descends the student's ``imitation_loss`` of these actions with Adam. The critic, if there is one,
    does not learn.
    """

    needs = ("teacher",)
    cfg_class = DistillationCfg
    reads_evaluated = ("log_prob",)
    cfg: DistillationCfg
    teacher: Teacher

    def __init__(self, cfg: DistillationCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        if policy.imitation_length > 1:
            raise ConfigError("algorithm.name: distillation: the student must choose single actions, not chunks")
        self.optimizer = self.make_optimizer(self.parameters)

    def use_teacher(self, teacher: Teacher) -> None:
        """Learn from a teacher; a checkpoint has its parameters, so that a resumed training continues with them."""
        self.teacher = teacher.to(self.device)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the student; see ``BaseAlgorithm.update``.

        Returns:
            Means of ``imitation_loss`` (nats per number of an action, unless the policy has a loss of its own) and
            ``grad_norm`` (before clipping), the ``learning_rate``, and the policy's diagnostics.
        """
        cfg = self.cfg
        check_rollout(rollout)
        rollout = rollout.to(self.device)
        labels = self.teacher(rollout["obs"][:, :-1])
        batch = learning_batch(rollout, self.policy, action=labels)
        batch = batch.exclude(*(name for name, _ in self.policy.extra_fields))  # of the student's own actions
        rate = cfg.learning_rate * (1 - self.progress)
        self.optimizer.param_groups[0]["lr"] = rate
        means = MetricMeans()
        for _ in range(cfg.n_epochs):
            for minibatch in iterate_minibatches(batch, cfg.batch_size, self.device):
                loss = self.policy.imitation_loss(minibatch).mean()
                norm = gradient_step(self.optimizer, self.parameters, loss, cfg.max_grad_norm)
                means.add({"imitation_loss": loss.detach(), "grad_norm": norm})
        return means.read(**self.policy.diagnostics()) | {"learning_rate": rate}
