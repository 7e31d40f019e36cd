"""Base of algorithms that learn from a replay buffer.

Legend: N envs, T rollout steps, B batch, A action size, E critics.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.optim import MetricMeans, gradient_step
from embodichain.agents.rl.algo.return_scale import ReturnScale
from embodichain.agents.rl.buffer.replay import Demonstrations, ReplayBuffer, check_digest, check_share
from embodichain.agents.rl.models import Policy, SoftActorCritic
from embodichain.utils import configclass
from embodichain.utils.profiling import section

_TOGETHER = 32  # gradient steps whose batches are sampled together


@configclass
class OffPolicyCfg(BaseAlgorithmCfg):
    """Hyperparameters of every algorithm that learns from a replay buffer."""

    batch_size: PositiveInt = 256
    """Transitions of each gradient step, in each of several processes."""
    max_grad_norm: PositiveFloat | None = None  # type: ignore[assignment]
    """Largest norm of a gradient; null: not limited."""
    replay_capacity: PositiveInt = 1_000_000
    """Steps in the replay buffer, over all environments of a process; older ones are overwritten."""
    learning_starts: NonNegativeInt = 5_000
    """Environment steps of a process before its first gradient step."""
    updates_per_step: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Gradient steps of the critics for each environment step of a process: 0.125 is one for 8 environments' step."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """Step sizes stay constant, or fall linearly to 0 over the training."""
    policy_delay: PositiveInt = 1
    """Gradient steps of the critics for each one of the actor."""
    normalize_returns: bool = False
    """Learn values in units of the returns' running mean and std: the rewards' scale and offset do not matter. These
    units change as the policy improves, and some trainings then learn slower."""
    n_steps: PositiveInt = 1
    """Rewards that are summed before the bootstrap."""
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005
    """Share of the distance to the networks that the target networks move in each of their steps."""
    critic_learning_rate: PositiveFloat | None = None
    """Step size of the critics; null: ``learning_rate``, which is the actor's."""
    critic_reduction: Literal["min", "mean"] = "min"
    """Reduction of the critics' values of an action, in targets and for the actor: the lowest (clipped double
    Q-learning), or their mean."""
    demonstrations: str | None = None
    """Folder of a LeRobot dataset (v3.0) with episodes of this environment, or ``"expert"``: episodes of its scripted
    expert. Null: none."""
    num_demonstrations: PositiveInt | None = None
    """Number of episodes: the dataset's first ones, or played by the expert. Null: the whole dataset, 50 of the
    expert."""
    demonstration_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of each batch that is drawn from the demonstrations."""
    imitation_coef: NonNegativeFloat = 0.0
    """With demonstrations: weight, in the actor's loss, of the distance from demonstrated actions that the critics
    value above its own."""

    def notices(self, rollout_steps: int, env_steps: int) -> list[str]:
        """Return what has no effect; see ``BaseAlgorithmCfg.notices``."""
        lines = []
        if self.replay_capacity < rollout_steps:
            lines.append(
                f"algorithm.cfg.replay_capacity: {self.replay_capacity:,} is less than a rollout has: of its "
                f"{rollout_steps:,} steps (trainer.num_envs x trainer.buffer_size) the first are never sampled"
            )
        if self.learning_starts > env_steps:
            lines.append(
                f"algorithm.cfg.learning_starts: nothing is learned before {self.learning_starts:,} environment steps, "
                f"and the training has {env_steps:,}"
            )
        if self.demonstrations is None:
            names, default = ("num_demonstrations", "demonstration_share", "imitation_coef"), type(self)()
            unused = [name for name in names if getattr(self, name) != getattr(default, name)]
            lines += [f"algorithm.cfg.{name}: not used without algorithm.cfg.demonstrations" for name in unused]
        return lines


class OffPolicyAlgorithm(BaseAlgorithm):
    """Learns from samples of a replay buffer, with critics of actions and their target networks.

    Each update adds the rollout to the replay buffer, and makes ``updates_per_step`` gradient steps for each of its
    environment steps, each from B transitions drawn uniformly:

    - critics: mean (Q_i(s, a) - y)^2, summed over the critics, with the target y = r + discount * ``_next_value(s')``,
      or with the policy's ``value_bins`` their cross-entropy;
    - actor: ``_improve_actor``;
    - targets: Q_target + tau (Q - Q_target).

    With demonstrations a share of each batch is drawn from them (Ball et al., "Efficient Online Reinforcement Learning
    with Offline Data", 2023): see ``use_demonstrations``. ``imitation_coef`` adds to the actor's loss the mean of
    |mu(s) - a|^2 over them, both scaled to [-1, 1], where Q(s, a) > Q(s, mu(s)) for the most likely action mu(s), and
    0 elsewhere: the filtered loss of Nair et al., "Overcoming Exploration in Reinforcement Learning with
    Demonstrations", 2018.

    Truncated episodes bootstrap from their final observation. With n steps, rewards of the actions that were taken are
    summed without importance weights, as in Barth-Maron et al., "Distributed Distributional Deterministic Policy
    Gradients", 2018. Until ``learning_starts`` the untrained policy explores; with an ``init_log_std`` of 0 its actions
    are spread over the bounds.

    With several processes each has a replay buffer of its own, and gradients are means over all.
    """

    learns_from = "replay"
    policy_class: ClassVar[type[Any]] = SoftActorCritic
    cfg_class = OffPolicyCfg
    reads_evaluated: ClassVar[tuple[str, ...]] = ()
    reads_final_obs = True
    cfg: OffPolicyCfg
    policy: SoftActorCritic

    def __init__(self, cfg: OffPolicyCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.target_critics = deepcopy(self.policy.critics).requires_grad_(False)
        # Lists: to name the parameters of a network takes as long as one of its layers.
        self._followed = list(self.policy.critics.parameters())  # by the targets
        self._critics = [parameter for parameter in self._followed if parameter.requires_grad]
        self._targets = list(self.target_critics.parameters())
        critic_rate = cfg.critic_learning_rate or cfg.learning_rate
        self._actor = list(self.policy.actor.parameters())
        self.actor_optimizer = self.make_optimizer(self._actor, eps=1e-8)
        encoder = [] if self.policy.encoder is None else list(self.policy.encoder.parameters())
        self.critic_optimizer = self.make_optimizer([*encoder, *self._critics], rate=critic_rate, eps=1e-8)
        self.return_scale = ReturnScale().to(self.device) if cfg.normalize_returns else None
        self.replay: ReplayBuffer | None = None
        self._num_demonstrated = 0  # transitions of a batch
        if cfg.demonstrations is not None:
            self._num_demonstrated = check_share(cfg.demonstration_share, cfg.batch_size)
            self.needs = ("demonstrations",)
        self._demonstrations: ReplayBuffer | None = None
        self._demonstrations_digest: str | None = None
        self._num_updates = 0  # of the critics
        self._owed = 0.0  # gradient steps

    def use_demonstrations(self, demonstrations: Demonstrations) -> None:
        """Draw ``cfg.demonstration_share`` of each batch from demonstrations; call it once, before anything is learned.

        The policy's normaliser sees them, too: it clamps what is far from all that it has seen, and some observations,
        such as a lifted object, may be in demonstrations alone for long.
        """
        self._demonstrations = demonstrations.to_buffer(self.device)
        self._demonstrations_digest = demonstrations.digest()
        obs = torch.cat([episode["obs"][0, :-1] for episode in demonstrations.episodes])
        self.policy.update_normalizer(obs.to(self.device))

    def prepare(self, rollout: TensorDict) -> None:
        """Allocate the replay buffer; see ``BaseAlgorithm.prepare``."""
        self.replay = ReplayBuffer.allocate(self.cfg.replay_capacity, rollout)

    def stores(self) -> dict[str, ReplayBuffer]:
        """Return the replay buffer."""
        return {} if self.replay is None else {"replay": self.replay}

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Add the rollout to the replay buffer, and learn from samples of it; see ``BaseAlgorithm.update``.

        Returns:
            ``replay_steps``, the stored steps; and, once it learns, means over the gradient steps of ``critic_loss``,
            ``action_value`` (the mean of Q(s, a) of the samples, in the rewards' units), ``grad_norm`` (of the critics,
            before clipping), ``actor_loss``, ``actor_grad_norm`` and what else ``_improve_actor`` returns; with a
            ``value_range`` also ``clamped``, the share of targets beyond it; with an ``imitation_coef`` the
            ``imitation_loss`` without its weight, and the share ``imitated`` of demonstrated actions that are valued
            above the actor's.
        """
        cfg = self.cfg
        if self.replay is None:
            self.prepare(rollout)
        assert self._demonstrations is not None or cfg.demonstrations is None  # given by ``use_demonstrations``
        assert self.replay is not None  # allocated by ``prepare``
        with section("replay"):
            self.replay.add(rollout)
        if self.return_scale is not None:
            self.return_scale.update(rollout, cfg.gamma)
        metrics = {"replay_steps": float(self.replay.num_steps)}
        num_envs, num_slots = rollout.batch_size
        # Not the stored steps: processes with more truncated episodes store fewer, and all begin together.
        if self.replay.num_added < cfg.learning_starts:
            return metrics
        if cfg.lr_schedule == "linear":
            for optimizer in (self.actor_optimizer, self.critic_optimizer):
                for group in optimizer.param_groups:
                    group["lr"] = optimizer.defaults["lr"] * (1 - self.progress)
        self._owed += cfg.updates_per_step * num_envs * (num_slots - 1)
        critic_means, actor_means = MetricMeans(), MetricMeans()
        for batch in self._batches(self.replay, int(self._owed)):
            critic_means.add(self._improve_critics(batch))
            self._num_updates += 1
            if self._num_updates % cfg.policy_delay == 0:
                # No gradient of the actor reaches the encoder; without one nothing in the batch has any.
                actor_means.add(self._improve_actor(batch.detach() if self.policy.encoder is not None else batch))
            self._move_targets()
        self._owed %= 1
        of_actor = {"actor_grad_norm" if name == "grad_norm" else name: x for name, x in actor_means.read().items()}
        return metrics | critic_means.read() | of_actor

    def state_dict(self) -> dict[str, Any]:
        """Return the state besides the policy; the replay buffer's steps are in ``stores``."""
        own = {"num_updates": self._num_updates, "owed": self._owed, "demonstrations": self._demonstrations_digest}
        return super().state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned; ConfigError if it is of other demonstrations."""
        check_digest(state["demonstrations"], self._demonstrations_digest, self.cfg.demonstrations)
        super().load_state_dict(state)
        self._num_updates, self._owed = state["num_updates"], state["owed"]

    def _batches(self, replay: ReplayBuffer, count: int) -> Iterator[TensorDict]:
        """Yield batches [B], sampled, scaled and normalised together for several gradient steps; images one by one."""
        most = 1 if self.policy.obs_keys else _TOGETHER
        for begin in range(0, count, most):
            with section("replay"):
                batches = self._sample(replay, min(most, count - begin))
            batches["action"] = self.policy.scaled(batches["action"])
            encoded = self.policy.encode(batches)
            with torch.no_grad():  # targets have no gradient
                encoded["next"] = self.policy.encode(encoded["next"])
            yield from encoded.unbind(0)

    def _sample(self, replay: ReplayBuffer, count: int) -> TensorDict:
        """Return batches [count, B]: the first rows from the replay buffer, the others from demonstrations."""
        cfg, shown = self.cfg, self._num_demonstrated
        batches = replay.sample(count * (cfg.batch_size - shown), cfg.n_steps, cfg.gamma).view(count, -1)
        if self._demonstrations is not None:
            rows = self._demonstrations.sample(count * shown, cfg.n_steps, cfg.gamma).view(count, -1)
            batches = TensorDict.cat((batches, rows), dim=1)
        if self.return_scale is not None:
            batches["reward"] = self.return_scale(batches["reward"], batches["discount"])
        return batches

    def _improve_critics(self, batch: TensorDict) -> dict[str, torch.Tensor]:
        """Make a gradient step of the critics; return its metrics."""
        target = self._target(batch)
        outputs, bins = self.policy.critic_outputs(batch, batch["action"]), self.policy.value_bins
        values = self.policy.values_of(outputs)
        error = (values - target).square() if bins is None else bins.loss(outputs, target.expand(len(outputs), -1))
        loss = error.mean() * len(values)
        norm = self._step(self.critic_optimizer, loss, self.critic_optimizer.param_groups[0]["params"])
        value = values.detach().mean()
        if self.return_scale is not None:
            value = (self.return_scale.mean + self.return_scale.std * value).float()
        metrics = {"grad_norm": norm, "critic_loss": loss.detach(), "action_value": value}
        if bins is not None:
            metrics["clamped"] = ((target < bins.edges[0]) | (target > bins.edges[-1])).float().mean()
        return metrics

    @torch.no_grad()
    def _target(self, batch: TensorDict) -> torch.Tensor:
        """Return the critics' targets y, [B]; the discount is 0 after a termination."""
        value = self._next_value(batch["next"])
        if value.shape != batch["reward"].shape:  # [B, 1] would broadcast to [B, B]
            expected = list(batch["reward"].shape)
            raise ValueError(f"{type(self).__name__}._next_value: must return {expected}, got {list(value.shape)}")
        return batch["reward"] + batch["discount"] * value

    @abstractmethod
    def _next_value(self, following: TensorDict) -> torch.Tensor:
        """Return the value [B] of the next observations, by the target critics."""

    @abstractmethod
    def _improve_actor(self, batch: TensorDict) -> dict[str, torch.Tensor]:
        """Make a gradient step of the actor; return its metrics, with ``grad_norm`` and ``actor_loss``."""

    @torch.no_grad()
    def _move_targets(self) -> None:
        """Move the target networks towards the networks."""
        torch._foreach_lerp_([*self._targets], [*self._followed], self.cfg.tau)

    def _value_of_own(self, batch: TensorDict, action: torch.Tensor) -> torch.Tensor:
        """Return the value [B] of the actor's scaled actions [B, A], with no gradient of the critics' parameters."""
        for parameter in self._critics:
            parameter.requires_grad_(False)  # only the action's gradient is needed
        value = self._reduce(self.policy.action_values(batch, action))
        for parameter in self._critics:
            parameter.requires_grad_(True)
        return value

    def _with_imitation(self, loss: torch.Tensor, batch: TensorDict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the actor's loss with the imitation loss of the batch's demonstrations, and the latter's metrics."""
        if not (self.cfg.imitation_coef and self._num_demonstrated):
            return loss, {}
        metrics = self._imitate(batch[-self._num_demonstrated :])
        loss = loss + self.cfg.imitation_coef * metrics["imitation_loss"]
        return loss, {name: value.detach() for name, value in metrics.items()}

    def _imitate(self, shown: TensorDict) -> dict[str, torch.Tensor]:
        """Return the loss of imitating demonstrations [B], with gradients, and the share that is imitated."""
        action = self.policy.scaled(self.policy(shown.copy(), deterministic=True)["action"])
        with torch.no_grad():
            own = self._reduce(self.policy.action_values(shown, action))
            is_better = (self._reduce(self.policy.action_values(shown, shown["action"])) > own).float()
        distance = (action - shown["action"]).square().sum(-1)
        return {"imitation_loss": (is_better * distance).mean(), "imitated": is_better.mean()}

    def _step(self, optimizer: torch.optim.Adam, loss: torch.Tensor, clipped: list[nn.Parameter]) -> torch.Tensor:
        return gradient_step(optimizer, clipped, loss, self.cfg.max_grad_norm or math.inf)

    def _reduce(self, values: torch.Tensor) -> torch.Tensor:
        """Reduce the critics' values [E, B] to one, [B]."""
        return values.min(0).values if self.cfg.critic_reduction == "min" else values.mean(0)
