"""Loggers beside the run's own files: Weights & Biases, and MLflow, trackio and users' own by ``trainer.loggers``.

A config file does not say where they send anything to: the environment does.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg, TrainerCfg
from embodichain.agents.rl.metrics.hyperparameters import hyperparameters
from embodichain.agents.rl.metrics.sinks import Logger, ThreadedSink
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import MISSING
from embodichain.utils.errors import UnavailableError, collected, unknown_name
from embodichain.utils.extras import install_command, install_extra
from embodichain.utils.module_utils import find_admitted

__all__ = ["MLflowLogger", "TrackioLogger"]

_WANDB_PATIENCE = 15.0  # s that W&B's server has to answer at the beginning
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


class FoundLogger(NamedTuple):
    """An entry of ``trainer.loggers`` whose ``func`` is found; it is called as ``func(run, **params)``."""

    name: str
    func: Callable[..., Logger]
    params: Mapping[str, Any]


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
            if "." not in cfg.func and cfg.func not in __all__:
                raise ConfigError(f"func: {unknown_name('logger', cfg.func, __all__)}")
            func: Callable[..., Any] = find_admitted(cfg.func, [__name__], allowed_imports, "func")
            try:
                inspect.signature(func).bind(None, **cfg.params)
            except TypeError as error:
                raise ConfigError(f"params: {error}") from error
            found.append(FoundLogger(cfg.func, func, cfg.params))
    return found


def begin_loggers(cfg: TrainerCfg, found: Sequence[FoundLogger], run: LoggedRun) -> list[ThreadedSink]:
    """Return a run's loggers, which begin in threads; one that cannot is a warning."""
    sinks = [ThreadedSink(each.name, partial(each.func, run, **each.params)) for each in found]
    if cfg.use_wandb:
        sinks.append(ThreadedSink(WandbLogger.NAME, partial(WandbLogger, run, cfg.wandb_project_name)))
    return sinks


class WandbLogger:
    """Weights & Biases; offline without an account or a connection. A run that the program has begun itself is used."""

    NAME = "Weights & Biases"

    def __init__(self, run: LoggedRun, project: str) -> None:
        try:
            import wandb  # noqa: PLC0415 (an optional extra)

            self._make_video: Any = wandb.Video
        except (ImportError, AttributeError) as error:  # a folder "wandb" of offline logs can be imported, too
            raise UnavailableError(f"wandb cannot be imported ({error}): {install_extra('wandb')}") from error
        self._is_ours = wandb.run is None
        self._last_step = run.last_step
        self._run: Any = wandb.run if wandb.run is not None else self._begin(wandb, run, project)
        # W&B drops out-of-order steps of its own axis.
        self._run.define_metric("global_step")
        self._run.define_metric("*", step_metric="global_step")

    def _begin(self, wandb: Any, run: LoggedRun, project: str) -> Any:
        arguments = {"project": project, "name": run.name, "id": run.name, "config": run.config}
        arguments |= {"resume": "allow", "dir": str(run.folder)}
        begun, why = None, "no account here ('wandb login')"
        if os.environ.get("WANDB_API_KEY") or wandb.api.api_key:
            try:
                begun = wandb.init(**arguments, mode="online", settings=wandb.Settings(init_timeout=_WANDB_PATIENCE))
            except wandb.errors.Error as error:
                why = str(error).partition("\n")[0]
                wandb.teardown()  # the attempt would keep the run's name for itself
        if begun is None:
            logger.log_warning(f"{self.NAME}: {why}: logging offline; send it with 'wandb sync {run.folder}/wandb/*'")
            begun = wandb.init(**arguments, mode="offline")
        reached = begun.summary.get("global_step")
        if reached is not None and self._last_step is not None:  # the last step online may be ahead of our own files
            self._last_step = max(self._last_step, reached)
        return begun

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log scalars; repeated ones of a resumed run are left out, since W&B cannot take steps back."""
        if self._last_step is None or step > self._last_step:
            self._run.log({**scalars, "global_step": step})

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Log a video."""
        if self._last_step is None or step > self._last_step:
            self._run.log({name: self._make_video(str(path), format="mp4"), "global_step": step})

    def close(self) -> None:
        """Finish the run, unless it is the program's own."""
        if self._is_ours:
            self._run.finish()


class MLflowLogger:
    """MLflow: a run of an experiment, with metrics, hyperparameters and videos; a resume continues it.

    ``MLFLOW_TRACKING_URI`` says where, a server, a database or a folder; else MLflow's default.

    Args:
        experiment: its name; created where it does not exist.
    """

    def __init__(self, run: LoggedRun, experiment: str = "embodichain") -> None:
        try:
            from mlflow import MlflowClient, entities  # noqa: PLC0415 (an optional extra)
        except ImportError as error:
            raise UnavailableError(
                f"the package mlflow is not installed: {install_extra('mlflow')}; or mlflow itself"
            ) from error
        self._metric: Any = entities.Metric
        self._client: Any = MlflowClient()
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

    ``TRACKIO_SPACE_ID`` names a space on Hugging Face that gets the metrics instead; else nothing leaves this machine.

    Args:
        project: its name.
    """

    def __init__(self, run: LoggedRun, project: str = "embodichain") -> None:
        try:
            import trackio  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise UnavailableError(f"the package trackio is not installed: {install_command('trackio')}") from error
        self._trackio: Any = trackio
        self._run = run
        settings, space = hyperparameters(run.config), os.environ.get("TRACKIO_SPACE_ID")
        self._log: Any = trackio.init(project, run.name, space_id=space, config=settings, resume="allow")

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
