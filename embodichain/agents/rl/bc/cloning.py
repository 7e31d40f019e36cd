"""The training of behaviour cloning. Shapes: B minibatch, H steps of an action chunk, A' numbers of an action."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from embodichain.agents.rl.bc.config import BCCfg
from embodichain.agents.rl.bc.demonstrations import Demonstrations
from embodichain.agents.rl.models import VLAPolicy

__all__ = ["clone", "cloning_loss"]

_REPORTS = 10  # in a training
_WARM_UP = 0.2  # of the steps, in which the learning rate rises; then it falls to 0


def clone(policy: VLAPolicy, demonstrations: Demonstrations, cfg: BCCfg, report: Callable[[int, float], None]) -> float:
    """Let a policy imitate demonstrations, by maximum likelihood or the model's own loss.

    Args:
        policy: on the demonstrations' device; it is changed. Each part stays in its mode: one that its author froze in
            evaluation mode is not trained with dropout.
        demonstrations: what to imitate.
        cfg: how.
        report: called now and then with the number of steps made and the mean loss since the last call.

    Returns:
        The mean loss of the last tenth of the steps.
    """
    if hasattr(policy.model, "fit_inputs"):
        policy.model.fit_inputs(demonstrations.entries["state"])
    parameters = list(policy.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=cfg.learning_rate, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (_WARM_UP * cfg.steps)) * (1 - step / cfg.steps)
    )
    losses: list[torch.Tensor] = []
    mean = float("nan")
    for step in range(1, cfg.steps + 1):
        frames = torch.randint(demonstrations.num_frames, (cfg.batch_size,), device=demonstrations.left.device)
        loss = cloning_loss(policy, demonstrations, frames)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, cfg.max_grad_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % max(1, cfg.steps // _REPORTS) == 0 or step == cfg.steps:
            mean = float(torch.stack(losses).mean())
            report(step, mean)
            losses = []
    return mean


def cloning_loss(policy: VLAPolicy, demonstrations: Demonstrations, frames: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-likelihood of what followed frames [B], in nats for each number of an action.

    A model with an ``imitation_loss(obs, actions)`` is trained by that instead. What is beyond an episode's end does
    not count.
    """
    action, is_there = demonstrations.chunks(frames, policy.chunk_length)
    obs = demonstrations.entries[frames]
    own_loss = getattr(policy.model, "imitation_loss", None)
    loss = -policy.model.evaluate_actions(obs, action)[0] if own_loss is None else own_loss(obs, action)
    counted = is_there.unsqueeze(-1).expand_as(loss)
    return (loss * counted).sum() / counted.sum()
