"""The policy around a vision-language-action model.

Legend: ... any batch dimensions, H steps of an action chunk, A action size, A' numbers of an action that have a
log-probability each: its dimensions, or its tokens.
"""

import copy
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import torch
from gymnasium import spaces
from pydantic import Field, PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.policy import Policy, PolicySpaces, TypedPolicy
from embodichain.ext.vla import loading
from embodichain.ext.vla.gaussian_vla import STATE, GaussianVLA, GaussianVLACfg
from embodichain.ext.vla.lerobot import files
from embodichain.ext.vla.lerobot.folder import LeRobotFolder, build_lerobot_model, for_robot, is_lerobot
from embodichain.ext.vla.smolvla import SmolVLA
from embodichain.utils import ConfigError, configclass, field, install_extra, module_utils, observations, placed
from embodichain.utils.choices import sizes_of
from embodichain.utils.utility import load_config_file

_LORA = "policy.vla_config.lora"


@configclass
class LoRACfg:
    """Low-rank adapters (Hu et al., "LoRA", ICLR 2022) instead of training all of a model; by the library peft."""

    rank: PositiveInt = 16
    """Rank of each adapter."""
    alpha: PositiveInt = 32
    """An adapter's output is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of an adapter's inputs dropped in training. With more than 0 the log-probability of an action differs
    between evaluations."""
    target_modules: list[str] | None = None
    """Ends of the paths of the linear layers with an adapter; null: the model's ``lora_targets``."""
    trained_modules: list[str] | None = None
    """Modules trained as a whole, each as a copy; null: the model's ``lora_trained``."""


@configclass
class VLAConfig:
    """The ``vla_config`` of a ``vla`` policy."""

    model_path: str | None = None
    """Weights: a folder as ``save_vla_model`` writes, a ``.pt`` file, a folder of LeRobot's SmolVLA, or a hub
    repository ``owner/name@revision``; null: random initial weights."""
    model_class: str = "embodichain.agents.rl.models.TinyVLA"
    """Dotted path of the model's class."""
    model_config: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the class; they override the folder's and the environment's."""
    features: dict[str, str | None] = field(default_factory=dict)
    """Images of LeRobot's SmolVLA: the entry ``image/<camera>`` for each of its images; null: the image is left out."""
    lora: LoRACfg | None = None
    """Train low-rank adapters instead of the whole model; needs the extra ``vla``."""


@configclass
class VLAPolicyCfg:
    """The ``policy`` block of ``vla``."""

    name: str
    """A registered name, or the dotted path of a class."""
    action_dim: PositiveInt | None = None
    """Action size; inferred from the environment, and checked against it when given."""
    vla_config: VLAConfig = field(default_factory=VLAConfig)
    """The model."""
    init_from: str | None = None
    """Begin a training with the parameters and statistics of a run, such as a behaviour cloning's: its folder, without
    date and time the latest of this name, ``<folder>/best`` or a checkpoint's file. Resuming does not read it again."""


