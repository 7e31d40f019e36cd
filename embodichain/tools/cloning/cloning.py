"""The training loop of behaviour cloning.

Shapes: B minibatch, H actions of a choice, A action size, L sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo.optim import gradient_step
from embodichain.agents.rl.models import Policy, VLAPolicy, action_log_prob, load_policy_state
from embodichain.agents.rl.models.distributions import TanhSquash
from embodichain.agents.rl.nan_guard import NonFiniteError, parameters_are_finite
from embodichain.tools.cloning.augmentation import shift_images
from embodichain.tools.cloning.config import BCCfg
from embodichain.tools.cloning.demonstrations import Demonstrations
from embodichain.utils import ConfigError, logger
from embodichain.utils.machine import check_memory
from embodichain.utils.state import generators_state, load_generators_state

RAW_ACTION = "raw_action"  # of policies that squash: what the squashing was given
_REPORTS = 10  # in a training
_WARM_UP = 0.2  # share of the steps in which the learning rate rises; then it falls to 0
_MAX_SKIPPED = 100  # gradient steps in a row


class Cloning:
    """Trains a policy on demonstrations, by maximum likelihood or the model's own loss.

    Attributes:
        step: number of steps made, the skipped ones included.
        skipped: number of steps whose loss or gradient was not finite.
        loss: mean of the last tenth of the steps.
    """

    def __init__(self, policy: Policy, demonstrations: Demonstrations, cfg: BCCfg) -> None:
        """Set up.

        Args:
            policy: on the demonstrations' device, trained in place. Modules keep their training or evaluation mode.

        Raises:
            ConfigError: a minibatch does not fit the memory.
        """
        what = f"the {cfg.batch_size:,} frames of a minibatch"
        check_memory("batch_size", what, cfg.batch_size * demonstrations.frame_bytes, demonstrations.action.device)
        if isinstance(policy, VLAPolicy):
            if hasattr(policy.model, "fit_inputs"):
                policy.model.fit_inputs(demonstrations.entries["state"])
            if hasattr(policy.model, "fit_actions"):
                policy.model.fit_actions(demonstrations.action)
        else:
            assert demonstrations.obs is not None
            policy.update_normalizer(demonstrations.obs)
        self._policy = policy
        self._demonstrations = demonstrations
        self._cfg = cfg
        self._parameters = list(policy.parameters())
        self._optimizer = torch.optim.AdamW(self._parameters, lr=cfg.learning_rate, weight_decay=cfg.weight_decay)
        self._losses: list[torch.Tensor] = []  # since the last report
        self._skipped_in_a_row = 0
        self.step = 0
        self.skipped = 0
        self.loss = float("nan")

    def run(self, report: Callable[[int, float], None], after_step: Callable[[], None] = lambda: None) -> None:
        """Make the remaining steps.

        Args:
            report: called ten times with the number of steps made and the mean loss since the last call.
            after_step: called after each step; may raise to end the training.

        Raises:
            NonFiniteError: too many steps in a row were skipped, or the parameters are not finite.
        """
        while self.step < self._cfg.steps:
            self._make_step()
            if self.step % max(1, self._cfg.steps // _REPORTS) == 0 or self.step == self._cfg.steps:
                self.loss = float(torch.stack(self._losses).mean()) if self._losses else float("nan")
                self._losses = []
                report(self.step, self.loss)
            after_step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next steps depend on, as plain data, not copied.

        Raises:
            NonFiniteError: the parameters are NaN or infinite.
        """
        if not parameters_are_finite(self._policy):
            raise NonFiniteError(
                f"step {self.step}: the model's parameters are not finite any more, though every gradient was: its "
                "numbers have become too large. A smaller learning_rate helps"
            )
        return {
            "step": self.step,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
            "loss": self.loss,
            "losses": self._losses,
            "policy": self._policy.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "generators": generators_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], source: str) -> None:
        """Continue from the result of :meth:`state_dict`.

        Raises:
            ConfigError: the state is another model's; the message begins with ``source``.
        """
        load_policy_state(self._policy, state["policy"], source)
        self._optimizer.load_state_dict(state["optimizer"])
        for parameter, moments in self._optimizer.state.items():
            if any(moments[name].shape != parameter.shape for name in ("exp_avg", "exp_avg_sq")):
                raise ConfigError(f"{source}: the optimizer's state is that of another model")
        device = self._parameters[0].device
        self._losses = [loss.to(device) for loss in state["losses"]]
        self._skipped_in_a_row = state["skipped_in_a_row"]
        self.step, self.skipped, self.loss = state["step"], state["skipped"], state["loss"]
        load_generators_state(state["generators"])

    def _make_step(self) -> None:
        cfg, data = self._cfg, self._demonstrations
        for group in self._optimizer.param_groups:
            group["lr"] = cfg.learning_rate * _rate_factor(self.step, cfg.steps)
        loss = cloning_loss(self._policy, data, self._draw(), cfg.random_shift)
        norm = gradient_step(self._optimizer, self._parameters, loss, cfg.max_grad_norm)
        self.step += 1
        if norm.isfinite():
            self._losses.append(loss.detach())
            self._skipped_in_a_row = 0
            return
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row == 1:
            logger.log_warning(f"step {self.step}: skipped, since its loss or gradient is not finite")
        if self._skipped_in_a_row == min(_MAX_SKIPPED, cfg.steps):
            raise NonFiniteError(
                f"step {self.step}: {self._skipped_in_a_row} steps in a row were skipped, since loss or gradient was "
                "not finite. The demonstrations are finite, so it is the model, or numbers that are too large for it"
            )

    def _draw(self) -> torch.Tensor:
        """Return frames of a batch [B]; for a recurrent policy the first ones of some episodes, of as many frames."""
        data, size = self._demonstrations, self._cfg.batch_size
        if not self._policy.state_size:
            return torch.randint(data.num_frames, (size,), device=data.left.device)
        starts = data.starts
        count = max(1, size * len(starts) // data.num_frames)
        return starts[torch.randint(len(starts), (count,), device=starts.device)]


def check_can_be_cloned(policy: Policy) -> None:
    """Raise a ConfigError if the likelihood of an action cannot be computed from the action alone."""
    others = [name for name, _ in policy.extra_fields if name != RAW_ACTION]
    if others or "log_prob" not in policy.evaluates:
        reason = f"its likelihoods need its own {', '.join(others)}" if others else "its actions have no likelihoods"
        raise ConfigError(f"train_config: policy.name: {type(policy).__name__} cannot be cloned: {reason}")


def _rate_factor(step: int, steps: int) -> float:
    """Return the learning rate of a step, from 0, as a share of the maximum."""
    return min(1.0, (step + 1) / (_WARM_UP * steps)) * (1 - step / steps)


def cloning_loss(
    policy: Policy, demonstrations: Demonstrations, frames: torch.Tensor, random_shift: int = 0
) -> torch.Tensor:
    """Return the mean negative log-likelihood of the actions after frames [B], in nats per number of an action.

    A VLA model's own ``imitation_loss(obs, actions)`` is used instead if it has one. Actions beyond an episode's end
    are masked. The frames of a recurrent policy are the first ones of episodes, which are read to their ends.

    Args:
        random_shift: most pixels by which images are moved; see ``shift_images``.
    """
    action, is_there = demonstrations.chunks(frames, _length(policy, demonstrations, frames))
    if not isinstance(policy, VLAPolicy):
        loss = -_log_prob(policy, demonstrations, frames, action, random_shift)
        loss = loss / (1 if policy.chunk_length > 1 else action.shape[-1])
        is_there = is_there if loss.dim() > 1 else is_there[:, 0]
    else:
        obs = _shown(demonstrations, frames, random_shift)
        own_loss = getattr(policy.model, "imitation_loss", None)
        loss = -policy.model.evaluate_actions(obs, action)[0] if own_loss is None else own_loss(obs, action)
    counted = (is_there.unsqueeze(-1) if loss.dim() > is_there.dim() else is_there).expand_as(loss)
    return (loss * counted).sum() / counted.sum()


def _shown(demonstrations: Demonstrations, frames: torch.Tensor, random_shift: int) -> TensorDict:
    """Return the entries of frames [B] or [B, L], with images moved at random."""
    entries = demonstrations.entries[frames]
    return shift_images(entries, random_shift) if random_shift else entries


def _length(policy: Policy, demonstrations: Demonstrations, frames: torch.Tensor) -> int:
    """Return how many actions after frames [B] the policy is shown."""
    if policy.state_size:
        return int(demonstrations.left[frames].max())
    if isinstance(policy, VLAPolicy):  # may predict more than it executes
        return int(getattr(policy.model, "imitation_length", policy.chunk_length))
    return policy.chunk_length


def _log_prob(
    policy: Policy, demonstrations: Demonstrations, frames: torch.Tensor, action: torch.Tensor, random_shift: int
) -> torch.Tensor:
    """Return the log-likelihood of actions [B, H, A] from frames [B] on.

    Returns:
        [B]; of a policy that chooses several actions at once [B, H, A']; of a recurrent one [B, L].
    """
    assert demonstrations.obs is not None
    batch = list(action.shape[:2]) if policy.state_size else [len(frames)]
    rows = frames
    if policy.state_size:  # beyond an episode's end its last frame is repeated, and not counted
        ahead = torch.arange(batch[1], device=frames.device)
        rows = frames.unsqueeze(1) + torch.minimum(ahead, demonstrations.left[frames].unsqueeze(1) - 1)
    elif policy.chunk_length == 1:
        action = action[:, 0]
    td = TensorDict({"obs": demonstrations.obs[rows], "action": action}, batch_size=batch)
    if policy.obs_keys:
        td["entries"] = _shown(demonstrations, rows, random_shift)
    if policy.state_size:
        td["state"] = action.new_zeros(*batch, policy.state_size)
        td["done"] = torch.zeros(batch, dtype=torch.bool, device=action.device)
    if policy.extra_fields:
        td[RAW_ACTION] = cast(TanhSquash, policy.squash).inverse(action).reshape(*batch, -1)
    return action_log_prob(policy.evaluate_actions(td))
