"""Loggers beside the run's own files: Weights & Biases, and users' own by ``trainer.loggers``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg, TrainerCfg
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import MISSING
from embodichain.utils.doors import install_extra
from embodichain.utils.errors import UnavailableError, collected
from embodichain.utils.module_utils import find_admitted

_PATIENCE = 15.0  # s that W&B's server has to answer at the beginning


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


class FoundLogger(NamedTuple):
    """An entry of ``trainer.loggers`` whose ``func`` is found; it is called as ``func(run, **params)``."""

    name: str
    func: Callable[..., Any]
    params: Mapping[str, Any]


def find_loggers(cfgs: Sequence[LoggerCfg], allowed_imports: Sequence[str], problems: list[str]) -> list[FoundLogger]:
    """Return the loggers that ``trainer.loggers`` names; errors are added to ``problems``.

    Args:
        allowed_imports: prefixes of modules, imported already, that dotted paths may lead into.
    """
    found = []
    for i, cfg in enumerate(cfgs):
        name: Any = cfg.func
        if name is MISSING:  # reported as such
            continue
        with collected(problems, f"trainer.loggers[{i}]."):
            if "." not in cfg.func:
                raise ConfigError(f"func: must be the dotted path of a function or class, got '{cfg.func}'")
            func: Callable[..., Any] = find_admitted(cfg.func, [], allowed_imports, "func")
            try:
                inspect.signature(func).bind(None, **cfg.params)
            except TypeError as error:
                raise ConfigError(f"params: {error}") from error
            found.append(FoundLogger(cfg.func, func, cfg.params))
    return found


def begin_loggers(log: RunLog, cfg: TrainerCfg, found: Sequence[FoundLogger], run: LoggedRun) -> None:
    """Add a run's loggers to its log; one that cannot begin is a warning."""
    for each in found:
        log.begin(each.name, partial(each.func, run, **each.params))
    if cfg.use_wandb:
        log.begin(WandbLogger.name, partial(WandbLogger, run, cfg.wandb_project_name))


class WandbLogger:
    """Weights & Biases; offline without an account or a connection. A run that the program has begun itself is used."""

    name = "Weights & Biases"

    def __init__(self, run: LoggedRun, project: str) -> None:
        try:
            import wandb  # noqa: PLC0415 (an optional extra)

            self._make_video: Any = wandb.Video
        except (ImportError, AttributeError) as error:  # a folder "wandb" of offline logs can be imported, too
            raise UnavailableError(f"wandb cannot be imported ({error}): {install_extra('wandb')}") from error
        self._is_ours = wandb.run is None
        self._last_step = -1 if run.last_step is None else run.last_step  # W&B cannot take steps back
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
                begun = wandb.init(**arguments, mode="online", settings=wandb.Settings(init_timeout=_PATIENCE))
            except wandb.errors.Error as error:
                why = str(error).partition("\n")[0]
                wandb.teardown()  # the attempt would keep the run's name for itself
        if begun is None:
            logger.log_warning(f"{self.name}: {why}: logging offline; send it with 'wandb sync {run.folder}/wandb/*'")
            begun = wandb.init(**arguments, mode="offline")
        if run.last_step is not None:  # the last step online may be ahead of our own files
            self._last_step = max(self._last_step, begun.summary.get("global_step") or 0)
        return begun

    def write(self, scalars: Mapping[str, Any], step: int) -> None:
        """Log scalars; repeated ones of a resumed run are left out."""
        if step > self._last_step:
            self._run.log({**scalars, "global_step": step})

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Log a video."""
        self.write({name: self._make_video(str(path), format="mp4")}, step)

    def close(self) -> None:
        """Finish the run, unless it is the program's own."""
        if self._is_ours:
            self._run.finish()
