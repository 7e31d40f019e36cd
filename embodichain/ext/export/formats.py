"""ONNX files of policies: writing, running, and parity with the policy. Legend: N environments."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.jit._trace import TracerWarning

from embodichain.ext.export.module import DeployedPolicy
from embodichain.tools.steps import TOLERANCE, ParityError, Step
from embodichain.utils import ConfigError
from embodichain.utils.doors import install_extra
from embodichain.utils.errors import CommandFailedError

Spec = Mapping[str, Any]
Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

RUNNER = Path(__file__).with_name("onnx_runner.py")
"""The runner of ONNX files; it needs NumPy and ONNX Runtime, and nothing of this package."""
_KEY = "embodichain"  # of the specification in a file's metadata
_LOGGERS = ("torch.onnx._internal.exporter._registration", "torch.fx.experimental.symbolic_shapes")
_EXAMPLES = 2  # observations that a policy is traced with


def write_onnx(module: DeployedPolicy, spec: Spec, path: Path) -> None:
    """Write an ONNX file."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--format onnx: not installed: {', '.join(missing)}. Install: {install_extra('export')}")
    with _tracing(module):
        program = torch.onnx.export(
            _exported(module),
            (_example(module),),
            dynamo=True,
            # Inputs and outputs share one space of names; the runner feeds the inputs by their order.
            input_names=[f"obs/{name}" if name in module.outputs else name for name in module.inputs],
            output_names=module.outputs,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props[_KEY] = json.dumps(spec)
    program.save(path)


def load_onnx(path: Path) -> Run:
    """Return a function from an ONNX file's inputs [N, ...] by name to its outputs by name."""
    runner = load_runner().PolicyRunner(path)
    return lambda inputs: runner.run(dict(inputs))


def load_runner(path: Path = RUNNER) -> ModuleType:
    """Import the runner from its file, which is also copied next to an exported policy."""
    spec = importlib.util.spec_from_file_location("onnx_runner", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _example(module: DeployedPolicy) -> list[Tensor]:
    return [torch.zeros(_EXAMPLES, *shape, dtype=dtype) for shape, dtype in module.inputs.values()]


def _exported(module: DeployedPolicy) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=65536)
    with torch.no_grad():
        return torch.export.export(
            module, (_example(module),), dynamic_shapes=([{0: batch} for _ in module.inputs],), strict=False
        )


@contextmanager
def _tracing(module: DeployedPolicy) -> Iterator[None]:
    """Let torch trace a policy inside the block."""
    try:
        # A failing exporter prints its graph.
        with _quiet(), _unchecked_distributions(), redirect_stderr(io.StringIO()):
            yield
    # Torch's exporters raise kinds of RuntimeError, and Python a TypeError where a traced value is no number.
    except (RuntimeError, TypeError) as error:
        raise CommandFailedError(
            f"--format onnx: torch cannot trace {type(module.policy).__name__}.forward: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """Return the first line of the error that an exporter's error comes from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Switch off the argument checks of distributions, which branch on values: tracing stops there."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings about its own deprecations and about packages that are not needed."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning, TracerWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def check_parity(run: Run, module: DeployedPolicy, steps: Sequence[Step]) -> float:
    """Repeat recorded steps with an exported policy, which carries its own hidden state.

    Args:
        steps: result of :func:`record_steps`.

    Returns:
        The largest difference between its actions and the policy's.

    Raises:
        ParityError: the difference is above 1e-5, or NaN.
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
        difference = float(np.abs(out["action"] - step.action).max())
        if not difference <= TOLERANCE:
            raise ParityError(
                f"step {i} of {len(steps)}: the exported policy's action differs from the policy's by "
                f"{difference:.3g}, allowed are {TOLERANCE:g}"
            )
        largest = max(largest, difference)
    return largest


def check_inputs(spec: Spec, steps: Sequence[Step]) -> None:
    """Compute the inputs of recorded steps from raw measurements, as the exported runner does.

    Args:
        spec: specification written with the policy.
        steps: records of :func:`record_steps`, with measurements, of an environment without simulated noise and delays.

    Raises:
        ParityError: an input differs from the environment's entry by more than 1e-5.
    """
    builder = load_runner().ObservationBuilder(spec)
    computed = [name for name, entry in spec["inputs"].items() if "from" in entry]
    for i, step in enumerate(steps):
        builder.reset(step.begins)
        inputs = builder(step.inputs | step.measured)
        for name in computed:
            difference = float(np.abs(inputs[name] - step.inputs[name]).max())
            if not difference <= TOLERANCE:
                raise ParityError(
                    f"step {i} of {len(steps)}: '{name}' computed from raw measurements differs from the "
                    f"environment's by {difference:.3g}, allowed are {TOLERANCE:g}"
                )
        builder.last_action = step.action
