"""A small vision-language-action model that trains on a CPU: 1.6 million parameters.

Legend: B batch, H steps of an action chunk, A action size, J size of the state, L tokens of an instruction, D width,
S tokens in all.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from embodichain.ext.vla.gaussian_vla import INSTRUCTION, STATE, GaussianVLA, GaussianVLACfg, vla_observation
from embodichain.lab.gym.utils.instructions import VOCABULARY
from embodichain.utils import configclass, field, from_dict

_SHARPNESS = 4.0  # initial scale of the soft maxima: a uniform softmax has nearly no gradient


@configclass
class TinyVLACfg(GaussianVLACfg):
    """The ``model_config`` of ``TinyVLA``."""

    vocabulary_size: PositiveInt = len(VOCABULARY)
    """Number of different tokens."""
    channels: Annotated[list[PositiveInt], Field(min_length=2)] = field(default_factory=lambda: [32, 64, 128])
    """Output channels of the convolutions; each halves the image, and one more, to ``width``, does as well."""
    keypoints: PositiveInt = 32
    """Keypoints in each image, given to the transformer by their coordinates."""
    width: PositiveInt = 160
    """D."""
    depth: PositiveInt = 2
    """Blocks of the transformer."""
    heads: PositiveInt = 5
    """Heads of the attention."""
    gradient_checkpointing: bool = False
    """Compute the transformer's blocks again for their gradients: less memory, a third more time."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if min(self.image_size) < 2 ** (len(self.channels) + 1):
            raise ValueError(f"an image of {self.image_size} is too small for {len(self.channels) + 1} halvings")
        return self


class _Block(nn.Module):
    """Self-attention and an MLP of four times the width, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # [B, heads, 3, S, D / heads]
        query, key, value = qkv.unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class _Transformer(nn.Module):
    """``depth`` blocks of self-attention over all tokens, [B, S, D] -> [B, S, D]."""

    def __init__(self, width: int, depth: int, heads: int, gradient_checkpointing: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.gradient_checkpointing = gradient_checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised output of the last block."""
        for block in self.blocks:
            if self.gradient_checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        out: torch.Tensor = self.norm(x)
        return out


