"""A policy's parameters from a file, which may be of another policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodichain.agents.rl.models.policy import Policy
from embodichain.utils import ConfigError

__all__ = ["load_policy_state"]


def load_policy_state(policy: Policy, saved: Mapping[str, Any], place: str) -> None:
    """Load what ``policy.state_dict()`` returned, of this policy or of one that its config made elsewhere.

    Args:
        policy: as it is made here.
        saved: its parameters by name.
        place: where they are from, for messages.

    Raises:
        ConfigError: they do not fit; with each parameter that is missing, unknown or of another shape.
    """
    try:
        policy.load_state_dict(dict(saved))
    except RuntimeError as error:
        now = policy.state_dict()
        lines = [
            f"{name} {_size(saved, name)} there, {_size(now, name)} here"
            for name in {**saved, **now}
            if _size(saved, name) != _size(now, name)
        ]
        raise ConfigError(
            f"{place}: does not fit the policy that its config makes here; has the task's observation or action "
            f"changed since? {'; '.join(lines) or ' '.join(str(error).split())}"
        ) from error


def _size(state: Mapping[str, Any], name: str) -> str:
    return str(list(getattr(state[name], "shape", ()))) if name in state else "none"
