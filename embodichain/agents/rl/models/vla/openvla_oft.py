"""A model in the style of OpenVLA-OFT: SigLIP sees, Llama thinks, and a chunk's actions are told at once, as tokens.

Kim, Finn and Liang, "Fine-Tuning Vision-Language-Action Models: Optimizing Speed and Success", RSS 2025, in its form
with discrete actions, as reinforcement learning uses it. Needs the extra ``vla``.

Legend: B batch, P patches of an image, H steps of an action chunk, A action size, J size of the state, L tokens of an
instruction, K bins of an action, D width of the language model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F

from embodichain.agents.rl.models.vla.from_transformers import need_transformers, transformers_config
from embodichain.agents.rl.models.vla.model_cfg import VLAModel, VLAModelCfg
from embodichain.agents.rl.models.vla.observation import INSTRUCTION, STATE, vla_observation
from embodichain.utils import configclass
from embodichain.utils.configclass import field
from embodichain.utils.validation import from_dict

__all__ = ["OpenVLAOFT", "OpenVLAOFTCfg"]


@configclass
class OpenVLAOFTCfg(VLAModelCfg):
    """The ``model_config`` of ``OpenVLAOFT``; the environment's images are scaled to what ``vision`` takes."""

    bins: Annotated[int, Field(ge=2)] = 256
    """K: every number of an action is one of so many, evenly spaced in [-1, 1]."""
    vision: dict[str, Any] = field(default_factory=dict)
    """Of transformers' ``SiglipVisionConfig``."""
    language: dict[str, Any] = field(default_factory=dict)
    """Of transformers' ``LlamaConfig``. Its vocabulary must hold the environment's tokens."""


class OpenVLAOFT(VLAModel):
    """Chooses a chunk of discretised actions from images, the robot's state and an instruction.

    Patches, state, words and one query for each of the chunk's H A numbers are a sequence in which everything attends
    to everything (parallel decoding), so that one pass gives all distributions. An action is the middle of its bin.

    Args:
        **config: see ``OpenVLAOFTCfg``.

    Raises:
        ConfigError: keys or values are wrong, or transformers is not installed.
    """

    lora_targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Layers that low-rank adapters are put beside, see ``LoRACfg``."""
    lora_trained = ("actor", "critic")
    """What is trained as a whole beside them."""

    def __init__(self, **config: Any) -> None:
        cfg = from_dict(OpenVLAOFTCfg, config, "policy.vla_config.model_config")
        super().__init__(cfg)
        self.cfg = cfg
        need_transformers("OpenVLAOFT")
        from transformers import LlamaConfig, LlamaModel, SiglipVisionConfig, SiglipVisionModel  # noqa: PLC0415

        vision = transformers_config(SiglipVisionConfig, "vision", cfg.vision)
        language = transformers_config(LlamaConfig, "language", cfg.language)
        width = language.hidden_size
        self.vision_size = vision.image_size
        self.vision = SiglipVisionModel(vision)
        self.language = LlamaModel(language)
        self.projector = nn.Sequential(nn.Linear(vision.hidden_size, width), nn.GELU(), nn.Linear(width, width))
        self.state = nn.Linear(cfg.state_dim, width)
        self.queries = nn.Parameter(0.02 * torch.randn(cfg.chunk_length * cfg.action_dim, width))
        self.actor = nn.Linear(width, cfg.bins)
        self.critic = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(
        self, obs: Mapping[str, Any] | TensorDict, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose actions: [B, H, A] in [-1, 1], the log-probability of each of their bins [B, H, A], and values [B]."""
        logits, value = self._run(obs)
        chosen = logits.argmax(-1) if deterministic else torch.distributions.Categorical(logits=logits).sample()
        action = (chosen.float() + 0.5) * (2.0 / self.cfg.bins) - 1.0
        return action, _log_prob(logits, chosen), value

    def get_value(self, obs: Mapping[str, Any] | TensorDict) -> torch.Tensor:
        """Return the values of observations, [B]."""
        return self._run(obs)[1]

    def evaluate_actions(
        self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of the bins of actions [B, H, A], and values [B]."""
        logits, value = self._run(obs)
        chosen = ((actions + 1.0) * (self.cfg.bins / 2)).floor().long().clamp(0, self.cfg.bins - 1)
        log_probs = logits.log_softmax(-1)
        return _log_prob(logits, chosen), -(log_probs.exp() * log_probs).sum(-1), value

    def _run(self, obs: Mapping[str, Any] | TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits [B, H, A, K] and the values [B], float32."""
        device = self.queries.device
        given = vla_observation(obs, self.observation_keys, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            patches = [
                self.projector(self.vision(pixel_values=self._pixels(given[key])).last_hidden_state)
                for key in self.image_keys
            ]
            words = self.language.get_input_embeddings()(given[INSTRUCTION])
            queries = self.queries.expand(words.shape[0], -1, -1)
            sequence = torch.cat((*patches, self.state(given[STATE]).unsqueeze(1), words, queries), dim=1)
            # Nothing is masked: added to the scores of all pairs, and in place of the causal mask.
            mask = torch.zeros(sequence.shape[0], 1, *[sequence.shape[1]] * 2, dtype=sequence.dtype, device=device)
            hidden = self.language(inputs_embeds=sequence, attention_mask=mask, use_cache=False).last_hidden_state
            read = hidden[:, -self.queries.shape[0] :].float()
        logits = self.actor(read).unflatten(1, (self.chunk_length, self.action_dim))
        return logits, self.critic(read.mean(1).detach()).squeeze(1)

    def _pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 images [B, height, width, 3] as SigLIP takes them: [B, 3, size, size] in [-1, 1]."""
        pixels = images.permute(0, 3, 1, 2).float() / 127.5 - 1.0
        size = [self.vision_size] * 2
        if list(pixels.shape[-2:]) == size:
            return pixels
        return F.interpolate(pixels, size, mode="bilinear", antialias=True)


def _log_prob(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
