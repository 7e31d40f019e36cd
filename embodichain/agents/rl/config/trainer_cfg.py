"""The training config: the typed form of its blocks, with every default, and the schedules of its periods."""

import re
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from embodichain.utils import ConfigError, MayChange, RayTracing, collected, configclass
from embodichain.utils.device import resolve_device

MOST_EPISODES = 1_000_000
"""Limit of one evaluation: the results of all are kept in memory."""

_NAME = r"^[\w.\-]+$"
_LONGEST_NAME = 190  # bytes: files have at most 255, of which a step, an ending and a process's number take some


def _check_period(period: int | str) -> int | str:
    parse_period(period)
    return period


def _check_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError("only letters, digits, '_', '.' and '-' are allowed: it names a folder")
    size = len(name.encode())
    if size > _LONGEST_NAME:
        raise ValueError(f"too long for the name of a file: {size} bytes in UTF-8, at most {_LONGEST_NAME}")
    return name


Period = Annotated[int | str, AfterValidator(_check_period)]


@configclass
class EventsCfg:
    """Events in addition to the environment's own config."""

    train: dict[str, Any] = field(default_factory=dict)
    """Events of the training environment, by name."""
    eval: MayChange[dict[str, Any]] = field(default_factory=dict)
    """Events of the evaluation environment, by name."""


@configclass
class AsynchronousCfg:
    """The ``trainer.asynchronous`` block: how rollouts are collected while the policy is updated."""

    max_staleness: NonNegativeInt = 1
    """Maximum number of updates between the policy of a step and the update that learns from it; 0: synchronous."""
    buffer_capacity: PositiveInt | None = None
    """Maximum number of finished rollouts that wait for the learner; null: ``max_staleness`` + 1."""
    env_groups: Annotated[int, Field(ge=1, le=2)] = 1
    """Sets of ``num_envs`` environments, each giving whole rollouts: with 2, one steps while the other's actions are
    computed. To keep both and the learner busy takes a ``max_staleness`` of 2."""


@configclass
class LoggerCfg:
    """An entry of ``trainer.loggers``."""

    func: str
    """Dotted path of ``func(run, **params)`` in a module that you allow."""
    params: dict[str, Any] = field(default_factory=dict)
    """Arguments other than the run."""


