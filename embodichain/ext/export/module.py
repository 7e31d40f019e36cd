"""A policy as one module from a robot's observations to its commands.

Legend: N observations, H steps of an action chunk, A action size, C commands, S size of the hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.models.block import PolicyCfg
from embodichain.agents.rl.models.registry import PolicyBlock
from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.utils.observations import entry_columns, entry_spaces

_DTYPES = {"u": torch.uint8, "i": torch.int64}  # by NumPy's kind; numbers are float32 or float64


def actor_entries(cfg: PolicyBlock, space: spaces.Dict, policy: Policy) -> list[str]:
    """Return the entries of the observation that the actor reads.

    Args:
        cfg: the config's ``policy`` block; of a built-in policy, entries that only the critic reads are left out.
        space: the structured observation space of one environment.
    """
    if not policy.reads_flat_obs:
        return list(policy.obs_keys)
    patterns = cfg.obs_groups.actor if isinstance(cfg, PolicyCfg) else ["*"]
    read = [name for name in entry_columns(space) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return list(dict.fromkeys([*read, *policy.obs_keys]))


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.float64 if dtype == np.float64 else _DTYPES.get(dtype.kind, torch.float32)


class DeployedPolicy(nn.Module):
    """Maps observations by name to actions and commands.

    It contains the policy with its normaliser, the order of the entries in the flat observation, the action limits of
    the environment, and the mapping from actions to commands in physical units.

    Args:
        space: the structured observation space of one environment.
        entries: the inputs, in this order; the others are zeros, which the actor does not read.
        action_space: one environment's action space, [A].
        terms: the environment's action terms, in their order.

    Attributes:
        inputs: shape and dtype of each input, without N, by name in their order; the hidden state is the last.
        memory: the hidden state's input: ``state``, or ``memory`` if an entry is named ``state``; None without one.
        outputs: ``action``, ``command`` if every term has one, and ``next_state`` with a hidden state.
    """

    low: Tensor  # [A]
    high: Tensor  # [A]

    def __init__(
        self,
        policy: Policy,
        space: spaces.Dict,
        entries: Sequence[str],
        action_space: spaces.Box,
        terms: Sequence[ActionTerm],
    ) -> None:
        super().__init__()
        self.policy = policy
        of_entries = entry_spaces(space)
        self.inputs: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            name: (of_entries[name].shape, _torch_dtype(of_entries[name].dtype)) for name in entries
        }
        self._entries = tuple(entries)
        self._columns = {name: part.stop - part.start for name, part in entry_columns(space).items()}
        self.memory = ("memory" if "state" in entries else "state") if policy.state_size else None
        if self.memory is not None:
            self.inputs[self.memory] = ((policy.state_size,), torch.float32)
        self.register_buffer("low", torch.as_tensor(action_space.low, dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(action_space.high, dtype=torch.float32))
        maps = [term.command_map() for term in terms]
        self.maps: list[CommandMap] = [found for found in maps if found is not None] if all(maps) else []
        self._sizes = [term.action_dim for term in terms]
        for i, found in enumerate(self.maps):
            for name in ("offset", "factor", "low", "high"):
                self.register_buffer(f"{name}_{i}", getattr(found, name).float().cpu())
        self.outputs = ["action", *(["command"] if self.maps else []), *(["next_state"] if policy.state_size else [])]

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the values named in ``outputs`` for ``inputs`` [N, ...] in their order.

        That is [N, A], [N, C] and [N, S]; of a policy that chooses chunks of H actions [N, H, A] and [N, H, C].
        """
        given = dict(zip(self._entries, inputs, strict=False))
        num_rows = inputs[0].shape[:1]
        # Its size stays dynamic when it is traced.
        zeros = torch.zeros_like(inputs[0].flatten(1)[:, :1], dtype=torch.float32)
        is_double = self.policy.has_normalizer and any(value.dtype == torch.float64 for value in given.values())
        flat = [
            given[name].flatten(1).to(torch.float64 if is_double else torch.float32)
            if name in given
            else zeros.expand(-1, width)
            for name, width in self._columns.items()
        ]
        fields: dict[str, Any] = {"obs": torch.cat(flat or [zeros[:, :0]], dim=-1)}
        if self.policy.obs_keys:
            read = {name: given[name] for name in self.policy.obs_keys}
            fields["entries"] = TensorDict(read, batch_size=num_rows)
        if self.memory is not None:
            fields["state"] = inputs[-1]
        step = self.policy.forward(TensorDict(fields, batch_size=num_rows), deterministic=True)
        action = torch.minimum(torch.maximum(step["action"], self.low), self.high)
        out = [action]
        if self.maps:
            out.append(self._command(action))
        if self.memory is not None:
            out.append(step["next_state"])
        return tuple(out)

    def _command(self, action: Tensor) -> Tensor:
        parts = []
        for i, own in enumerate(action.split(self._sizes, dim=-1)[: len(self.maps)]):
            offset, factor, low, high = (getattr(self, f"{name}_{i}") for name in ("offset", "factor", "low", "high"))
            parts.append(torch.minimum(torch.maximum(offset + factor * own, low), high))
        return torch.cat(parts, dim=-1)