class VLAPolicy(Policy):
    """Chooses chunks of ``chunk_length`` actions by a model that reads images, the robot's state and an instruction.

    Log-probabilities are not reduced; the algorithm's ``logprob_level`` sums them. With H = 1 the action and its
    log-probability have the shapes of other policies.
    """

    reads_flat_obs = False
    distribution_fields = ()
    typed: ClassVar[TypedPolicy]
    model: Any
    """The module, with the methods that docs/demonstrations.md lists."""

    def __init__(self, model: nn.Module, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.model_config = dict(config)
        self.chunk_length = int(self.model.chunk_length)
        self.log_prob_size = getattr(model, "log_prob_size", None)
        self.obs_keys = tuple(self.model.observation_keys)
        self.extra_fields = tuple(getattr(model, "extra_fields", ()))

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose chunks: write ``action`` [..., H, A], ``sample_log_prob`` [..., H, A'] and ``value`` [...]."""
        action, log_prob, value, *extra = self.model(_rows(td), deterministic)
        if self.chunk_length == 1:
            action, log_prob = action.squeeze(1), log_prob.sum((1, 2))
        names = ("action", "sample_log_prob", "value", *(name for name, _ in self.extra_fields))
        for name, result in zip(names, (action, log_prob, value, *extra), strict=True):
            td[name] = _shaped(result, td)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...]; see ``Policy.get_value``."""
        td["value"] = _shaped(self.model.get_value(_rows(td)), td)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return ``sample_log_prob`` and ``entropy`` [..., H, A'] of the chunks in ``action``, and ``value`` [...]."""
        action = td["action"].flatten(0, td.batch_dims - 1)
        if self.chunk_length == 1:
            action = action.unsqueeze(1)
        extra = [td[name].flatten(0, td.batch_dims - 1) for name, _ in self.extra_fields]
        log_prob, entropy, value = self.model.evaluate_actions(_rows(td), action, *extra)
        if self.chunk_length == 1:
            log_prob, entropy = log_prob.sum((1, 2)), entropy.sum((1, 2))
        out = {"sample_log_prob": log_prob, "entropy": entropy, "value": value}
        return TensorDict({name: _shaped(value, td) for name, value in out.items()}, batch_size=td.batch_size)

    @property
    def imitation_length(self) -> int:
        """Number of consecutive actions of ``imitation_loss``: a model may predict more than it executes."""
        return int(getattr(self.model, "imitation_length", self.chunk_length))

    def fit_inputs(self, frames: TensorDict) -> None:
        """Fit the model's statistics of states and actions, if it has any, to demonstrations."""
        if hasattr(self.model, "fit_inputs"):
            self.model.fit_inputs(frames["entries"]["state"])
        if hasattr(self.model, "fit_actions"):
            self.model.fit_actions(frames["action"])

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the model's own ``imitation_loss(obs, actions)`` or the negative log-likelihood, [B, H, A']."""
        action = td["action"] if td["action"].dim() > 2 else td["action"].unsqueeze(1)
        own_loss = getattr(self.model, "imitation_loss", None)
        obs = _rows(td)
        loss: torch.Tensor = -self.model.evaluate_actions(obs, action)[0] if own_loss is None else own_loss(obs, action)
        return loss

    @torch.no_grad()
    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return ``std``, the mean std of the action's components, if the model has one."""
        std = getattr(self.model, "std", None)
        return {} if std is None else {"std": std().mean()}


def stored_chunk_length(vla: VLAConfig) -> int:
    """Return H by ``model_config``, the model's folder, or our models' default; 1 if none says it."""
    default = GaussianVLACfg.chunk_length if issubclass(loading.find_vla_class(vla.model_class), GaussianVLA) else 1
    saved: dict[str, Any] = {}
    if vla.model_path is not None:
        path = Path(vla.model_path)
        if (path / "config.json").is_file():
            with placed(f"{files.MODEL_PATH}: "):
                saved = load_config_file(path / "config.json")
            default = files.LeRobotCfg.n_action_steps if is_lerobot(saved) else default
        elif not path.exists():  # of the hub: it says so when it is there
            default = 1
    length = vla.model_config.get("chunk_length", saved.get("chunk_length", saved.get("n_action_steps", default)))
    return length if isinstance(length, int) and length > 0 else 1


def build_vla_policy(
    cfg: VLAPolicyCfg, given: PolicySpaces, device: torch.device | str, networks: Mapping[str, nn.Module]
) -> VLAPolicy:
    """Build a ``vla`` policy; see ``build_policy``."""
    vla = cfg.vla_config
    if sizes_of(given.action_space):
        raise ConfigError(f"policy.name: {cfg.name}: needs continuous actions, got {given.action_space}")
    space = given.structured("policy.vla_config")
    cls = loading.find_vla_class(vla.model_class)
    stored = None if vla.model_path is None else loading.read_model_path(vla.model_path)
    if isinstance(stored, LeRobotFolder):
        loading.check_lerobot_class(cls, stored)
        observed = observations.entry_spaces(space)
        if STATE in observed:
            stored = for_robot(stored, observed[STATE].shape[0], given.action_dim)
        entries = files.find_entries(stored.cfg, vla.features)
        files.check_entries(stored.cfg, entries, observed, f"{files.MODEL_PATH}: {stored.path}")
        model, config = build_lerobot_model(stored, entries, vla.model_config, device)
        return _around(model, config, vla, space)
    if vla.features:
        raise ConfigError("policy.vla_config.features: only with a model_path that is a folder of LeRobot's SmolVLA")
    config = _whole_config(cls, stored, vla, given)
    return _around(loading.build_vla_model(cls, stored, config, device), config, vla, space)


