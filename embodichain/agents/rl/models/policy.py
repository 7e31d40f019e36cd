"""The interface of every policy, the common keys of the built-in ones' config blocks, and checks of users' classes.

Legend: ... any batch dimensions, N environments, O flattened observation size, A action size, S state size, L sequence
length, M rows of a probe.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from gymnasium import spaces
from pydantic import AfterValidator, Field, PositiveInt, ValidationInfo, field_validator
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.buffer import allocate_rollout, learning_batch
from embodichain.agents.rl.models.distributions import LOG_STD_RANGE, gaussian_kl
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.utils import ConfigError, configclass, logger, unknown_name
from embodichain.utils.choices import ACTION_MASK, sizes_of
from embodichain.utils.device import keeping_modes
from embodichain.utils.errors import closest
from embodichain.utils.observations import entry_spaces, flat_input, select_entries, zero_entries
from embodichain.utils.state import generators_state, load_generators_state

EVALUATED = ("log_prob", "entropy", "value")
"""Entries that ``Policy.evaluate_actions`` returns; ``log_prob`` may be named ``sample_log_prob``."""
_GROUPS = ("actor", "critic", "teacher")
_ROWS = 2  # M; with one, [M, 1] broadcasts to [M, M] as if it were right
_TOLERANCE = 1e-2  # of log-probabilities, absolute and relative: rounding of inverted actions and bfloat16
# How the methods are declared, and with how many arguments, `self` included, they are called.
_METHODS = {
    "forward": ("forward(td, deterministic=False)", 3),
    "get_action": ("get_action(td, deterministic=False)", 3),
    "get_value": ("get_value(td)", 2),
    "evaluate_actions": ("evaluate_actions(td)", 2),
}


def with_defaults(policy: Any) -> Any:
    """Return an object with a policy's ``get_action`` and ``get_value``, after giving it the attributes that it lacks.

    These are the attributes of ``Policy`` that a collector reads.
    """
    for name in ("obs_keys", "state_size", "extra_fields", "chunk_length", "has_normalizer", "log_prob_size"):
        if not hasattr(policy, name):
            setattr(policy, name, getattr(Policy, name))
    return policy


def allocate_for(
    policy: Any,
    num_envs: int,
    num_decisions: int,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    entries: TensorDict | None,
    **fields: Any,
) -> TensorDict:
    """Return a rollout [N, T+1] with the fields that a policy writes; arguments as of ``allocate_rollout``."""
    own = {name: getattr(policy, name) for name in ("extra_fields", "state_size", "chunk_length", "log_prob_size")}
    return allocate_rollout(num_envs, num_decisions, obs_dim, action_dim, device, entries=entries, **own, **fields)


def policy_input(
    policy: Any,
    obs: TensorDict,
    state: torch.Tensor | None,
    device: torch.device,
    rows: torch.Tensor | slice = slice(None),
) -> TensorDict:
    """Return a policy's input from a structured observation.

    Args:
        obs: observation [N], nested; on any device.
        state: recurrent state [N, S], for recurrent policies.
        rows: mask [N] bool, on the observation's device, of the environments to take; default all.

    Returns:
        ``obs`` [N, O], NaN where the observation is infinite, and ``entries`` and ``state`` by the policy's attributes,
        on ``device``. ``obs`` is float32, or float64 if an entry is and the policy normalises: a time of 1.7e9 s is a
        constant in float32.
    """
    flat = flat_input(obs)[rows].to(device, None if policy.has_normalizer else torch.float32)
    fields: dict[str, torch.Tensor | TensorDict] = {"obs": flat}
    if policy.obs_keys:
        fields["entries"] = select_entries(obs, policy.obs_keys)[rows].to(device)
    if state is not None:
        fields["state"] = state[rows]
    return TensorDict(fields, batch_size=flat.shape[:1])


def valued(policy: Any, td: TensorDict) -> TensorDict:
    """Return ``policy.get_value(td)``, also for policies that write into ``td`` and return None."""
    returned: TensorDict | None = policy.get_value(td)
    return td if returned is None else returned


def action_log_prob(evaluated: TensorDict) -> torch.Tensor:
    """Return the actions' log-probability from ``Policy.evaluate_actions``, under either name.

    A policy may write into a copy of its input with the rollout's ``sample_log_prob``: ``log_prob`` comes first.
    """
    own = evaluated.get("log_prob", None)
    log_prob: torch.Tensor = evaluated["sample_log_prob"] if own is None else own
    return log_prob


class Policy(nn.Module, ABC):
    """Chooses actions and values states; ``td["obs"]`` is float32 [..., O] (``has_normalizer``: or float64).

    The attributes' defaults fit a policy that reads the flat observation, is not recurrent and needs
    only ``action`` for ``evaluate_actions``.
    """

    evaluates: ClassVar[tuple[str, ...]] = EVALUATED
    """Entries for algorithms that ``evaluate_actions`` returns."""
    obs_keys: tuple[str, ...] = ()
    """Entries of the environment's structured observation read in addition to ``obs``: ``"sensor/cam/color"``. They
    are in ``td["entries"]``, a TensorDict by these names, with the environment's shapes and dtypes."""
    reads_flat_obs: bool = True
    """Whether actions depend on ``obs``; if not, an exported policy gets the entries of ``obs_keys`` alone."""
    state_size: int = 0
    """S, the size of the recurrent state; 0: not recurrent. Otherwise ``td`` has ``state`` [..., S], zeros where an
    episode begins, and ``forward`` writes ``next_state`` [..., S]."""
    extra_fields: tuple[tuple[str, int], ...] = ()
    """Names and widths of further float32 fields that ``forward`` writes and ``evaluate_actions`` needs back."""
    sequence_length: int | None = None
    """L: ``evaluate_actions`` gets [B, L] consecutive steps instead of [B] single ones. None: single steps; for
    recurrent policies the whole rollout. ``state`` is the rollout's before each step; an episode begins after each step
    that is ``done``."""
    chunk_length: int = 1
    """H, the number of actions of a choice. With more than 1, ``action`` is [..., H, A], ``sample_log_prob`` and
    ``entropy`` are [..., H, A'], not summed over anything (see ``AlgorithmCfg.logprob_level``), ``mean`` and
    ``log_std`` [..., H, A]; ``value`` is [...]. The environment may execute the first actions of a chunk only; they
    are ``executed`` [..., H] in the rollout, and only they count."""
    log_prob_size: int | None = None
    """A', the number of log-probabilities per action of a chunk; None: A, one for each component."""
    block: Mapping[str, Any] | None = None
    """The config block of ``build_policy``, as plain data, for checkpoints."""
    distribution_fields: tuple[str, ...] = ("mean", "log_std")
    """Entries of ``evaluate_actions`` that ``kl_divergence`` reads."""
    has_normalizer: bool = False
    """Whether ``update_normalizer`` has statistics; they are then initialised before the training, and float64
    observations stay float64 up to the normaliser."""

    @property
    def evaluation_fields(self) -> tuple[str, ...]:
        """Fields of the rollout that ``evaluate_actions`` reads in addition to ``action``."""
        return (
            "obs",
            *(("entries",) if self.obs_keys else ()),
            *(("state", "done") if self.state_size else ()),
            *(name for name, _ in self.extra_fields),
        )

    @abstractmethod
    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions.

        Args:
            td: tensors ``obs``, and ``entries`` and ``state`` by the attributes above.
            deterministic: take the most likely action instead of a sample.

        Returns:
            ``td`` with ``action`` [..., A], ``sample_log_prob`` [...], ``value`` [...] and the attributes' fields.
        """

    @abstractmethod
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...] into ``td``, the input of ``forward``, and return it."""

    @abstractmethod
    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return a new TensorDict with ``sample_log_prob``, ``entropy`` and ``value``, each [...], with gradients.

        The first may be named ``log_prob``. GRPO does not read ``value``. Built-in policies add their
        ``distribution_fields`` for :meth:`kl_divergence`: ``mean`` and ``log_std`` [..., A], or of discrete actions
        ``log_probs``.

        Args:
            td: tensors with the ``action`` to evaluate and the ``evaluation_fields``; it is not changed.
        """

    def kl_divergence(self, old: Mapping[str, torch.Tensor], new: TensorDict) -> torch.Tensor:
        """Return the exact KL(old || new) of each action's distribution, in nats: [...].

        Args:
            old: ``distribution_fields`` of an earlier ``evaluate_actions``.
            new: the present one's result.
        """
        return gaussian_kl(old["mean"], old["log_std"], new["mean"], new["log_std"])

    @property
    def imitation_length(self) -> int:
        """Number of consecutive actions that ``imitation_loss`` gets."""
        return self.chunk_length

    def fit_inputs(self, frames: TensorDict) -> None:
        """Fit the input statistics to demonstrations: frames [M] with ``obs``, ``entries`` and ``action``."""
        self.update_normalizer(frames["obs"])

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the loss of demonstrated actions, with gradients: their negative log-likelihood, nats a number.

        Args:
            td: the input of ``evaluate_actions``, with ``action`` [..., A] or, if ``imitation_length`` is H > 1,
                [..., H, A].

        Returns:
            [...], or [..., H, A'].
        """
        numbers = 1 if self.chunk_length > 1 else td["action"].shape[-1]
        return -action_log_prob(self.evaluate_actions(td)) / numbers

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Call ``forward`` without gradients."""
        return self.forward(td, deterministic)

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Merge observations [..., O] into the policy's input statistics, its ``normalizer``, if it has any.

        The trainer calls this between two updates and never within one, so that the log-probabilities of a rollout and
        of its update are computed from the same inputs.
        """
        if isinstance(normalizer := getattr(self, "normalizer", None), RunningNormalizer):
            normalizer.update(obs)

    def reference(self) -> "Policy":
        """Return a frozen copy of the policy, for KL divergences from it; frozen parameters are shared with it.

        Every ``RunningNormalizer`` is shared with it and keeps updating: its statistics are not parameters, and with a
        copy of them the two policies would differ in their inputs. A policy with other statistics must share them here,
        and one that changes frozen parameters later must copy them.
        """
        shared: dict[int, Any] = {id(part): part for part in self.modules() if isinstance(part, RunningNormalizer)}
        shared |= {id(parameter): parameter for parameter in self.parameters() if not parameter.requires_grad}
        with keeping_modes(self):
            return deepcopy(self, shared).eval().requires_grad_(False)

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return scalars of the policy's state, logged with the losses."""
        return {}


