"""Checks of a checkpoint's content: an undamaged file may still be of something else, or forged."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from embodichain.utils import ConfigError

PROBLEM_KEY = "problem"  # in the config of a checkpoint with parts that cannot be described: the reason

_Numbers = tuple[float, float] | Annotated[list[float], Field(min_length=2, max_length=2)]


class _Trainer(TypedDict):
    exp_name: str


class _Algorithm(TypedDict):
    name: str
    cfg: NotRequired[dict[str, Any]]


class _Config(TypedDict):
    trainer: _Trainer
    policy: dict[str, Any]
    algorithm: _Algorithm
    gym_config: dict[str, Any]


class _Evaluation(TypedDict):
    success_rate: float | None
    success_interval: _Numbers | None
    avg_reward: float
    avg_length: float
    episodes: int
    videos: list[str]
    metrics: NotRequired[dict[str, float]]


class _Content(TypedDict):
    """Result of ``Trainer.state_dict``; the states of its parts are checked when they are loaded."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    code_version: str
    config: _Config
    global_step: NonNegativeInt
    iteration: NonNegativeInt
    train_seconds: float
    best_success: float
    best_reward: NotRequired[float]
    best_checkpoint: NotRequired[str | None]
    evaluation: _Evaluation | None
    num_threads: NotRequired[Annotated[int, Field(ge=1)]]
    policy: dict[str, Any]
    algorithm: dict[str, Any]
    stores: NotRequired[dict[str, Any]]
    generators: dict[str, Any]
    statistics: dict[str, Any]
    collector: Any
    env: Any
    world_size: NotRequired[Annotated[int, Field(ge=1)]]
    other_ranks: NotRequired[list[dict[str, Any]]]


_CONTENT = TypeAdapter(_Content)


def check_content(content: Mapping[str, Any], path: Path) -> None:
    """Check that a file holds a training's checkpoint with its config; else a ConfigError of one line."""
    config = content.get("config")
    if isinstance(config, dict) and config.get(PROBLEM_KEY) is not None:
        raise ConfigError(
            f"{path}: was written by a script's own Trainer and does not say from what its parts can be built again: "
            f"{config[PROBLEM_KEY]}. The script itself can continue from it: "
            "trainer.load_state_dict(load_checkpoint(path))"
        )
    check_fields(content, _CONTENT, path, "training")


def check_fields(content: Mapping[str, Any], fields: TypeAdapter[Any], path: Path, kind: str) -> None:
    """Check the names and types of a checkpoint's entries; a ConfigError names the first wrong one.

    Args:
        kind: expected kind of run, for the message.
    """
    try:
        fields.validate_python(dict(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))  # never empty: the content itself is a dict
        raise ConfigError(f"{path}: is not the checkpoint of a {kind}: {place}: {first['msg']}") from None


@contextmanager
def loading(path: str | Path, kind: str = "training") -> Iterator[None]:
    """Turn errors of objects that load their state from a checkpoint into a ConfigError of one line about the file.

    Args:
        kind: expected kind of run, for the message.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error).replace("the checkpoint:", f"{path}:", 1)) from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{path}: does not hold the state of this {kind}: {type(error).__name__}: {reason} "
            f"({where.filename}, line {where.lineno})"
        ) from error
