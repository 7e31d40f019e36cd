"""Mirror images of transitions, for policies of symmetric robots.

Mittal, Rudin, Klemm, Allshire and Hutter, "Symmetry considerations for learning task symmetric robot policies", ICRA
2024, compare the two ways: samples of the mirrored behaviour, and a loss for asymmetry (Yu, Turk and Liu, "Learning
symmetric and low-energy locomotion", 2018).

Legend: B minibatch, A action size; ... any shape, of samples.
"""

from typing import Self

import torch
from pydantic import NonNegativeFloat, model_validator
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy
from embodichain.utils import ConfigError, configclass
from embodichain.utils.observations import MirrorMap

_LIKE_ACTIONS = ("action", "raw_action")  # raw_action: the sample before tanh, whose limits are symmetric


@configclass
class SymmetryCfg:
    """How a policy learns from the mirror images of its samples; the environment declares their map."""

    augmentation: bool = True
    """Learn from mirror images instead of the samples in one half of each minibatch. Minibatches are drawn at random in
    each epoch, so a sample and its image count the same, and the update costs no more than without."""
    mirror_loss_coef: NonNegativeFloat = 0.0
    """Weight of the mirror loss: the mean squared difference, over samples and action components, between the mean
    action in the mirrored state and the mirror image of the mean action."""

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not (self.augmentation or self.mirror_loss_coef):
            raise ValueError("needs augmentation or a mirror_loss_coef above 0; null is no symmetry")
        return self


def mirrored(batch: TensorDict, mirror_map: MirrorMap) -> TensorDict:
    """Return the mirror images of samples [B]: their observations and actions are mirrored.

    All else stays: a mirror image has the advantage, the return, the value and the old log-probability of its sample.
    It counts as if the policy had been symmetric when it collected, so that its probability ratio is not 1 before the
    first step. Observations are raw here: the policy normalises both alike.
    """
    images = batch.copy()
    images["obs"] = mirror_map.obs(batch["obs"])
    for name in _LIKE_ACTIONS:
        if name in batch.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            images[name] = mirror_map.action(batch[name])
    return images


class Symmetry:
    """Symmetry of PPO's loss: samples with their mirror images, and the mirror loss."""

    def __init__(self, cfg: SymmetryCfg, policy: Policy, mirror_map: MirrorMap) -> None:
        own = {name for name, _ in policy.extra_fields}.difference(_LIKE_ACTIONS)
        if policy.state_size or policy.obs_keys or policy.chunk_length > 1 or getattr(policy, "choices", ()) or own:
            raise ConfigError(
                f"algorithm.cfg.symmetry: samples of {type(policy).__name__} have no mirror images: it is recurrent, "
                "reads entries of the observation, keeps fields besides raw_action, or chooses chunks of actions or "
                "discrete ones"
            )
        self._cfg = cfg
        self._policy = policy
        self.mirror_map = mirror_map

    def samples(self, batch: TensorDict) -> TensorDict:
        """Return the samples [B] that the losses are means of: with augmentation, from ``kept`` on as mirror images."""
        if not self._cfg.augmentation:
            return batch
        kept = self.kept(batch)
        return TensorDict.cat([batch[:kept], mirrored(batch[kept:], self.mirror_map)])

    def kept(self, batch: TensorDict) -> int:
        """Return how many samples of a minibatch [B] augmentation keeps; the minibatch's order is random."""
        return (len(batch) + 1) // 2

    def loss(self, samples: TensorDict, new: TensorDict) -> torch.Tensor:
        """Return the mirror loss of samples [B]; ``new`` is the policy's evaluation of them.

        It is the mean of (mean(mirrored s) - mirrored mean(s))^2 over samples and components; both have gradients.
        """
        of_mirrored = self._policy.evaluate_actions(mirrored(samples, self.mirror_map))["mean"]
        return (of_mirrored - self.mirror_map.action(new["mean"])).square().mean()
