"""Behaviour cloning: a policy imitates demonstrations.

Legend: M frames of all episodes, E episodes, B minibatch, H actions of a choice, L sequence length, A action size.
"""

from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from tensordict import TensorDict

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.optim import MetricMeans, gradient_step
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.buffer.replay import EXPERT, Demonstrations, check_digest
from embodichain.agents.rl.models import Policy
from embodichain.utils import ConfigError, configclass
from embodichain.utils.device import check_memory

_WARM_UP = 0.2  # share of the training in which the learning rate rises; then it falls to 0


@configclass
class BCCfg(BaseAlgorithmCfg):
    """Hyperparameters of behaviour cloning."""

    demonstrations: str = EXPERT
    """Folder of a LeRobot dataset (v3.0), or ``"expert"``: episodes of the task's scripted expert that succeed."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Unused, since rewards are not learned from; accepted so that a config can change its algorithm by name."""
    num_demonstrations: PositiveInt | None = None
    """Number of episodes: the dataset's first ones, or played by the expert. Null: the whole dataset, 50 of the
    expert."""
    updates_per_iteration: PositiveInt = 100
    """Gradient steps of an iteration."""
    batch_size: PositiveInt = 64
    """Frames of each gradient step, in each of several processes."""
    learning_rate: PositiveFloat = 5e-4
    """Step size of AdamW, times a linear fall to 0 over the training and a linear rise over its first fifth: at most
    0.8 of it."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Weight decay of AdamW."""
    max_grad_norm: PositiveFloat = 1.0
    """Largest norm of the gradient of all parameters together; a longer one is scaled down."""
    random_shift: NonNegativeInt = 0
    """Most pixels by which each image is moved at random along both axes, each time that it is shown."""

    def notices(self, rollout_steps: int, env_steps: int) -> list[str]:
        """Return what learns little; see ``BaseAlgorithmCfg.notices``."""
        names, default = ("demonstrations", "num_demonstrations", "batch_size", "learning_rate"), BCCfg()
        if any(getattr(self, name) != getattr(default, name) for name in names):
            return []
        return [
            "algorithm.cfg: with 50 episodes of the expert in batches of 64 little is learned of a task with contacts; "
            "the recipe pick_cube/bc has 100 episodes, batches of 256 and the rate 1e-3"
        ]


