"""Writers and loaders of the file formats of an exported policy. Legend: N observations."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.jit._trace import TracerWarning

from embodichain.ext.export.module import DeployedPolicy
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


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        write: ``write(module, spec, path)``.
        load: ``load(path)`` returns a function from inputs [N, ...] by name to outputs by name.
    """

    suffix: str
    write: Callable[[DeployedPolicy, Spec, Path], None]
    load: Callable[[Path], Run]


def _write_onnx(module: DeployedPolicy, spec: Spec, path: Path) -> None:
    """Write an ONNX file.

    Raises:
        ConfigError: the extra ``export`` is not installed.
    """
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--format onnx: not installed: {', '.join(missing)}. Install: {install_extra('export')}")
    with _tracing(module, "onnx"):
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


def _load_onnx(path: Path) -> Run:
    runner = load_runner().PolicyRunner(path)

    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return runner.run(dict(inputs))

    return run


def load_runner(path: Path = RUNNER) -> ModuleType:
    """Import the runner from its file, which is also copied next to an exported policy."""
    spec = importlib.util.spec_from_file_location("onnx_runner", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write_torchscript(module: DeployedPolicy, spec: Spec, path: Path) -> None:
    content = io.BytesIO()  # torch raises RuntimeErrors where a file cannot be written
    with _tracing(module, "torchscript"):
        with torch.no_grad():
            traced = torch.jit.trace(module, (_example(module),), check_trace=False)
        torch.jit.save(traced, content, _extra_files={_KEY: json.dumps(spec)})
    path.write_bytes(content.getbuffer())


def _load_torchscript(path: Path) -> Run:
    files = {_KEY: ""}
    with _quiet():
        loaded = torch.jit.load(path, map_location="cpu", _extra_files=files)
    return _run_torch(loaded, json.loads(files[_KEY]))


FORMATS = {
    "onnx": Format(".onnx", _write_onnx, _load_onnx),
    "torchscript": Format(".pt", _write_torchscript, _load_torchscript),
}
"""Formats by the names for ``export --format``."""


def _run_torch(loaded: Callable[[list[Tensor]], tuple[Tensor, ...]], spec: Spec) -> Run:
    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        with torch.no_grad():
            outputs = loaded([torch.from_numpy(inputs[name]) for name in spec["inputs"]])
        return {name: output.numpy() for name, output in zip(spec["outputs"], outputs, strict=True)}

    return run


def _example(module: DeployedPolicy) -> list[Tensor]:
    return [torch.zeros(_EXAMPLES, *shape, dtype=dtype) for shape, dtype in module.inputs.values()]


def _exported(module: DeployedPolicy) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=65536)
    with torch.no_grad():
        return torch.export.export(
            module, (_example(module),), dynamic_shapes=([{0: batch} for _ in module.inputs],), strict=False
        )


@contextmanager
def _tracing(module: DeployedPolicy, file_format: str) -> Iterator[None]:
    """Let torch trace a policy inside the block.

    Raises:
        CommandFailedError: torch cannot trace it.
    """
    try:
        # A failing exporter prints its graph.
        with _quiet(), _unchecked_distributions(), redirect_stderr(io.StringIO()):
            yield
    # Torch's exporters raise kinds of RuntimeError, and Python a TypeError where a traced value is no number.
    except (RuntimeError, TypeError) as error:
        raise CommandFailedError(
            f"--format {file_format}: torch cannot trace {type(module.policy).__name__}.forward: {_reason(error)}"
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
