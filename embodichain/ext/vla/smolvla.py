"""SmolVLA: a small vision-language model, and an action expert that turns noise into actions by flow matching.

Shukor et al., "SmolVLA: A Vision-Language-Action Model for Affordable and Efficient Robotics", 2025. The computation is
that of LeRobot, with transformers' layers. Needs the extra ``vla``.

Legend: B batch, P tokens of the prefix (images, words, state), L tokens of the instruction, H executed actions of a
chunk, F predicted ones, A action size, W the flow's, J size of the state, I tokens of all images, D width of the
language model, E the expert's width, G its heads for keys and values, C their size.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from embodichain.ext.vla.gaussian_vla import INSTRUCTION, STATE, GaussianVLA, GaussianVLACfg, vla_observation
from embodichain.utils import ConfigError, configclass, field, from_dict, install_extra, placed, unknown_name

PLACE = "policy.vla_config.model_config"

Normalization = Literal["IDENTITY", "MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10"]
"""Kinds of scaling of a vector by statistics: to mean 0 and std 1, or a range to [-1, 1]; LeRobot's names."""

EPSILON = 1e-8
"""Added to a std that is divided by."""
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
"""The statistics that are the ends of a range, by kind."""

_QUANTILES = {"MIN_MAX": (0.0, 1.0), "QUANTILES": (0.01, 0.99), "QUANTILE10": (0.1, 0.9)}


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
    """Number k: in layers 0, k, 2k, ... actions attend to earlier ones and the prefix; else to the prefix alone."""
    denoising_steps: PositiveInt = 10
    """Euler steps from noise to actions; the last one is stochastic."""
    flow_length: PositiveInt | None = None
    """F, actions that the flow predicts; the first ``chunk_length`` are executed. null: ``chunk_length``."""
    state_width: PositiveInt | None = None
    """The state is filled up with zeros to this size. null: ``state_dim``."""
    action_width: PositiveInt | None = None
    """W: the flow's actions have this size, of which the first ``action_dim`` are executed. null: ``action_dim``."""
    image_input: PositiveInt | None = None
    """Height and width that images are resized to, pixels. null: the vision encoder's ``image_size``."""
    state_normalization: Normalization = "MEAN_STD"
    """Kind of the state's statistics."""
    action_normalization: Normalization = "IDENTITY"
    """Kind of the actions' statistics, if the flow's actions are normalised."""
    periods: tuple[PositiveFloat, PositiveFloat] = (4e-3, 4.0)
    """Shortest and longest period of the time embedding."""
    gradient_checkpointing: bool = False
    """Compute each Euler step again for its gradients: a fraction of the memory, a third more time."""
    cache_vision: bool = False
    """Store the features of each image in the rollout, instead of computing them again in each update; the vision
    encoder must not be trained."""

    @model_validator(mode="after")
    def _has_places(self) -> Self:
        for name, wide, least in (
            ("flow_length", self.flow_length, "chunk_length"),
            ("state_width", self.state_width, "state_dim"),
            ("action_width", self.action_width, "action_dim"),
        ):
            if wide is not None and wide < getattr(self, least):
                raise ValueError(f"{name} {wide} is below {least} {getattr(self, least)}")
        if self.cache_vision and self.train_vlm:
            raise ValueError("cache_vision: only without train_vlm")
        return self