@configclass
class TrainerCfg:
    """The ``trainer`` block."""

    gym_config: MayChange[str | dict[str, Any]]
    """Path of the environment's config, from the working directory or else this config's folder; or its content."""
    exp_name: Annotated[
        str, Field(min_length=1, max_length=100, json_schema_extra={"pattern": _NAME}), AfterValidator(_check_name)
    ] = "generic_exp"
    """Names the output folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of the environments; torch, numpy and Python's random have seed + rank."""
    device: MayChange[str] = "auto"
    """Device of the learner and the physics: ``"cpu"``, ``"cuda:0"``, or ``"auto"``: cuda when there is one."""
    sim_device: MayChange[str | None] = None
    """Device of the physics, if not ``device``: ``"cpu"``, ``"cuda:<number>"``, or ``"warp:cpu"``, the GPU's engine
    on the processor. None: as the environment's config says (``env.sim_cfg.sim_device``)."""
    headless: MayChange[bool] = True
    """No window."""
    enable_rt: MayChange[RayTracing] = False
    """Ray-traced images, with shadows, on ``device``; needs the extra ``raytrace``."""
    gpu_id: MayChange[int] = 0
    """Kept for compatibility; ``device`` decides."""
    num_envs: PositiveInt | None = None
    """Overrides the environment's config. Per process."""
    iterations: MayChange[PositiveInt] = 250
    """Total steps = iterations x buffer_size x num_envs x number of processes."""
    buffer_size: PositiveInt = 2048
    """Steps of each environment in one rollout."""
    enable_eval: MayChange[bool] = False
    """Evaluate in a separate environment."""
    num_eval_envs: MayChange[PositiveInt] = 4
    """Environments of the evaluation."""
    num_eval_episodes: MayChange[Annotated[PositiveInt, Field(le=MOST_EPISODES)]] = 5
    """Episodes of one evaluation: the same ones each time."""
    eval_freq: MayChange[Period] = 10000
    """Environment steps between evaluations, or ``"100 it"`` for iterations. The last iteration always evaluates."""
    save_freq: MayChange[Period] = 50000
    """The same for checkpoints. The last iteration always saves."""
    keep_last: MayChange[PositiveInt | None] = None
    """Number of latest checkpoints to keep, in addition to the best one; null: all."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of matrix products and convolutions in updates. ``"bf16"`` is faster where supported; parameters,
    optimiser, log-probabilities and losses stay float32."""
    torch_threads: MayChange[Annotated[PositiveInt, Field(le=1024)] | None] = None
    """Threads of the updates; null: by the size of the networks, one for small ones."""
    profile: MayChange[bool | Literal["trace"]] = False
    """Print where the time went at the end, and write ``profile.txt`` and ``profile.json``; ``"trace"`` also writes a
    trace of one iteration, ``profile_trace.json``, for chrome://tracing or https://ui.perfetto.dev."""
    viewer: MayChange[bool] = False
    """Show some environments, the reward terms and a button to pause on a page for this machine's browser; its
    address is logged; needs the extra ``viewer``. Not together with ``asynchronous``."""
    max_skipped_updates: MayChange[PositiveInt] = 5
    """Updates in a row without a single gradient step, because none was finite, that end the run."""
    use_wandb: MayChange[bool] = False
    """Log to Weights & Biases too."""
    wandb_project_name: MayChange[str] = "embodichain"
    """Its project."""
    loggers: MayChange[list[LoggerCfg]] = []
    """Loggers that get the metrics and videos, too; see docs/watching.md."""
    events: EventsCfg = field(default_factory=EventsCfg)
    """Events in addition to the environment's own config."""
    distributed: MayChange[bool] = False
    """Several processes, one a device: torchrun's, or else one for each GPU."""
    hang_seconds: MayChange[Annotated[float, Field(ge=1)]] = 1800.0
    """With several processes: time for which one waits for the others, s, after which the training ends."""
    asynchronous: AsynchronousCfg | None = None
    """Collect in the background, while the policy is updated, for slow policies; null: synchronous.
    In one process: not together with ``distributed``."""
    model_type: Literal["standard", "vla"] = "standard"
    """Kind of policy; ``"vla"`` collects asynchronously."""
    buffer_type: Literal["standard", "vla"] = "standard"
    """Kind of buffer; ``"vla"`` collects asynchronously."""
    import_modules: MayChange[list[str]] = []
    """Modules to import first, which register environments, policies and algorithms."""

    def check_distributed(self, distributed: bool) -> None:
        """Raise a ConfigError for asynchronous collection in several processes."""
        if distributed and self.collection() is not None:
            raise ConfigError(
                "trainer.asynchronous: cannot go together with several processes (trainer.distributed, --distributed): "
                "rollouts are collected in the background of one process only"
            )

    def problems(self) -> list[str]:
        """Return errors of settings that exclude each other, and of a missing device, one per line."""
        found: list[str] = []
        with collected(found):
            self.check_distributed(self.distributed)
        if self.viewer and self.collection() is not None:
            found.append(
                "trainer.viewer: cannot go together with asynchronous collection (trainer.asynchronous, model_type or "
                "buffer_type 'vla'): the environments are then stepped by other threads or processes than it reads them"
            )
        with collected(found):
            resolve_device(self.device)
        return found

    def collection(self) -> AsynchronousCfg | None:
        """Return the settings of asynchronous collection, or None for synchronous."""
        if self.asynchronous is None and "vla" in (self.model_type, self.buffer_type):
            return AsynchronousCfg()
        return self.asynchronous


@configclass
class AlgorithmBlockCfg:
    """The ``algorithm`` block."""

    name: str
    """A registered name."""
    cfg: dict[str, Any] = field(default_factory=dict)
    """Its settings."""


@configclass
class TrainCfg:
    """A whole training config."""

    trainer: TrainerCfg
    """Length, environment, device and logging of the training."""
    policy: dict[str, Any]
    """Has ``name``; the rest is the policy's own."""
    algorithm: AlgorithmBlockCfg
    """Algorithm that improves the policy."""


_BLOCKS = frozenset({"trainer", "runtime", "policy", "algorithm"})  # by which a training config is known


def is_env_config(data: dict[str, Any]) -> bool:
    """Return whether a config file's content is an environment's, rather than a training's."""
    return "id" in data and _BLOCKS.isdisjoint(data)


def parse_period(period: int | str) -> tuple[int, bool]:
    """Return the number, and whether it counts iterations (``"100 it"``), not steps; or raise a ValueError."""
    match = re.fullmatch(r"\s*(\d+)\s*(it)?\s*", str(period))
    if match is None or int(match[1]) == 0:
        raise ValueError("must be a positive number of steps, or iterations as '100 it'")
    return int(match[1]), match[2] is not None


class Schedule:
    """Fires once at the first check at or past each multiple of a period, by threshold: no multiple is missed.

    Args:
        period: environment steps, or ``"100 it"`` for iterations.
        place: value's place in the config, for the ConfigError of a wrong one.
    """

    def __init__(self, period: int | str, place: str) -> None:
        try:
            self._period, self._counts_iterations = parse_period(period)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}, got {period!r}") from None
        self._next = self._period

    def start_from(self, step: int, iteration: int) -> None:
        """Continue after ``step`` environment steps and ``iteration`` iterations, which were checked already."""
        count = iteration if self._counts_iterations else step
        self._next = (count // self._period + 1) * self._period

    def is_due(self, step: int, iteration: int) -> bool:
        """Return whether to fire now, after ``step`` environment steps and ``iteration`` iterations."""
        count = iteration if self._counts_iterations else step
        if count < self._next:
            return False
        self.start_from(step, iteration)
        return True