@register_algo("bc")
class BC(BaseAlgorithm):
    """Behaviour cloning: maximum likelihood of demonstrated actions, or the policy's own ``imitation_loss``.

    Each update makes ``updates_per_iteration`` gradient steps of AdamW, each from B frames drawn uniformly, and
    descends the mean loss of the actions after them, up to the end of the episode. A recurrent policy reads whole
    episodes, as many as have B frames on average.
    """

    learns_from = "demonstrations"
    needs = ("demonstrations",)
    cfg_class = BCCfg
    reads_evaluated = ("log_prob",)
    cfg: BCCfg

    def __init__(self, cfg: BCCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        others = [name for name, _ in policy.extra_fields if name != "raw_action"]
        if others and type(policy).imitation_loss is Policy.imitation_loss:
            name = type(policy).__name__
            raise ConfigError(f"algorithm.name: bc: {name} cannot be cloned: its likelihoods need {', '.join(others)}")
        self.optimizer = self.make_optimizer(self.parameters, eps=1e-8)
        self._frames = TensorDict()  # [M]
        self._digest: str | None = None

    def use_demonstrations(self, demonstrations: Demonstrations) -> None:
        """Learn from demonstrations, to which the policy's input statistics are fitted; call it once."""
        frames = demonstrations.frames()
        check_memory("algorithm.cfg.demonstrations", f"the {len(frames):,} frames", frames.bytes(), self.device)
        self._frames, self._digest = frames.to(self.device), demonstrations.digest()
        self.policy.fit_inputs(self._frames)

    def steps_of_update(self, rollout_steps: int) -> int:
        """Return the number of frames of an update; see ``BaseAlgorithm.steps_of_update``."""
        return self.cfg.batch_size * self.cfg.updates_per_iteration

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Make ``updates_per_iteration`` gradient steps; see ``BaseAlgorithm.update``.

        Returns:
            Means of ``imitation_loss`` (nats per number of an action, unless the policy has a loss of its own) and
            ``grad_norm`` (before clipping), the last ``learning_rate``, and the policy's diagnostics.
        """
        cfg = self.cfg
        if self._digest is None:
            raise ConfigError("algorithm.cfg.demonstrations: were not given to BC.use_demonstrations")
        means = MetricMeans()
        step = self.update_share / cfg.updates_per_iteration  # share of the training; 0: unknown
        for k in range(cfg.updates_per_iteration):
            done = self.progress + k * step
            rate = cfg.learning_rate * (min(1.0, (done + step) / _WARM_UP) if step else 1.0) * (1 - done)
            self.optimizer.param_groups[0]["lr"] = rate
            loss, count = self.loss(self._draw())
            norm = gradient_step(self.optimizer, self.parameters, loss, cfg.max_grad_norm, count)
            means.add({"imitation_loss": loss.detach(), "grad_norm": norm})
        return means.read(**self.policy.diagnostics()) | {"learning_rate": rate}

    def loss(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean loss of the actions from frames [B] on, up to their episodes' ends, and their number."""
        policy, left = self.policy, self._frames["left"][frames].unsqueeze(1)  # [B, 1]
        length = int(left.max()) if policy.state_size else policy.imitation_length
        ahead = torch.arange(length, device=self.device)
        rows, counts = frames.unsqueeze(1) + torch.minimum(ahead, left - 1), ahead < left  # [B, H]
        action = self._frames["action"][rows]
        if policy.state_size:
            td = self._frames[rows]
            td["state"] = action.new_zeros(*rows.shape, policy.state_size)
            td["done"] = torch.zeros_like(counts)
        else:
            td = self._frames[frames]
            td["action"], counts = (action[:, 0], counts[:, 0]) if length == 1 else (action, counts)
        if self.cfg.random_shift and "entries" in td.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            td["entries"] = shift_images(td["entries"], self.cfg.random_shift)
        loss = policy.imitation_loss(td)
        counts = counts.reshape(*counts.shape, *[1] * (loss.dim() - counts.dim())).expand_as(loss)
        total = counts.sum()
        return (loss * counts).sum() / total, total

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and the digest of the demonstrations."""
        return super().state_dict() | {"demonstrations": self._digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned; ConfigError if it is of other demonstrations."""
        check_digest(state["demonstrations"], self._digest, self.cfg.demonstrations)
        super().load_state_dict(state)

    def _draw(self) -> torch.Tensor:
        """Return frames [B] or, for a recurrent policy, the first frames of episodes."""
        num_frames = len(self._frames)
        if not self.policy.state_size:
            return torch.randint(num_frames, (self.cfg.batch_size,), device=self.device)
        left = self._frames["left"]
        starts = torch.cat((left.new_ones(1, dtype=torch.bool), left[:-1] == 1)).nonzero().squeeze(1)  # [E]
        count = max(1, self.cfg.batch_size * len(starts) // num_frames)
        return starts[torch.randint(len(starts), (count,), device=self.device)]


def shift_images(entries: TensorDict, pixels: int) -> TensorDict:
    """Return entries of an observation with each image moved by -``pixels`` to ``pixels`` along both axes, at random.

    Where it is moved away from a border, the border's pixels are repeated. As in Kostrikov, Yarats and Fergus, "Image
    Augmentation Is All You Need", 2020. The frames of a sequence are moved alike, and each camera by itself.

    Args:
        entries: [B] or [B, L]; its entries [..., height, width, channels] are the images.
    """
    dims = entries.batch_dims
    moved = entries.apply(lambda x: _shifted(x, pixels, dims) if x.dim() == dims + 3 else x)
    assert moved is not None  # only with a filter of empty entries
    return moved


def _shifted(images: torch.Tensor, pixels: int, dims: int) -> torch.Tensor:
    """Return images [B, height, width, C] or [B, L, height, width, C] moved at random, the images of a row alike."""
    height, width, _ = images.shape[-3:]
    batch, device = len(images), images.device
    rows, columns = (
        (torch.randint(-pixels, pixels + 1, (batch, 1), device=device) + torch.arange(size, device=device)).clamp(
            0, size - 1
        )
        for size in (height, width)
    )
    number = torch.arange(batch, device=device).view(batch, 1, 1)
    place = (number, rows.unsqueeze(2), columns.unsqueeze(1))
    # Indices first: [B, height, width, L, C] of sequences.
    return images[place] if dims == 1 else images.movedim(1, -2)[place].movedim(-2, 1)
