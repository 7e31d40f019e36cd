"""Policies as ONNX files: the deployed network, writing, running, and parity. Legend: N environments."""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn
from torch.distributions import Distribution

from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.models.networks import group_entries, network_keys
from embodichain.agents.rl.models.policy import PolicyBlock, PolicyCfg
from embodichain.ext.export import onnx_runner
from embodichain.lab.gym.envs.managers.actions import POSITION
from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandMap
from embodichain.tools.policy import Step, checked_difference
from embodichain.utils import CommandFailedError, ConfigError, install_extra, observations

Spec = Mapping[str, Any]
Run = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]

_KEY = "embodichain"  # of the specification in a file's metadata
_EXAMPLES = 2  # observations that a policy is traced with
_DTYPES = {"u": torch.uint8, "i": torch.int64}  # by NumPy's kind; numbers are float32 or float64


def actor_entries(cfg: PolicyBlock, space: spaces.Dict, policy: Policy) -> list[str]:
    """Return the entries of the observation that the actor reads.

    Args:
        cfg: the config's ``policy`` block; of a built-in policy, entries that only the critic reads are left out.
        space: the structured observation space of one environment.
    """
    if not policy.reads_flat_obs:
        return list(policy.obs_keys)
    if not isinstance(cfg, PolicyCfg):
        return list(dict.fromkeys([*observations.entry_columns(space), *policy.obs_keys]))
    readers = [part for name, part in policy.named_modules() if not name.startswith("critic")]
    return list(dict.fromkeys([*group_entries(cfg.obs_groups, "actor", space), *network_keys(*readers)]))


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
        of_entries = observations.entry_spaces(space).items()
        kinds: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            name: (own.shape, _torch_dtype(own.dtype)) for name, own in of_entries
        }
        self.inputs = {name: kinds[name] for name in entries}
        self._entries = tuple(entries)
        self._unread = {name: kinds[name] for name in policy.obs_keys if name not in entries}  # images of the critic
        self._columns = {name: part.stop - part.start for name, part in observations.entry_columns(space).items()}
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
            read = {name: given[name] for name in self.policy.obs_keys if name in given}
            for name, (shape, dtype) in self._unread.items():
                read[name] = zeros.to(dtype).view(-1, *[1] * len(shape)).expand(-1, *shape)
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


def write_onnx(
    module: DeployedPolicy, spec: Spec, path: Path, more: Mapping[str, str] | None = None, rows: int | None = None
) -> None:
    """Write an ONNX file.

    Args:
        more: further metadata.
        rows: number of observations of a call; None: any.
    """
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--format onnx: not installed: {', '.join(missing)}. Install: {install_extra('export')}")
    with _tracing(module):
        example = [torch.zeros(rows or _EXAMPLES, *shape, dtype=dtype) for shape, dtype in module.inputs.values()]
        sizes = {} if rows else {0: torch.export.Dim("batch", min=1, max=65536)}
        dynamic = ([sizes for _ in module.inputs],)
        with torch.no_grad():
            exported = torch.export.export(module, (example,), dynamic_shapes=dynamic, strict=False)
        program = torch.onnx.export(
            exported,
            (example,),
            dynamo=True,
            opset_version=18,
            # Inputs and outputs share one space of names; the runner feeds the inputs by their order.
            input_names=[f"obs/{name}" if name in module.outputs else name for name in module.inputs],
            output_names=module.outputs,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces, with the paths of this machine
    program.model.metadata_props.update(common_metadata(spec), **{_KEY: json.dumps(spec)}, **(more or {}))
    program.save(path)


def common_metadata(spec: Spec) -> dict[str, str]:
    """Return the fields of an ONNX file that the runtimes of other libraries (mjlab, Isaac Lab) read."""
    drives, commands = spec.get("drives", []), spec.get("command", [])
    targets = [(part["name"], part["meaning"], part["offset"]) for part in commands]
    fields = {
        "joint_names": [drive["name"] for drive in drives],
        "default_joint_pos": [drive["initial_position"] for drive in drives],
        "joint_stiffness": [drive["stiffness"] for drive in drives],
        "joint_damping": [drive["damping"] for drive in drives],
    }
    # They set the position default_joint_pos + action_scale * action.
    if targets == [(drive["name"], POSITION, drive["initial_position"]) for drive in drives]:
        fields["action_scale"] = [part["factor"] for part in commands]
    fields |= {
        "observation_names": list(spec.get("inputs", [])),
        "command_names": list(spec.get("mujoco", {}).get("commands", {})),
        "control_period": [spec.get("control_period_s", "")],
    }
    return {name: ",".join(map(str, values)) for name, values in fields.items()}


@contextmanager
def _tracing(module: DeployedPolicy) -> Iterator[None]:
    """Let torch trace a policy inside the block, without its warnings about deprecations and missing packages."""
    validates, disabled = Distribution._validate_args, logging.root.manager.disable
    Distribution.set_default_validate_args(False)  # the checks branch on values: tracing stops there
    logging.disable(logging.WARNING)
    try:
        # A failing exporter prints its graph.
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):
            yield
    # Torch's exporters raise kinds of RuntimeError, and Python a TypeError where a traced value is no number.
    except (RuntimeError, TypeError) as error:
        raise CommandFailedError(
            f"--format onnx: torch cannot trace {type(module.policy).__name__}.forward: {_reason(error)}"
        ) from error
    finally:
        Distribution.set_default_validate_args(validates)
        logging.disable(disabled)


def _reason(error: BaseException) -> str:
    """Return the first line of the error that an exporter's error comes from, or its kind's name."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def check_parity(run: Run, module: DeployedPolicy, steps: Sequence[Step]) -> float:
    """Repeat recorded steps with an exported policy, which carries its own hidden state.

    Args:
        steps: result of :func:`record_steps`.

    Returns:
        The largest difference between its actions and the policy's.
    """
    largest = 0.0
    num_envs = len(steps[0].action)
    hidden: dict[str, np.ndarray] = {}
    if module.memory is not None:
        hidden[module.memory] = np.zeros((num_envs, *module.inputs[module.memory][0]), dtype=np.float32)
    for i, step in enumerate(steps):
        hidden = {name: np.where(step.begins[:, None], np.float32(0), state) for name, state in hidden.items()}
        given = {
            name: value.astype(str(module.inputs[name][1]).removeprefix("torch."))
            for name, value in step.inputs.items()
        }
        out = run(given | hidden)
        if module.memory is not None:
            hidden[module.memory] = out["next_state"]
        what = f"step {i} of {len(steps)}: the exported policy's action differs from the policy's"
        largest = max(largest, checked_difference(out["action"], step.action, what))
    return largest


def check_inputs(spec: Spec, steps: Sequence[Step]) -> None:
    """Compare recorded inputs with the exported runner's, computed from raw measurements, to 1e-5.

    The environment of the steps has no simulated noise and delays.
    """
    builder = onnx_runner.ObservationBuilder(dict(spec))
    computed = [name for name, entry in spec["inputs"].items() if "from" in entry]
    for i, step in enumerate(steps):
        builder.reset(step.begins)
        inputs = builder(step.inputs | step.measured)
        for name in computed:
            what = f"step {i} of {len(steps)}: '{name}' computed from raw measurements differs from the environment's"
            checked_difference(inputs[name], step.inputs[name], what)
        builder.last_action = step.action
