"""SmolVLA: a small vision-language model, and an action expert that turns noise into actions by flow matching.

Shukor et al., "SmolVLA: A Vision-Language-Action Model for Affordable and Efficient Robotics", 2025. The computation is
that of LeRobot 0.4.4, with transformers' layers. Needs the extra ``vla``.

Legend: B batch, P tokens of the prefix (images, words, state), H steps of an action chunk, A action size, J size of the
state, D width of the language model, E width of the expert, G its heads for keys and values, C their size.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F

from embodichain.agents.rl.models.vla.gaussian_vla import (
    INSTRUCTION,
    STATE,
    GaussianVLA,
    GaussianVLACfg,
    vla_observation,
)
from embodichain.utils import ConfigError, configclass
from embodichain.utils.configclass import field
from embodichain.utils.errors import unknown_name
from embodichain.utils.extras import install_extra
from embodichain.utils.validation import from_dict

_WAVELENGTH = 10_000.0  # longest, of rotary position embeddings
_PERIODS = (4e-3, 4.0)  # shortest and longest, of the time embedding


@configclass
class SmolVLACfg(GaussianVLACfg):
    """The ``model_config`` of ``SmolVLA``; images are resized to the vision encoder's input."""

    vision: dict[str, Any] = field(default_factory=dict)
    """Fields of transformers' ``SmolVLMVisionConfig``."""
    language: dict[str, Any] = field(default_factory=dict)
    """Fields of transformers' ``LlamaConfig``. Its vocabulary must include the environment's tokens. The expert has the
    same numbers of layers, heads and heads for keys and values."""
    scale_factor: PositiveInt = 4
    """scale_factor x scale_factor patches of an image are one token."""
    train_vlm: bool = False
    """Train the vision-language model too, not only the expert, the critic and the layers around them."""
    expert_width: Annotated[float, Field(gt=0)] = 0.75
    """E by D."""
    self_attention_every: PositiveInt = 2
    """In layers 0, k, 2k, ... for this k, actions attend to earlier ones and the prefix; else to the prefix alone."""
    denoising_steps: PositiveInt = 10
    """Euler steps from noise to actions; the last one is stochastic."""


