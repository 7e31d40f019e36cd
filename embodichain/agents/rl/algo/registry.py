"""Algorithms by name: the built-in ones and users' own."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.on_policy import AlgorithmCfg
from embodichain.agents.rl.distributed.process_group import adopt_process_group, forget_process_group
from embodichain.agents.rl.models import Policy
from embodichain.utils import ConfigError, doors, from_dict, to_dict, unknown_name
from embodichain.utils.module_utils import check_free

A = TypeVar("A", bound=BaseAlgorithm)

_ALGORITHMS: dict[str, type[BaseAlgorithm]] = {}


def register_algo(name: str, override: bool = False) -> Callable[[type[A]], type[A]]:
    """Register the decorated class for ``algorithm.name``; ``override``: in place of another class of this name.

    The class is built as ``algo_class(cfg, policy)``, where ``cfg`` is an instance of its attribute ``cfg_class``.
    """

    def register(algo_class: type[A]) -> type[A]:
        if not (inspect.isclass(algo_class) and issubclass(algo_class, BaseAlgorithm)):
            raise ConfigError(f"algorithm {algo_class!r}: is no subclass of embodichain.agents.rl.algo.BaseAlgorithm")
        if not override:
            check_free(_ALGORITHMS, name, algo_class, "algorithm")
        if algo_class.learns_from == "rollouts" and algo_class.cfg_class is BaseAlgorithm.cfg_class:
            algo_class.cfg_class = AlgorithmCfg
        _ALGORITHMS[name] = algo_class
        return algo_class

    return register


def get_registered_algo_names() -> list[str]:
    """Return the names that ``build_algo`` knows, sorted."""
    return sorted({*_ALGORITHMS, *doors.entries(doors.ALGORITHMS)})


def get_algo_class(name: str) -> type[BaseAlgorithm]:
    """Return a registered class."""
    if name not in _ALGORITHMS:
        if (found := doors.load(doors.ALGORITHMS, name)) is not None:
            return register_algo(name, override=True)(found)
        unknown = unknown_name("algorithm", name, get_registered_algo_names())
        raise ConfigError(f"{unknown}. Your own are known once imported: trainer.import_modules, or --import")
    return _ALGORITHMS[name]


def find_algo_name(algo_class: type) -> str | None:
    """Return the name that a class is registered by, or None."""
    return next((name for name, registered in _ALGORITHMS.items() if registered is algo_class), None)


def algorithm_data(name: str, cfg: Any) -> dict[str, Any]:
    """Return the config's ``algorithm`` block with all defaults, without ``device``, which is the trainer's."""
    settings = to_dict(cfg)
    settings.pop("device", None)
    if settings.get("normalize_returns", False) is None:  # what null means to an algorithm that a script has built
        settings["normalize_returns"] = False
    return {"name": name, "cfg": settings}


def build_algo(
    name: str,
    cfg_kwargs: Mapping[str, Any] | BaseAlgorithmCfg,
    policy: Policy,
    device: torch.device | str,
    *,
    distributed: bool = False,
) -> BaseAlgorithm:
    """Build an algorithm from its config block.

    Args:
        cfg_kwargs: ``algorithm.cfg``: an instance of the algorithm's config class, or its arguments.
        device: where updates run, instead of a ``device`` in ``cfg_kwargs``.
        distributed: the processes of the process group (``join_process_group``, or one that the program initialized)
            share each update, beginning with rank 0's policy.
    """
    algo_class = get_algo_class(name)
    if distributed:
        # Before the algorithm is made, which may copy the policy.
        adopt_process_group(torch.device(device)).broadcast(policy.state_dict().values())
    else:
        forget_process_group()
    settings = cfg_kwargs if isinstance(cfg_kwargs, Mapping) else vars(cfg_kwargs)
    cfg = from_dict(algo_class.cfg_class, {**settings, "device": str(device)}, "algorithm.cfg")
    return algo_class(cfg, policy)