@dataclass(frozen=True)
class _Prefix:
    """The expert's input.

    Attributes:
        keys, values: keys and values of each layer, [B, P, G, C].
        there: [B, P] bool, False at padding words.
        feature: feature of the token that attends to all others, and the others' mean, [B, 2 D] float32.
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
    """

    lora_targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Layers with low-rank adapters, see ``LoRACfg``."""
    lora_trained = ("state", "action_in", "time_in", "time_out", "action_out", "critic")
    """Modules trained as a whole, too."""
    expert: Any  # a ModuleList of transformers' layers
    action_mean: torch.Tensor  # [A], if actions are normalised
    action_std: torch.Tensor  # [A]
    flow_shape: tuple[int, int]  # F, W
    extra_fields: tuple[tuple[str, int], ...]
    read_words: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Turns the observation's instructions [B, L] into the language model's tokens and a mask that is False at
    padding. Unless another function is put here, they are its tokens."""

    def __init__(self, **config: Any) -> None:
        cfg = from_dict(SmolVLACfg, config, PLACE)
        super().__init__(cfg)
        self.cfg = cfg
        self.read_words = _own_words
        with placed("policy.vla_config.model_class: "):
            check_transformers()
        from transformers import LlamaConfig, LlamaModel, SmolVLMConfig, SmolVLMModel  # noqa: PLC0415
        from transformers.models.smolvlm import SmolVLMVisionConfig  # noqa: PLC0415

        self.imitation_length = cfg.flow_length or cfg.chunk_length  # F
        self.flow_shape = (self.imitation_length, cfg.action_width or cfg.action_dim)
        self._state_width = cfg.state_width or cfg.state_dim
        if cfg.action_normalization != "IDENTITY":
            self.register_buffer("action_mean", torch.zeros(cfg.action_dim))
            self.register_buffer("action_std", torch.ones(cfg.action_dim))
        vision = transformers_config(SmolVLMVisionConfig, "vision", cfg.vision)
        text = transformers_config(LlamaConfig, "language", {"pad_token_id": None} | cfg.language)
        self._image_input, self._head_size = image_input(vision, cfg), text.head_dim
        patches = self._image_input // vision.patch_size // cfg.scale_factor
        self._seen_shape = (len(cfg.cameras) * patches * patches, text.hidden_size)
        fields = [("noise", math.prod(self.flow_shape))]
        self.extra_fields = (*fields, ("vision", math.prod(self._seen_shape))) if cfg.cache_vision else tuple(fields)
        described = SmolVLMConfig(vision_config=vision, text_config=text, scale_factor=cfg.scale_factor)
        self.vlm = SmolVLMModel(described).requires_grad_(cfg.train_vlm)
        expert = LlamaModel(LlamaConfig(**expert_fields(text, cfg)))
        self.expert, self.expert_norm = expert.layers, expert.norm
        shared = text.num_key_value_heads * text.head_dim
        for number, layer in enumerate(self.expert):
            if number % cfg.self_attention_every:  # cross-attention: reads the language model's keys and values
                layer.self_attn.k_proj = nn.Linear(shared, shared, bias=text.attention_bias)
                layer.self_attn.v_proj = nn.Linear(shared, shared, bias=text.attention_bias)
        width = expert.config.hidden_size
        self.state = nn.Linear(self._state_width, text.hidden_size)
        self.action_in = nn.Linear(self.flow_shape[1], width)
        self.time_in = nn.Linear(2 * width, width)
        self.time_out = nn.Linear(width, width)
        self.action_out = nn.Linear(width, self.flow_shape[1])
        self.critic = nn.Sequential(
            nn.Linear(2 * text.hidden_size, text.hidden_size), nn.GELU(), nn.Linear(text.hidden_size, 1)
        )

    def forward(self, obs: Mapping[str, Any] | TensorDict, deterministic: bool = False) -> tuple[torch.Tensor, ...]:
        """Choose actions.

        Args:
            obs: ``image/<camera>`` uint8 [B, height, width, 3], ``state`` [B, J] and ``instruction`` [B, L].
            deterministic: zero noise, and the mean instead of a sample.

        Returns:
            Actions [B, H, A], the log-probability of each component [B, H, A], values [B], the initial noise [B, F W],
            and with ``cache_vision`` the features of the images [B, I D].
        """
        images = self._look(obs)
        prefix = self._see(obs, images)
        shape = (prefix.there.shape[0], *self.flow_shape)
        noise = self.log_std.new_zeros(shape) if deterministic else torch.randn(shape, device=self.log_std.device)
        mean = self._executed(self._carry(noise, prefix))
        action = self._to_actions(self.choose(mean, deterministic)[0])
        # Of the rounded action: evaluate_actions finds the same.
        result = (action, self._judge(action, mean)[0], self._value(prefix), noise.flatten(1))
        return (*result, images.float().flatten(1)) if self.cfg.cache_vision else result

    def get_value(self, obs: Mapping[str, Any] | TensorDict) -> torch.Tensor:
        """Return the values of observations, [B]."""
        return self._value(self._see(obs))

    def evaluate_actions(
        self,
        obs: Mapping[str, Any] | TensorDict,
        actions: torch.Tensor,
        noise: torch.Tensor,
        vision: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of actions [B, H, A] from noise [B, F W], and values [B].

        Args:
            vision: the features that ``forward`` returned, [B, I D].
        """
        prefix = self._see(obs, None if vision is None else vision.unflatten(1, self._seen_shape))
        mean = self._executed(self._carry(noise.unflatten(1, self.flow_shape), prefix))
        return *self._judge(actions, mean), self._value(prefix)

    def fit_inputs(self, state: torch.Tensor) -> None:
        """Normalise states by the statistics of states [M, J] from now on."""
        if self.cfg.state_normalization == "MEAN_STD":
            super().fit_inputs(state)
        elif self.cfg.state_normalization != "IDENTITY":
            low, half_width = fitted(state, self.cfg.state_normalization)
            self.state_mean.copy_(low)
            self.state_std.copy_(half_width.clamp(min=1e-3))

    def fit_actions(self, action: torch.Tensor) -> None:
        """Normalise actions, if they are normalised, by the statistics of actions [M, A] from now on."""
        if self.cfg.action_normalization != "IDENTITY":
            mean, std = fitted(action, self.cfg.action_normalization)
            self.action_mean.copy_(mean)
            self.action_std.copy_(std)

    def check_training(self) -> None:
        """Check the trained modules, adapters included."""
        parts = (self.vlm.vision_model, self.vlm.connector)
        if self.cfg.cache_vision and any(p.requires_grad for part in parts for p in part.parameters()):
            raise ConfigError(
                f"{PLACE}.cache_vision: the vision encoder is trained by lora.target_modules; name modules of the "
                "expert, such as 'expert.0.self_attn.q_proj'"
            )

    def predict(self, obs: Mapping[str, Any] | TensorDict, noise: torch.Tensor) -> torch.Tensor:
        """Return the whole chunk that noise [B, F, W] leads to, [B, F, A]."""
        return self._to_actions(self._carry(noise, self._see(obs))[..., : self.action_dim])

    def imitation_loss(self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Return the flow matching loss of demonstrated actions [B, F, A], the same shape, at times ~ Beta(1.5, 1)."""
        noise = torch.randn(len(actions), *self.flow_shape, device=actions.device)
        # Inverse transform sampling; the distribution function is t^(3/2).
        time = torch.rand(len(actions), device=actions.device).pow(2 / 3) * 0.999 + 0.001
        return self.flow_loss(obs, actions, noise, time)

    def flow_loss(
        self, obs: Mapping[str, Any] | TensorDict, actions: torch.Tensor, noise: torch.Tensor, time: torch.Tensor
    ) -> torch.Tensor:
        """Return the flow matching loss of actions [B, F, A] for noise [B, F, W] and times [B], [B, F, A].

        At a time t the target velocity at t noise + (1 - t) actions is noise - actions (Lipman et al., "Flow Matching
        for Generative Modeling", ICLR 2023).
        """
        end = F.pad(self._from_actions(actions), (0, self.flow_shape[1] - self.action_dim))
        mixed = torch.lerp(end, noise, time[:, None, None])
        loss = (self._velocity(mixed, time, self._see(obs)) - (noise - end)).square()
        return loss[..., : self.action_dim]

    def _executed(self, chunk: torch.Tensor) -> torch.Tensor:
        """Return the executed part of a flow's end [B, F, W], [B, H, A]."""
        return chunk[:, : self.chunk_length, : self.action_dim]

    def _judge(self, actions: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies of actions around the flow's mean, all [B, H, A].

        An action that the statistics say is constant has no probability: both are 0.
        """
        log_prob, entropy = self.judge(self._from_actions(actions), mean)
        if self.cfg.action_normalization == "IDENTITY":
            return log_prob, entropy
        varies = self.action_std != 0
        return log_prob * varies, entropy * varies

    def _to_actions(self, chunk: torch.Tensor) -> torch.Tensor:
        """Return the environment's actions for the flow's, [..., A]."""
        kind = self.cfg.action_normalization
        return chunk if kind == "IDENTITY" else denormalized(chunk, self.action_mean, self.action_std, kind)

    def _from_actions(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the flow's actions for the environment's, [..., A]."""
        kind = self.cfg.action_normalization
        return actions if kind == "IDENTITY" else normalized(actions, self.action_mean, self.action_std, kind)

    def _value(self, prefix: _Prefix) -> torch.Tensor:
        return self.critic(prefix.feature.detach()).squeeze(1)

    def _carry(self, noise: torch.Tensor, prefix: _Prefix) -> torch.Tensor:
        """Return the end of the flow from noise [B, F, W], float32."""
        steps = self.cfg.denoising_steps
        for step in range(steps):
            time = noise.new_full(noise.shape[:1], 1.0 - step / steps)
            if self.cfg.gradient_checkpointing and torch.is_grad_enabled():
                velocity = checkpoint(self._velocity, noise, time, prefix, use_reentrant=False)
            else:
                velocity = self._velocity(noise, time, prefix)
            noise = noise - velocity / steps
        return noise

    def _look(self, obs: Mapping[str, Any] | TensorDict) -> torch.Tensor:
        """Return the features of the images, [B, I, D]."""
        device = self.log_std.device
        given = vla_observation(obs, self.image_keys, device)
        pixels = (fitted_pixels(given[key], self._image_input) for key in self.image_keys)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            features = [self.vlm.connector(self.vlm.vision_model(each).last_hidden_state) for each in pixels]
        return torch.cat(features, dim=1)

    def _see(self, obs: Mapping[str, Any] | TensorDict, images: torch.Tensor | None = None) -> _Prefix:
        """Run the language model over images, words and state; return the expert's input.

        The state attends to images and words, not they to it. So it passes the layers separately, and where the
        language model is not trained, gradients go through this one token alone.

        Args:
            images: their features [B, I, D], if they are known.
        """
        images = self._look(obs) if images is None else images
        device = self.log_std.device
        given = vla_observation(obs, (STATE, INSTRUCTION), device)
        text = self.vlm.text_model
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            tokens, is_word = self.read_words(given[INSTRUCTION])
            words = text.get_input_embeddings()(tokens)
            context = torch.cat((images, words), dim=1) * math.sqrt(words.shape[-1])
            state = self.state(self._state(given[STATE])).unsqueeze(1)
            there = F.pad(is_word, (images.shape[1], 1), value=True)
            places = there.cumsum(1) - 1
            context_mask, state_mask = (there[:, None, :-1].expand(-1, context.shape[1], -1), there.unsqueeze(1))
            keys, values = [], []
            for number, layer in enumerate(text.layers):
                context, *seen = self._layer(layer, context, places[:, :-1], context_mask)
                state, key, value = self._layer(layer, state, places[:, -1:], state_mask, *seen)
                if number % self.cfg.self_attention_every:
                    own = self.expert[number].self_attn
                    key, value = (
                        self._heads(project(of.flatten(2))) for project, of in ((own.k_proj, key), (own.v_proj, value))
                    )
                keys.append(key)
                values.append(value)
            mean = (text.norm(context) * there[:, :-1, None]).sum(1) / there[:, :-1].sum(1, keepdim=True)
            feature = torch.cat((text.norm(state[:, 0]), mean), dim=1).float()
        return _Prefix(keys, values, there, feature)

    def _layer(
        self, layer: Any, hidden: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, *earlier: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run a layer of the language model; return its output [B, S, D] and the keys and values that it attended to.

        Args:
            hidden: its input at positions [B, S].
            mask: [B, S, R].
            earlier: keys and values of tokens before these, [B, R - S, G, C].
        """
        before = layer.input_layernorm(hidden)
        query = rotated(self._heads(layer.self_attn.q_proj(before)), places)
        key = rotated(self._heads(layer.self_attn.k_proj(before)), places)
        value = self._heads(layer.self_attn.v_proj(before))
        if earlier:
            key, value = (torch.cat(pair, dim=1) for pair in zip(earlier, (key, value), strict=True))
        return rest_of_layer(layer, hidden, attend(query, key, value, mask)), key, value

    def _velocity(self, noisy: torch.Tensor, time: torch.Tensor, prefix: _Prefix) -> torch.Tensor:
        """Return the velocity at noisy actions [B, F, W] and times [B], [B, F, W] float32."""
        steps, device = noisy.shape[1], noisy.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cfg.bf16):
            told = waves(time, self.action_in.out_features, self.cfg.periods).unsqueeze(1).expand(-1, steps, -1)
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
                    seen = attend(rotated(query, places), key, value, prefix_mask)
                else:
                    own = rotated(self._heads(layer.self_attn.k_proj(before)), after)
                    key = torch.cat((key, own), dim=1)
                    value = torch.cat((value, self._heads(layer.self_attn.v_proj(before))), dim=1)
                    seen = attend(rotated(query, after), key, value, full_mask)
                hidden = rest_of_layer(layer, hidden, seen)
            hidden = self.expert_norm(hidden).float()
        return self.action_out(hidden)

    def _state(self, state: torch.Tensor) -> torch.Tensor:
        """Return the language model's input for states [B, J], [B, state_width]."""
        shifted = self.normalized(state) + shift_of(self.cfg.state_normalization)
        return F.pad(shifted, (0, self._state_width - shifted.shape[1]))

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(2, (-1, self._head_size))


def _own_words(instruction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of our vocabulary, [B, L], and where there is one."""
    return instruction, instruction != 0


_WAVELENGTH = 10_000.0  # longest, of rotary position embeddings


def rest_of_layer(layer: Any, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return the output of a Llama layer for its input and its attention's output."""
    hidden = hidden + layer.self_attn.o_proj(seen)
    result: torch.Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return result


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return attention of queries [B, S, heads, C] to keys and values [B, R, G, C], [B, S, heads C]; mask [B, S, R]."""
    query, key, value = (x.transpose(1, 2) for x in (query, key.to(query.dtype), value.to(query.dtype)))
    seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.unsqueeze(1), enable_gqa=True)
    return seen.transpose(1, 2).flatten(2)


def rotated(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return heads [B, S, heads, C] rotated by positions [B or 1, S] (Su et al., "RoFormer", 2021)."""
    half = x.shape[-1] // 2
    speed = _WAVELENGTH ** -(torch.arange(half, device=x.device) / half)
    angle = (places.unsqueeze(-1) * speed).unsqueeze(2)
    sine, cosine = angle.sin(), angle.cos()
    first, second = x.float().split(half, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def waves(time: torch.Tensor, width: int, periods: tuple[float, float]) -> torch.Tensor:
    """Return sines and cosines of times [B], [B, width], computed in float64 as the shortest period is small."""
    shortest, longest = periods
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    angle = time.double().unsqueeze(1) * (2 * math.pi / (shortest * (longest / shortest) ** share))
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(time.dtype)


def fitted_pixels(images: torch.Tensor, size: int) -> torch.Tensor:
    """Return uint8 images [B, height, width, 3] as [B, 3, size, size] in [-1, 1], padded at the left and top."""
    pixels = images.permute(0, 3, 1, 2).float() / 255
    height, width = pixels.shape[-2:]
    ratio = max(width / size, height / size)
    fitted = [int(height / ratio), int(width / ratio)]
    if fitted != [height, width]:
        pixels = F.interpolate(pixels, fitted, mode="bilinear")
    return F.pad(pixels, (size - fitted[1], 0, size - fitted[0], 0)) * 2 - 1


def check_transformers() -> None:
    """Check that the extra ``vla`` is installed."""
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(f"SmolVLA needs transformers: {install_extra('vla')}")


def image_input(vision: Any, cfg: SmolVLACfg) -> int:
    """Return height and width of the images that the vision encoder gets, pixels."""
    size = int(cfg.image_input or vision.image_size)
    across, rest = divmod(size, vision.patch_size)
    if rest or across % cfg.scale_factor:
        raise ConfigError(
            f"{PLACE}.vision: an image of {size} pixels must be a multiple of {cfg.scale_factor} "
            f"(scale_factor) patches of {vision.patch_size}"
        )
    return size


def expert_fields(text: Any, cfg: SmolVLACfg) -> dict[str, Any]:
    """Return the fields of the expert's ``LlamaConfig`` for the language model's."""
    width = int(text.hidden_size * cfg.expert_width)
    same = [
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"),
        *("hidden_act", "attention_bias", "mlp_bias"),
    ]
    return {name: getattr(text, name) for name in same} | {
        "vocab_size": 1,  # it has no words
        "hidden_size": width,
        # 8/3 of the width, rounded up to a multiple of 256
        "intermediate_size": 256 * math.ceil(int(4 * int(2 * width / 3)) / 256),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }


def transformers_config(cls: type, key: str, values: Mapping[str, Any]) -> Any:
    """Build a config of transformers from ``model_config.<key>``; unknown keys are errors."""
    place = f"{PLACE}.{key}"
    known = [*cls().to_dict(), *getattr(cls, "attribute_map", {})]
    for name in values:
        if name not in known:
            raise ConfigError(f"{place}.{name}: {unknown_name('key', name, known)}")
    return cls(**values)


def shift_of(kind: str) -> float:
    """Return the shift added to a normalised vector: a range is scaled to [-1, 1]."""
    return 0.0 if kind in ("IDENTITY", "MEAN_STD") else -1.0


def normalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return vectors [..., D] normalised."""
    return (x - mean) / divisor(std, kind) + shift_of(kind)


def denormalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the vectors [..., D] of normalised ones."""
    return (x - shift_of(kind)) * std + mean


def fitted(x: torch.Tensor, kind: Normalization) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the statistics of vectors [M, D] as mean and std [D]; ``IDENTITY`` changes nothing."""
    if kind == "IDENTITY":
        return x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    if kind == "MEAN_STD":
        is_constant = x.amax(0) == x.amin(0)  # else rounding would leave a std that is not 0
        return x.double().mean(0).float(), x.double().std(0, correction=0).float().masked_fill(is_constant, 0.0)
    places = x.new_tensor(_QUANTILES[kind])
    low, high = torch.stack([column.quantile(places) for column in x.T], dim=1)
    return low, half_width(low, high)


def half_width(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return half the width of ranges, which is never 0."""
    return torch.where(high == low, EPSILON, high - low) / 2


def divisor(std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the divisor of vectors, [D]."""
    return std + EPSILON if kind == "MEAN_STD" else std