class TinyVLA(GaussianVLA):
    """Chooses a chunk of normally distributed actions from images, the robot's state and an instruction.

    The instruction scales and shifts the features of the first two convolutions (FiLM: Perez et al., 2018). Further
    convolutions turn them into tokens. The instruction also makes K queries: each is compared with the features at
    every pixel, and the soft maximum is a keypoint (Levine et al., "End-to-End Training of Deep Visuomotor Policies",
    2016); all keypoints are one token. These tokens, the words, the state and one readout token go through a
    transformer. From the readout token an MLP computes the mean of all H actions at once; the stds are parameters. The
    critic reads the same features without gradients, so that its error does not disturb the actions.
    """

    lora_targets = ("qkv", "out", "mlp.0", "mlp.2")
    """Layers with low-rank adapters, see ``LoRACfg``."""
    lora_trained = ("actor", "critic")
    """Modules trained as a whole, too."""

    def __init__(self, **config: Any) -> None:
        cfg = from_dict(TinyVLACfg, config, "policy.vla_config.model_config")
        super().__init__(cfg)
        self.cfg = cfg
        width = cfg.width
        self.stem = nn.Sequential(*_convolutions([3, *cfg.channels[:2]]), nn.GELU())
        # Gives small or rare objects the same weight: without it, a clone took any cube.
        self.contrast = nn.InstanceNorm2d(cfg.channels[1])
        self.text = nn.Sequential(nn.Linear(cfg.instruction_length * width, width), nn.LayerNorm(width), nn.GELU())
        self.film = nn.Linear(width, 2 * cfg.channels[1])
        self.stages = nn.Sequential(*_convolutions([*cfg.channels[1:], width]))
        self.questions = nn.Linear(width, cfg.keypoints * cfg.channels[1])
        self.points = nn.Linear(2 * cfg.keypoints, width)
        patches = math.prod(-(-size // 2 ** (len(cfg.channels) + 1)) for size in cfg.image_size)
        self.words = nn.Embedding(cfg.vocabulary_size, width)
        self.state = nn.Linear(cfg.state_dim, width)
        count = len(cfg.cameras) * (patches + 1) + cfg.instruction_length + 2
        self.places = nn.Parameter(0.02 * torch.randn(count, width))
        self.trunk = _Transformer(width, cfg.depth, cfg.heads, cfg.gradient_checkpointing)
        self.actor = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, cfg.chunk_length * cfg.action_dim)
        )
        self.critic = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(
        self, obs: Mapping[str, Any] | TensorDict, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose actions.

        Args:
            obs: ``image/<camera>`` uint8 [B, height, width, 3], ``state`` [B, J] and ``instruction`` [B, L].
            deterministic: take the mean instead of a sample.

        Returns:
            Actions [B, H, A], the log-probability of each component [B, H, A], and values [B].
        """
        mean, value = self._run(obs)
        return *self.choose(mean, deterministic), value

    def get_value(self, obs: Mapping[str, Any] | TensorDict) -> torch.Tensor:
        """Return the values of observations, [B]."""
        return self._run(obs)[1]

    def evaluate_actions(
        self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of actions [B, H, A], the same shape, and values [B]."""
        mean, value = self._run(obs)
        return *self.judge(actions, mean), value

    def _look(self, images: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the tokens of uint8 images [B, height, width, 3] for instructions [B, D]: [B, patches + 1, D]."""
        scale, shift = self.film(text)[:, :, None, None].chunk(2, dim=1)
        in_unit = images.permute(0, 3, 1, 2).float() / 127.5 - 1.0  # [-1, 1]
        seen = self.contrast(self.stem(in_unit)) * (1 + scale) + shift
        patches = self.stages(seen).flatten(2).transpose(1, 2)
        questions = self.questions(text).unflatten(1, (self.cfg.keypoints, -1))
        heat = torch.einsum("bkc,bchw->bkhw", questions, seen) * (_SHARPNESS / math.sqrt(seen.shape[1]))
        points = self.points(_soft_maxima(heat))
        return torch.cat((patches, points.unsqueeze(1)), dim=1)

    def _run(self, obs: Mapping[str, Any] | TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the actions' mean [B, H, A] and the values [B], float32."""
        device = self.places.device
        given = vla_observation(obs, self.observation_keys, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            words = self.words(given[INSTRUCTION])
            text = self.text(words.flatten(1))
            images = [self._look(given[key], text) for key in self.image_keys]
            state = self.state(self.normalized(given[STATE]))
            seen = torch.cat((*images, words, state.unsqueeze(1)), dim=1)
            tokens = torch.cat((torch.zeros_like(seen[:, :1]), seen), dim=1) + self.places  # [B, S, D]
            features = self.trunk(tokens)
            read, mean_feature = features[:, 0].float(), features[:, 1:].mean(1).float()
        mean = self.actor(read).unflatten(1, (self.chunk_length, self.action_dim))
        value = self.critic(torch.cat((read, mean_feature), dim=1).detach()).squeeze(1)
        return mean, value


def _convolutions(channels: list[int]) -> list[nn.Module]:
    """Return convolutions between these numbers of channels, with activations; each halves the image."""
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
    return layers[:-1]


def _soft_maxima(heat: torch.Tensor) -> torch.Tensor:
    """Return the positions of the maxima of maps [B, K, height, width], [B, 2 K] in [-1, 1]: means under a softmax."""
    height, width = heat.shape[-2:]
    weights = heat.float().flatten(2).softmax(2).unflatten(2, (height, width))
    y, x = (torch.linspace(-1.0, 1.0, size, device=heat.device) for size in (height, width))
    return torch.cat(((weights.sum(3) * y).sum(2), (weights.sum(2) * x).sum(2)), dim=1)