def _check_range(value: tuple[float, float]) -> tuple[float, float]:
    if not value[0] < value[1]:
        raise ValueError("the lowest must be below the highest")
    return value


AscendingRange = Annotated[tuple[float, float], AfterValidator(_check_range)]


@configclass
class PolicyCfg:
    """The common keys of the ``policy`` blocks of all built-in policies."""

    name: str
    """A registered name, or the dotted path of a class."""
    action_dim: PositiveInt | None = None
    """Action size; inferred from the environment, and checked against it when given."""
    normalize_obs: bool = True
    """Normalise the flat observation by its running mean and std. A network that reads joint efforts of hundreds of Nm
    as they are saturates."""
    log_std_range: AscendingRange = LOG_STD_RANGE
    """Lowest and highest log-std."""
    init_log_std: Annotated[float, Field(validate_default=True)] = 0.0
    """Initial log-std of the action."""
    squash: bool = False
    """Map actions into the action space's bounds by tanh, instead of clipping by the environment."""
    scale_actions: bool | None = None
    """Without ``squash``, map the policy's actions linearly from [-1, 1] to the action space's finite bounds; the
    environment clips actions beyond. Null: in Gymnasium environments alone. Discrete actions have no bounds."""
    obs_groups: dict[str, list[str]] = {"actor": ["*"], "critic": ["*"]}
    """Entries of the flat observation by group, as names or ``fnmatch`` patterns (``robot/*``): the networks ``actor``
    and ``critic``, and the ``teacher`` of a distillation, read the group of their name, or all entries without one. The
    critic's and the teacher's are only needed in training: the robot may be unable to measure them. A policy of
    one's own may read groups of other names."""
    teacher: str | None = None
    """Run of the policy that algorithm ``distillation`` imitates, named as for ``init_from``."""
    init_from: str | None = None
    """Begin a training with the parameters and input statistics of a run: its folder, without date and time the latest
    of this name, ``<folder>/best`` or a checkpoint's file. Policies without a critic load the actor alone. Resuming
    does not read it again."""

    @field_validator("scale_actions")
    @classmethod
    def _is_needed(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("squash"):
            raise ValueError("has no effect with squash, which maps actions to the bounds")
        return value

    @field_validator("obs_groups")
    @classmethod
    def _with_both(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for group in value.keys() - set(_GROUPS):  # any other name is for a reader of the user's own
            if meant := closest(group, _GROUPS):
                raise ValueError(f"'{group}': did you mean '{meant}'?")
            logger.warn_once(f"policy.obs_groups.{group}: only {', '.join(_GROUPS)} are read by the library's networks")
        return {"actor": ["*"], "critic": ["*"], **value}

    @field_validator("init_log_std")
    @classmethod
    def _within_range(cls, value: float, info: ValidationInfo) -> float:
        low, high = info.data.get("log_std_range", (value, value))  # absent if it is invalid
        if not low <= value <= high:
            raise ValueError(f"{value} is outside log_std_range [{low}, {high}]")
        return value


PolicyBlock = Any
"""A checked ``policy`` block: an instance of a policy's config class, or of the registry's ``UserPolicyCfg``."""


@dataclass(frozen=True)
class PolicySpaces:
    """An environment's spaces."""

    obs_dim: int  # O
    action_dim: int  # A
    action_space: spaces.Space[Any] | int  # one environment's, or A
    observation_space: spaces.Dict | None  # one environment's structured space, if known

    @property
    def actor_outputs(self) -> int:
        """Size of the actor's output for an action: A, or n_1 + ... + n_A of discrete actions."""
        return sum(sizes_of(self.action_space)) or self.action_dim

    @property
    def has_action_mask(self) -> bool:
        """Whether the observation says which possibilities of discrete actions there are.

        A ConfigError if their number is not that of the choices.
        """
        mask = None if self.observation_space is None else entry_spaces(self.observation_space).get(ACTION_MASK)
        if mask is not None and mask.shape != (self.actor_outputs,):
            shape, known = list(mask.shape or ()), self.actor_outputs
            raise ConfigError(
                f"the observation's entry {ACTION_MASK}: must be [{known}], one number for each choice, got {shape}"
            )
        return mask is not None

    def structured(self, place: str) -> spaces.Dict:
        """Return the structured observation space, needed by ``place`` in the config."""
        if self.observation_space is None:
            raise ConfigError(f"{place}: needs the environment's structured observation space (observation_space)")
        return self.observation_space


def space_size(space: spaces.Space[Any] | int) -> int:
    """Return the last dimension of a space, or the number itself."""
    if isinstance(space, int):
        return space
    if space.shape is None:
        raise ConfigError("the observation space has entries: pass the environment's flattened_observation_space")
    return space.shape[-1]


class TypedPolicy(NamedTuple):
    """The typed config block of a policy, as the policy class's own attribute ``typed``."""

    cfg_class: type  # the block, with a field ``name``
    # ``build(cfg, spaces, device, networks)``; ``networks`` replace the block's.
    build: Callable[[Any, PolicySpaces, torch.device | str, Mapping[str, nn.Module]], Policy]
    networks: tuple[str, ...] = ()  # fields of the block that are required, unless they are given
    # ``check(cfg, admitted)`` refuses names in the block outside the prefixes of modules that are admitted.
    check: Callable[[Any, Sequence[str]], None] = lambda cfg, admitted: None
    # The number of actions of a choice, as far as the block says it.
    chunk_length: Callable[[Any], int] = lambda cfg: getattr(cfg, "chunk_length", 1)


def load_policy_state(policy: Policy, saved: Mapping[str, Any], place: str) -> None:
    """Load a ``state_dict`` of the same policy config; ``place`` is its source, for the message if it does not fit."""
    try:
        policy.load_state_dict(dict(saved))
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise ConfigError(
            f"{place}: does not fit the policy that the config makes here: the kind of policy, its networks, or the "
            f"task's observation or action are others. {lines}"
        ) from error


def check_policy_class(policy_class: Any) -> None:
    """Check that a class is a policy with methods that can be called as ``Policy`` declares them."""
    name = getattr(policy_class, "__name__", repr(policy_class))
    if not (inspect.isclass(policy_class) and issubclass(policy_class, Policy)):
        raise ConfigError(f"policy {name}: is no subclass of embodichain.agents.rl.models.Policy")
    if missing := [text for method, (text, _) in _METHODS.items() if method in policy_class.__abstractmethods__]:
        raise ConfigError(f"policy {name}: lacks {', '.join(missing)}")
    for method, (text, count) in _METHODS.items():
        function = getattr(policy_class, method)
        signature = inspect.signature(function)
        try:
            signature.bind(*range(count))  # ``count`` positional arguments, including ``self``
        except TypeError as error:
            raise ConfigError(f"policy {name}: expected is {text}, got {method}{signature}") from error


def check_policy(
    policy: Policy,
    obs_space: spaces.Space[Any] | int,
    action_space: spaces.Space[Any] | int,
    device: torch.device | str,
    *,
    observation_space: spaces.Dict | None = None,
    evaluated: Sequence[str] = EVALUATED,
) -> None:
    """Call a policy as a collector and an algorithm do, on observations of zeros, and check its results.

    Log-probabilities are compared in evaluation mode, without dropout. Built-in policies are not checked. Random
    generators and the policy's buffers are restored.

    Args:
        observation_space: one environment's structured observation space; without it, a policy that reads its entries
            is not called.
        evaluated: entries of ``evaluate_actions`` that the algorithm reads.
    """
    if "typed" in vars(type(policy)):
        return
    check_policy_class(type(policy))
    entries = None
    if policy.obs_keys:
        if observation_space is None:
            return
        known, name = entry_spaces(observation_space), type(policy).__name__
        for key in policy.obs_keys:
            if key not in known:
                raise ConfigError(f"policy {name}: obs_keys: {unknown_name('entry of the observation', key, known)}")
        entries = zero_entries(observation_space, policy.obs_keys, _ROWS)
    num_decisions, sizes = policy.sequence_length or 2, (space_size(obs_space), space_size(action_space))
    rollout = allocate_for(policy, _ROWS, num_decisions, *sizes, device, entries)
    with _restored(policy), torch.no_grad():
        policy.eval()
        _check_calls(policy, rollout, evaluated)


@contextmanager
def _restored(policy: Policy) -> Iterator[None]:
    """Restore the policy's buffers and the random generators: trainings must not depend on the probe."""
    generators = generators_state()
    buffers = {buffer: buffer.clone() for buffer in policy.buffers()}
    try:
        with keeping_modes(policy):
            yield
    finally:
        load_generators_state(generators)
        for buffer, before in buffers.items():
            buffer.data.copy_(before)


def _check_calls(policy: Policy, rollout: TensorDict, evaluated: Sequence[str]) -> None:
    """Check the entries that each method returns, and that sampled actions keep their log-probability."""
    # A copy, since policies write into it.
    given = rollout[:, 0].select("obs", "entries", "state", strict=False).clone()
    written = {name: rollout[name].shape[2:] for name in ("action", "sample_log_prob", "value")}
    written |= {name: torch.Size([width]) for name, width in policy.extra_fields}
    state = {"next_state": torch.Size([policy.state_size])} if policy.state_size else {}
    choose = "forward" if type(policy).get_action is Policy.get_action else "get_action"
    chosen = _called(policy, choose, given.clone(), written | state)
    for name in written:
        rollout[name].copy_(chosen[name].unsqueeze(1).expand_as(rollout[name]))
    _called(policy, "get_value", given, {"value": torch.Size()}, may_return_nothing=True)

    batch = learning_batch(rollout, policy)
    if "sample_log_prob" not in policy.evaluation_fields:  # a copy of the batch would have it, whatever was written
        batch = batch.exclude("sample_log_prob")
    before, of_action = set(batch.keys()), rollout["sample_log_prob"].shape[2:]
    shapes = {name: torch.Size() if name == "value" else of_action for name in evaluated}
    first, again = (action_log_prob(_called(policy, "evaluate_actions", batch, shapes)) for _ in range(2))
    place = f"policy {type(policy).__name__}:"
    if "sample_log_prob" in set(batch.keys()) - before:
        raise ConfigError(
            f"{place} evaluate_actions writes 'sample_log_prob' into the TensorDict that it is given, in the place of "
            "the rollout's. Expected is a new TensorDict"
        )
    if not torch.equal(first, again):  # a noisy estimate: nothing to compare
        return
    # Of the first step: later ones may have another state.
    sampled, now = chosen["sample_log_prob"], first.reshape(rollout["sample_log_prob"][:, :-1].shape)[:, 0]
    differs = ~torch.isclose(sampled, now, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
    if differs.any():
        raise ConfigError(
            f"{place} forward wrote, and evaluate_actions gives, the log-probabilities "
            f"{float(sampled[differs][0]):.4g} and {float(now[differs][0]):.4g} for the same observation and action. "
            "Both need the same terms (such as tanh's)"
        )


def _called(
    policy: Policy, method: str, td: TensorDict, shapes: Mapping[str, torch.Size], may_return_nothing: bool = False
) -> TensorDict:
    """Call a method, check that it returns the entries ``shapes`` (without batch dimensions), and return them.

    With ``may_return_nothing`` it may write into ``td`` instead.
    """
    out = getattr(policy, method)(td)
    if out is None and may_return_nothing:
        out = td
    wanted = {name: [*td.batch_size, *shape] for name, shape in shapes.items()}
    what = f"expected is a TensorDict with {', '.join(f'{name!r} {shape}' for name, shape in wanted.items())}"
    place = f"policy {type(policy).__name__}: {method}"
    if not isinstance(out, TensorDict):
        raise ConfigError(f"{place} returned {'None' if out is None else type(out).__name__}; {what}")
    for name, shape in wanted.items():
        value = out.get(name, None)
        if value is None and name == "log_prob":
            value = out.get("sample_log_prob", None)
        if value is None or list(value.shape) != shape:
            got = f"no '{name}'" if value is None else f"'{name}' of shape {list(value.shape)}"
            raise ConfigError(f"{place} returned {got}; {what}")
    return out
