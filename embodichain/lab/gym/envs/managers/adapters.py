"""Adapters for terms with EmbodiChain's signatures.

Code written for EmbodiChain has observation functions of mode ``add`` that take the observation so far,
``func(env, obs, **params)``, and action terms with a ``process_action`` that returns a tensor of targets, of the kind
``input_key``. Its other terms are called as ours are.

Shapes: N environments, A action size, J joints of a term.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import ActionTerm
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, ObservationCfg
from embodichain.utils import ConfigError

_OBSERVATION_NAMES = ("obs", "_obs", "observation", "observations")
_OBSERVATION_TYPES = ("EnvObs", "TensorDict")
_DRIVES = {"qpos": "qpos", "qvel": "qvel", "qf": "qf", "eef_pose": "qpos"}
"""Kind of the targets by a term's ``input_key``; the term converts poses to joint positions."""


def takes_observation(cfg: FunctorCfg) -> bool:
    """Return whether an ``add`` term takes the environment and the observation so far.

    Its second argument, after the environment, is then called ``obs`` (or ``observation``), or annotated so, and not
    one of the ``params``.
    """
    func: Any = cfg.func
    if not isinstance(cfg, ObservationCfg) or cfg.mode != "add":
        return False
    arguments = list(inspect.signature(func.__call__ if isinstance(func, type) else func).parameters.values())
    positional = [a for a in arguments if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD)]
    second = positional[2:3] if isinstance(func, type) else positional[1:2]
    return any(
        a.name not in cfg.params and (a.name in _OBSERVATION_NAMES or _type_name(a.annotation) in _OBSERVATION_TYPES)
        for a in second
    )


def joint_targets(term: ActionTerm, name: str) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """Return the function from actions [N, A] to a term's targets [N, J] by kind, and metrics [N].

    Args:
        term: adapted term; its ``kind`` is set from an overridden ``input_key``.
        name: term's name in the config, for messages.

    Raises:
        ConfigError: the ``input_key`` is unknown.
    """
    if type(term).input_key is ActionTerm.input_key:
        return term.process_action
    key = term.input_key
    if key not in _DRIVES:
        raise ConfigError(f"env.actions.{name}: {type(term).__name__}.input_key is '{key}', not one of {[*_DRIVES]}")
    kind = _DRIVES[key]
    vars(term)["kind"] = kind
    dof = term.env.robot.dof

    def process(action: Tensor) -> Mapping[str, Tensor]:
        result: Any = term.process_action(action)
        results = {kind: result} if isinstance(result, Tensor) else dict(result.items())
        targets = results.get(kind)
        if targets is not None and targets.shape[-1] == dof:
            results[kind] = targets = targets[:, term.joint_ids]
        if targets is None or targets.shape != (len(action), len(term.joint_ids)):
            got = "nothing" if targets is None else f"a tensor {list(targets.shape)}"
            joints = f"[{len(action)}, {len(term.joint_ids)}] or [{len(action)}, {dof}]"
            raise ConfigError(
                f"env.actions.{name}: {type(term).__name__}.process_action must return '{kind}' for the term's joints "
                f"or all of the robot's, {joints}, as a tensor or by that name, not {got}"
            )
        return results

    return process


def _type_name(annotation: Any) -> str:
    """Return the last name of an annotation, which may be a text."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.partition("[")[0].rpartition(".")[2]
