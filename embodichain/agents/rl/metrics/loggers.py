"""Loggers that a config names in ``trainer.loggers``, beside the run's own files: users' own, MLflow, trackio."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg
from embodichain.agents.rl.metrics.hyperparameters import hyperparameters
from embodichain.utils import ConfigError
from embodichain.utils.configclass import MISSING
from embodichain.utils.errors import collected, raise_problems, unknown_key, unknown_name
from embodichain.utils.extras import install_command, install_extra
from embodichain.utils.module_utils import find_admitted

__all__ = ["MLflowLogger", "TrackioLogger"]

_METHODS = ("write", "close")
_MLFLOW_BATCH = 100  # parameters, at most, of one request


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is told of its run.

    Attributes:
        name: of the run's folder.
        folder: of the run.
        config: of the run, plain data with every default.
        last_step: environment step of the last metrics before a resume, some of which come again; None: a new run.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    last_step: int | None = None

    def is_logged(self, step: int) -> bool:
        """Return whether the metrics of an environment step were logged before the resume."""
        return self.last_step is not None and step <= self.last_step


class Logger(Protocol):
    """What an entry of ``trainer.loggers`` makes; ``write_video`` may be missing. If it raises, the run warns."""

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log scalars by name at an environment step."""

    def close(self) -> None:
        """Finish."""


class FoundLogger(NamedTuple):
    """An entry of ``trainer.loggers`` whose ``func`` is found.

    Attributes:
        name: of the function or class, as the config has it.
        func: called as ``func(run, **params)``.
    """

    name: str
    func: Callable[..., Logger]
    params: Mapping[str, Any]


class LoggerSink:
    """A logger as a sink of the run's log."""

    def __init__(self, name: str, logger: Logger) -> None:
        self.name = name
        self._logger = logger

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Pass scalars on."""
        self._logger.write(scalars, step)

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Pass a video on, if the logger takes videos."""
        take = getattr(self._logger, "write_video", None)
        if take is not None:
            take(name, path, step)

    def close(self) -> None:
        """Finish."""
        self._logger.close()


def find_loggers(cfgs: Sequence[LoggerCfg], allowed_imports: Sequence[str], problems: list[str]) -> list[FoundLogger]:
    """Return what the entries of ``trainer.loggers`` name; errors are added to ``problems``.

    Args:
        allowed_imports: prefixes of modules, imported already, that dotted paths may lead into.
    """
    found = []
    for i, cfg in enumerate(cfgs):
        name: Any = cfg.func
        if name is MISSING:  # reported as such
            continue
        with collected(problems, f"trainer.loggers[{i}]."):
            func = _find(cfg.func, allowed_imports)
            _check_params(func, cfg.params)
            found.append(FoundLogger(cfg.func, func, cfg.params))
    return found


def _find(name: str, allowed_imports: Sequence[str]) -> Callable[..., Any]:
    if "." not in name and name not in __all__:
        raise ConfigError(f"func: {unknown_name('logger', name, __all__)}")
    func: Callable[..., Any] = find_admitted(name, [__name__], allowed_imports, "func")
    missing = [method for method in _METHODS if isinstance(func, type) and not hasattr(func, method)]
    if missing:
        raise ConfigError(f"func: '{name}' is no logger: it has no method {', '.join(missing)}")
    return func


def _check_params(func: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Raise a ConfigError unless ``func(run, **params)`` is possible."""
    arguments = list(inspect.signature(func).parameters.values())[1:]
    names = [a.name for a in arguments if a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY)]
    takes_any = any(a.kind is a.VAR_KEYWORD for a in arguments)
    required = [a.name for a in arguments if a.name in names and a.default is a.empty]
    unknown = [] if takes_any else [name for name in params if name not in names]
    problems = [f"params.{name}: {unknown_key(name, names, 'parameter')}" for name in unknown]
    raise_problems(problems + [f"params.{name}: required, but missing" for name in required if name not in params])


def start_logger(found: FoundLogger, run: LoggedRun) -> LoggerSink:
    """Return a logger that has begun; a ConfigError where it cannot, such as for a server that does not answer."""
    try:
        return LoggerSink(found.name, found.func(run, **found.params))
    except ConfigError as error:
        raise ConfigError(f"trainer.loggers: {found.name}: {error}") from error
    except Exception as error:  # users' code, and other libraries
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise ConfigError(f"trainer.loggers: {found.name} cannot begin: {reason}") from error


class MLflowLogger:
    """MLflow: a run of an experiment, with metrics, hyperparameters and videos; a resume continues it.

    Args:
        tracking_uri: of a server, a database or a folder; None: ``MLFLOW_TRACKING_URI``, or else MLflow's default.
        experiment: its name; created where it does not exist.

    Raises:
        ConfigError: the extra ``mlflow`` is not installed.
    """

    def __init__(self, run: LoggedRun, tracking_uri: str | None = None, experiment: str = "embodichain") -> None:
        try:
            from mlflow import MlflowClient, entities  # noqa: PLC0415 (an optional extra)
        except ImportError as error:
            raise ConfigError(
                f"the package mlflow is not installed: {install_extra('mlflow')}; or mlflow itself"
            ) from error
        self._metric: Any = entities.Metric
        self._client: Any = MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        place = self._client.create_experiment(experiment) if found is None else found.experiment_id
        self._id: str = self._begun(run, place) or self._new(run, place, entities.Param)
        self._run = run

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log scalars."""
        if not self._run.is_logged(step):
            now = int(time.time() * 1000)
            self._client.log_batch(self._id, [self._metric(name, value, now, step) for name, value in scalars.items()])

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Add a video to the run's artifacts."""
        self._client.log_artifact(self._id, str(path), name)

    def close(self) -> None:
        """Finish the run."""
        self._client.set_terminated(self._id)

    def _begun(self, run: LoggedRun, place: str) -> str | None:
        """Return the id of the run to continue, None for a new one."""
        if run.last_step is None:
            return None
        name = run.name.replace("'", "\\'")
        found = self._client.search_runs([place], f"attributes.run_name = '{name}'")
        if not found:
            return None
        run_id: str = found[0].info.run_id
        self._client.update_run(run_id, "RUNNING")
        return run_id

    def _new(self, run: LoggedRun, place: str, make_param: Any) -> str:
        run_id: str = self._client.create_run(place, run_name=run.name).info.run_id
        params = [make_param(name, str(value)) for name, value in hyperparameters(run.config).items()]
        for first in range(0, len(params), _MLFLOW_BATCH):
            self._client.log_batch(run_id, params=params[first : first + _MLFLOW_BATCH])
        return run_id


class TrackioLogger:
    """trackio: a run in the local database that ``trackio show`` displays; a resume continues it.

    Args:
        project: its name.
        space_id: of a space on Hugging Face that gets the metrics instead; None: nothing leaves this machine.

    Raises:
        ConfigError: trackio is not installed.
    """

    def __init__(self, run: LoggedRun, project: str = "embodichain", space_id: str | None = None) -> None:
        try:
            import trackio  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ConfigError(f"the package trackio is not installed: {install_command('trackio')}") from error
        self._trackio: Any = trackio
        self._run = run
        settings = hyperparameters(run.config)
        self._log: Any = trackio.init(project, run.name, space_id=space_id, config=settings, resume="allow")

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log scalars."""
        if not self._run.is_logged(step):
            self._log.log(scalars, step=step)

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Log a video."""
        if not self._run.is_logged(step):
            self._log.log({name: self._trackio.Video(str(path))}, step=step)

    def close(self) -> None:
        """Finish the run."""
        self._log.finish()