@dataclass(frozen=True)
class _Prefix:
    """The expert's input.

    Attributes:
        keys, values: of each layer, [B, P, G, C].
        there: [B, P] bool, False at padding words.
        feature: of the token that attends to all others, [B, D] float32.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    there: torch.Tensor
    feature: torch.Tensor


class SmolVLA(GaussianVLA):
    """Chooses a chunk of actions by integrating a velocity field from noise, given the observation.

    From noise x at time 1 the expert's velocity v leads to the actions at time 0 in K Euler steps, x - v / K. The last
    step is stochastic: its end is the mean of a normal distribution, from which the actions are drawn. The policy is
    thus a distribution of actions for each observation *and noise*. The noise is standard normal for all weights, so it
    counts as part of the observation, and the policy gradient is exact with the log-probability of the last step
    alone. ``evaluate_actions`` computes it from the stored noise, with gradients through all K steps. (Compare
    "ReinFlow", Zhang et al., 2025, and "pi_RL", Chen et al., 2025, with other stochastic steps.) Deterministic actions
    start from zero noise.

    Args:
        **config: see ``SmolVLACfg``.

    Raises:
        ConfigError: keys or values are wrong, or transformers is not installed.
    """

    lora_targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Layers with low-rank adapters, see ``LoRACfg``."""
    lora_trained = ("state", "action_in", "time_in", "time_out", "action_out", "critic")
    """Modules trained as a whole beside them."""
    expert: Any  # a ModuleList of transformers' layers

    def __init__(self, **config: Any) -> None:
        cfg = from_dict(SmolVLACfg, config, "policy.vla_config.model_config")
        super().__init__(cfg)
        self.cfg = cfg
        if importlib.util.find_spec("transformers") is None:
            raise ConfigError(f"policy.vla_config.model_class: SmolVLA needs transformers: {install_extra('vla')}")
        from transformers import LlamaConfig, LlamaModel, SmolVLMConfig, SmolVLMModel  # noqa: PLC0415
        from transformers.models.smolvlm import SmolVLMVisionConfig  # noqa: PLC0415

        self.extra_fields = (("noise", cfg.chunk_length * cfg.action_dim),)
        vision = _transformers_config(SmolVLMVisionConfig, "vision", cfg.vision)
        text = _transformers_config(LlamaConfig, "language", {"pad_token_id": None} | cfg.language)
        width = _expert_width(vision, text, cfg)
        self.vision_size, self.head_size = vision.image_size, text.head_dim
        described = SmolVLMConfig(vision_config=vision, text_config=text, scale_factor=cfg.scale_factor)
        self.vlm = SmolVLMModel(described).requires_grad_(cfg.train_vlm)
        expert = LlamaModel(
            LlamaConfig(
                vocab_size=1,  # it has no words
                hidden_size=width,
                intermediate_size=_hidden_units(width),
                num_hidden_layers=text.num_hidden_layers,
                num_attention_heads=text.num_attention_heads,
                num_key_value_heads=text.num_key_value_heads,
                head_dim=text.head_dim,
                rms_norm_eps=text.rms_norm_eps,
                pad_token_id=None,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
        self.expert, self.expert_norm = expert.layers, expert.norm
        shared = text.num_key_value_heads * text.head_dim
        for number, layer in enumerate(self.expert):
            if number % cfg.self_attention_every:  # cross-attention: reads the language model's keys and values
                layer.self_attn.k_proj = nn.Linear(shared, shared, bias=False)
                layer.self_attn.v_proj = nn.Linear(shared, shared, bias=False)
        self.state = nn.Linear(cfg.state_dim, text.hidden_size)
        self.action_in = nn.Linear(cfg.action_dim, width)
        self.time_in = nn.Linear(2 * width, width)
        self.time_out = nn.Linear(width, width)
        self.action_out = nn.Linear(width, cfg.action_dim)
        self.critic = nn.Sequential(
            nn.Linear(text.hidden_size, text.hidden_size), nn.GELU(), nn.Linear(text.hidden_size, 1)
        )

    def forward(
        self, obs: Mapping[str, Any] | TensorDict, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose actions.

        Args:
            obs: ``image/<camera>`` uint8 [B, height, width, 3], ``state`` [B, J] and ``instruction`` [B, L].
            deterministic: zero noise, and the mean instead of a sample.

        Returns:
            Actions [B, H, A], the log-probability of each component [B, H, A], values [B], and the initial noise
            [B, H A].
        """
        prefix = self._see(obs)
        shape = (prefix.there.shape[0], self.chunk_length, self.action_dim)
        noise = self.log_std.new_zeros(shape) if deterministic else torch.randn(shape, device=self.log_std.device)
        action, log_prob = self.choose(self._carry(noise, prefix), deterministic)
        return action, log_prob, self._value(prefix), noise.flatten(1)

    def get_value(self, obs: Mapping[str, Any] | TensorDict) -> torch.Tensor:
        """Return the values of observations, [B]."""
        return self._value(self._see(obs))

    def evaluate_actions(
        self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of actions [B, H, A] from noise [B, H A], and values [B]."""
        prefix = self._see(obs)
        mean = self._carry(noise.view_as(actions), prefix)
        return *self.judge(actions, mean), self._value(prefix)

    def imitation_loss(self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Return the flow matching loss of demonstrated actions [B, H, A], the same shape.

        At a time t ~ Beta(1.5, 1) the target velocity at t noise + (1 - t) actions is noise - actions (Lipman et al.,
        "Flow Matching for Generative Modeling", ICLR 2023).
        """
        noise = torch.randn_like(actions)
        # Inverse transform sampling; the distribution function is t^(3/2).
        time = torch.rand(len(actions), device=actions.device).pow(2 / 3) * 0.999 + 0.001
        mixed = torch.lerp(actions, noise, time[:, None, None])
        return (self._velocity(mixed, time, self._see(obs)) - (noise - actions)).square()

    def _value(self, prefix: _Prefix) -> torch.Tensor:
        return self.critic(prefix.feature.detach()).squeeze(1)

    def _carry(self, noise: torch.Tensor, prefix: _Prefix) -> torch.Tensor:
        """Return the actions at the end of the flow from noise [B, H, A], float32."""
        steps = self.cfg.denoising_steps
        for step in range(steps):
            time = noise.new_full(noise.shape[:1], 1.0 - step / steps)
            noise = noise - self._velocity(noise, time, prefix) / steps
        return noise

    def _see(self, obs: Mapping[str, Any] | TensorDict) -> _Prefix:
        """Run the language model over images, words and state; return the expert's input."""
        device = self.log_std.device
        given = vla_observation(obs, self.observation_keys, device)
        text = self.vlm.text_model
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            images = [
                self.vlm.connector(self.vlm.vision_model(self._pixels(given[key])).last_hidden_state)
                for key in self.image_keys
            ]
            words = text.get_input_embeddings()(given[INSTRUCTION])
            seen = torch.cat((*images, words), dim=1) * math.sqrt(words.shape[-1])
            hidden = torch.cat((seen, self.state(self.normalized(given[STATE])).unsqueeze(1)), dim=1)
            there = torch.ones(hidden.shape[:2], dtype=torch.bool, device=device)
            there[:, -1 - words.shape[1] : -1] = given[INSTRUCTION] != 0
            places = there.cumsum(1) - 1
            mask = there.unsqueeze(1).repeat(1, hidden.shape[1], 1)
            mask[:, :-1, -1] = False  # the state attends to images and words, not they to it
            keys, values = [], []
            for number, layer in enumerate(text.layers):
                before = layer.input_layernorm(hidden)
                query = _rotated(self._heads(layer.self_attn.q_proj(before)), places)
                key = _rotated(self._heads(layer.self_attn.k_proj(before)), places)
                value = self._heads(layer.self_attn.v_proj(before))
                hidden = _rest_of_layer(layer, hidden, _attend(query, key, value, mask))
                if number % self.cfg.self_attention_every:
                    own = self.expert[number].self_attn
                    key, value = (
                        self._heads(project(of.flatten(2))) for project, of in ((own.k_proj, key), (own.v_proj, value))
                    )
                keys.append(key)
                values.append(value)
            feature = text.norm(hidden[:, -1]).float()
        return _Prefix(keys, values, there, feature)

    def _velocity(self, noisy: torch.Tensor, time: torch.Tensor, prefix: _Prefix) -> torch.Tensor:
        """Return the velocity at noisy actions [B, H, A] and times [B], [B, H, A] float32."""
        steps, device = noisy.shape[1], noisy.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            told = _waves(time, self.action_in.out_features).unsqueeze(1).expand(-1, steps, -1)
            hidden = self.time_out(F.silu(self.time_in(torch.cat((self.action_in(noisy), told), dim=2))))
            places = torch.arange(steps, device=device).unsqueeze(0)
            after = prefix.there.sum(1, keepdim=True) + places
            prefix_mask = prefix.there.unsqueeze(1).expand(-1, steps, -1)
            causal = torch.ones(steps, steps, dtype=torch.bool, device=device).tril()
            full_mask = torch.cat((prefix_mask, causal.expand(noisy.shape[0], -1, -1)), dim=2)
            for number, (layer, key, value) in enumerate(zip(self.expert, prefix.keys, prefix.values, strict=True)):
                before = layer.input_layernorm(hidden)
                query = self._heads(layer.self_attn.q_proj(before))
                if number % self.cfg.self_attention_every:
                    seen = _attend(_rotated(query, places), key, value, prefix_mask)
                else:
                    own = _rotated(self._heads(layer.self_attn.k_proj(before)), after)
                    key = torch.cat((key, own), dim=1)
                    value = torch.cat((value, self._heads(layer.self_attn.v_proj(before))), dim=1)
                    seen = _attend(_rotated(query, after), key, value, full_mask)
                hidden = _rest_of_layer(layer, hidden, seen)
            hidden = self.expert_norm(hidden).float()
        return self.action_out(hidden)

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(2, (-1, self.head_size))

    def _pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 images [B, height, width, 3] as [B, 3, size, size] in [-1, 1], padded at the left and top."""
        pixels = images.permute(0, 3, 1, 2).float() / 255
        height, width = pixels.shape[-2:]
        scale = self.vision_size / max(height, width)
        fitted = [int(height * scale), int(width * scale)]
        if fitted != [height, width]:
            pixels = F.interpolate(pixels, fitted, mode="bilinear")
        return F.pad(pixels, (self.vision_size - fitted[1], 0, self.vision_size - fitted[0], 0)) * 2 - 1


def _rest_of_layer(layer: Any, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return the output of a Llama layer for its input and its attention's output."""
    hidden = hidden + layer.self_attn.o_proj(seen)
    result: torch.Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return result


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return attention of queries [B, S, heads, C] to keys and values [B, R, G, C], [B, S, heads C]; mask [B, S, R]."""
    query, key, value = (x.transpose(1, 2) for x in (query, key.to(query.dtype), value.to(query.dtype)))
    seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.unsqueeze(1), enable_gqa=True)
    return seen.transpose(1, 2).flatten(2)


def _rotated(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return heads [B, S, heads, C] rotated by positions [B or 1, S] (Su et al., "RoFormer", 2021)."""
    half = x.shape[-1] // 2
    speed = _WAVELENGTH ** -(torch.arange(half, device=x.device) / half)
    angle = (places.unsqueeze(-1) * speed).unsqueeze(2)
    sine, cosine = angle.sin(), angle.cos()
    first, second = x.float().split(half, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def _waves(time: torch.Tensor, width: int) -> torch.Tensor:
    """Return sines and cosines of times [B], [B, width], computed in float64 as the shortest period is 4e-3."""
    shortest, longest = _PERIODS
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    angle = time.double().unsqueeze(1) * (2 * math.pi / (shortest * (longest / shortest) ** share))
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(time.dtype)


def _expert_width(vision: Any, text: Any, cfg: SmolVLACfg) -> int:
    """Return E; check that the sizes fit together."""
    place = "policy.vla_config.model_config"
    across, rest = divmod(vision.image_size, vision.patch_size)
    if rest or across % cfg.scale_factor:
        raise ConfigError(
            f"{place}.vision: an image of {vision.image_size} pixels must be a multiple of {cfg.scale_factor} "
            f"(scale_factor) patches of {vision.patch_size}"
        )
    if text.head_dim % 2 or text.num_attention_heads % text.num_key_value_heads:
        raise ConfigError(
            f"{place}.language: head_dim {text.head_dim} must be even, and num_attention_heads "
            f"{text.num_attention_heads} a multiple of num_key_value_heads {text.num_key_value_heads}"
        )
    width = int(text.hidden_size * cfg.expert_width)
    if width < 2 or width % 2:
        raise ConfigError(
            f"{place}.expert_width: {cfg.expert_width} of {text.hidden_size} is {width}, it must be an even number"
        )
    return width


def _hidden_units(width: int) -> int:
    """Return the hidden size of a gated MLP: 8/3 of the width, rounded up to a multiple of 256."""
    return 256 * math.ceil(int(4 * int(2 * width / 3)) / 256)


def _transformers_config(cls: type, key: str, values: Mapping[str, Any]) -> Any:
    """Build a config of transformers from ``model_config.<key>``; unknown keys are errors."""
    place = f"policy.vla_config.model_config.{key}"
    known = [*cls().to_dict(), *getattr(cls, "attribute_map", {})]
    for name in values:
        if name not in known:
            raise ConfigError(f"{place}.{name}: {unknown_name('key', name, known)}")
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415 (optional extra)

    try:
        return cls(**values)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise ConfigError(f"{place}: {' '.join(str(error).split())}") from error