def _whole_config(
    cls: type[nn.Module], stored: loading.StoredModel | None, vla: VLAConfig, given: PolicySpaces
) -> dict[str, Any]:
    """Return the model's arguments: the environment's, the stored ones, then the user's."""
    space = given.structured("policy.vla_config")
    config = dict(cls.config_for(space, given.action_dim)) if hasattr(cls, "config_for") else {}
    if stored is not None:
        for key, value in config.items():
            if stored.config.get(key, value) != value:
                raise ConfigError(
                    f"{stored.source}: was made for {key} {stored.config[key]}, the environment has {value}"
                )
        config |= stored.config
    return config | vla.model_config


def _around(model: nn.Module, config: Mapping[str, Any], vla: VLAConfig, space: spaces.Dict) -> VLAPolicy:
    """Return the policy around a model, with adapters if they are asked for."""
    policy = VLAPolicy(model if vla.lora is None else add_lora(model, vla.lora), config)
    if isinstance(model, SmolVLA):
        model.check_training()
    there = observations.entry_spaces(space)
    for key in policy.obs_keys:
        if key not in there:
            raise ConfigError(
                f"policy.vla_config: {type(model).__name__} reads '{key}', the observation has only {', '.join(there)}"
            )
    return policy


def _rows(td: TensorDict) -> TensorDict:
    """Return the observation's entries with one batch dimension."""
    entries: TensorDict = td["entries"]
    return entries if td.batch_dims == 1 else entries.reshape(-1)


def _shaped(value: torch.Tensor, td: TensorDict) -> torch.Tensor:
    return value if td.batch_dims == 1 else value.unflatten(0, td.batch_size)


def without_adapters(policy: VLAPolicy) -> nn.Module:
    """Return the policy's model, or a copy in which low-rank adapters are merged into the weights."""
    if not hasattr(policy.model, "merge_and_unload"):
        return cast(nn.Module, policy.model)
    return cast(nn.Module, copy.deepcopy(policy.model).merge_and_unload())


def add_lora(model: nn.Module, cfg: LoRACfg) -> nn.Module:
    """Add adapters to a model; they and the ``trained_modules`` alone are trainable. Its output stays at first."""
    targets = cfg.target_modules or list(getattr(model, "lora_targets", ()))
    trained = list(getattr(model, "lora_trained", ())) if cfg.trained_modules is None else cfg.trained_modules
    if not targets:
        raise ConfigError(f"{_LORA}.target_modules: required, since {type(model).__name__} names none itself")
    paths = [f".{name}" for name, _ in model.named_modules()]
    for name in (*targets, *trained):
        if not any(path.endswith(f".{name}") for path in paths):
            raise ConfigError(f"{_LORA}: {type(model).__name__} has no module whose path ends in '{name}'")
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(f"{_LORA}: needs peft: {install_extra('vla')}")
    import peft  # noqa: PLC0415 (optional extra)

    config = peft.LoraConfig(
        r=cfg.rank,
        lora_alpha=cfg.alpha,
        lora_dropout=cfg.dropout,
        target_modules=targets,
        modules_to_save=trained or None,
    )
    return cast(nn.Module, peft.get_peft_model(model, config))


def _check_names(cfg: VLAPolicyCfg, admitted: Sequence[str]) -> None:
    module_utils.check_admitted(cfg.vla_config.model_class, admitted, "policy.vla_config.model_class")
    loading.find_vla_class(cfg.vla_config.model_class)


VLAPolicy.typed = TypedPolicy(
    VLAPolicyCfg, build_vla_policy, check=_check_names, chunk_length=lambda cfg: stored_chunk_length(cfg.vla_config)
)


VLAPlaceholderPolicy = VLAPolicy
"""The name in EmbodiChain's documentation."""
