"""Runs a policy that `embodichain export --format onnx` wrote. It needs NumPy and ONNX Runtime, and nothing else.

    policy = PolicyRunner("policy.onnx")
    policy.reset()  # wherever an episode begins
    out = policy.act({"robot/qpos": qpos, "robot/qvel": qvel, ...})  # at each control step, of one robot or of N
    out["action"], out["command"]  # for the environment; for the robot, in physical units

`policy.spec` describes each measurement, input and command. `policy(...)` takes inputs in place of measurements: the
observation's entries after the terms of the training's config, such as positions normalised to -1 and 1.

With a `chunk_length` H above 1, actions and commands are H rows, to be executed one after the other before the next
call. Shapes: N rows, D numbers of an entry, A action size, C commands.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np


class ObservationBuilder:
    """Computes the inputs of a policy from raw measurements, as its training environment did; it needs NumPy alone.

    Attributes:
        last_action: [N, A], which the caller sets after each step; None before the first.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._steps = np.zeros(0, dtype=np.int64)  # [N], of the episode; empty before the first call
        self.reset()

    def reset(self, rows: np.ndarray | None = None) -> None:
        """Begin new episodes: in all rows, or in some (indices or a mask)."""
        if rows is None or not len(self._steps):
            self._steps = self._steps[:0]
            self.last_action: np.ndarray | None = None
            self._histories: dict[str, np.ndarray] = {}  # [N, k, D], oldest first, by the input's name
        else:
            self._steps[rows] = 0

    def __call__(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the policy's inputs of the present control step, [N, ...]; to be called once in each.

        Args:
            given: measurements [N, D] by name, and inputs [N, ...] that are not computed from measurements.
        """
        if not len(self._steps):
            self._steps = np.zeros(len(next(iter(given.values()))), dtype=np.int64)
        inputs = {}
        for name, entry in self._spec["inputs"].items():
            if "from" in entry:
                inputs[name] = self._compute(name, entry["from"], given)
            elif name != self._spec["memory"]:
                inputs[name] = given[name]
        self._steps = self._steps + 1
        return inputs

    def _compute(self, name: str, recipe: list[dict[str, Any]], given: dict[str, np.ndarray]) -> np.ndarray:
        """Carry out the steps of a recipe; in float32, like the environment."""
        value = np.zeros(0, dtype=np.float32)
        for step in recipe:
            ((operation, argument),) = step.items()
            match operation:
                case "measurement":
                    value = given[argument].astype(np.float32)
                case "subtract":
                    value = value - np.asarray(argument, dtype=np.float32)
                case "multiply":
                    value = value * np.asarray(argument, dtype=np.float32)
                case "last_action":
                    value = self._last_action()
                case "gait_clock":
                    value = self._gait_clock(given[argument["command"]].astype(np.float32), argument)
                case "history":
                    value = self._history(name, value, argument)
                case _:
                    raise ValueError(f"'{name}': this runner does not know '{operation}'; export again")
        return value

    def _last_action(self) -> np.ndarray:
        if self.last_action is None:
            return np.zeros((len(self._steps), self._spec["action"]["size"]), dtype=np.float32)
        return np.where(self._steps[:, None] > 0, self.last_action, np.float32(0))

    def _gait_clock(self, command: np.ndarray, clock: dict[str, Any]) -> np.ndarray:
        """Return sine and cosine of a clock that begins with the episode, [N, 2]; 0 where to stand still."""
        cycles = self._steps.astype(np.float32) * np.float32(clock["cycles_per_step"])
        phase = np.modf(cycles)[0] * np.float32(2 * np.pi)
        moves = np.square(command).sum(axis=1) > clock["standing_below"] ** 2
        return np.stack((np.sin(phase), np.cos(phase)), axis=1) * moves[:, None]

    def _history(self, name: str, value: np.ndarray, length: int) -> np.ndarray:
        """Return the last values side by side, [N, length * D], oldest first; the first of an episode fills all."""
        filled = np.repeat(value[:, None], length, axis=1)
        before = self._histories.get(name, filled)
        shifted = np.concatenate((before[:, 1:], value[:, None]), axis=1)
        self._histories[name] = np.where(self._steps[:, None, None] > 0, shifted, filled)
        return self._histories[name].reshape(len(value), -1)


class PolicyRunner:
    """Maps observations, or raw measurements, to actions and commands.

    It carries the hidden state of a recurrent policy, the last action and the histories.

    Args:
        path: path of the ONNX file. It may have one flat input [1, D], the specification's side by side.
        spec: specification; None: the file's own.
    """

    def __init__(self, path: str | Path, spec: dict[str, Any] | None = None) -> None:
        import onnxruntime  # noqa: PLC0415 (the observations alone do without)

        self.session = onnxruntime.InferenceSession(str(Path(path)), providers=["CPUExecutionProvider"])
        self.spec = spec or json.loads(self.session.get_modelmeta().custom_metadata_map["embodichain"])
        self.builder = ObservationBuilder(self.spec)
        self.reset()

    def reset(self, rows: np.ndarray | None = None) -> None:
        """Begin new episodes: in all rows, or in some (indices or a mask)."""
        self.builder.reset(rows)
        if rows is None or self.state is None:
            self.state: np.ndarray | None = None
        else:
            self.state[rows] = 0.0

    def __call__(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``action`` and ``command`` for an observation, or for N of them."""
        needed = {name: entry for name, entry in self.spec["inputs"].items() if name != self.spec["memory"]}
        inputs, is_single = _rows(obs, needed, "observation")
        return _unbatched(self._step(inputs), is_single)

    def act(self, measurements: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the same for raw measurements, of one robot or of N, once in each control step.

        ``spec["measurements"]`` has their names, sizes and units. Inputs that are not computed from measurements are
        given with them, by their own name.
        """
        inputs = self.spec["inputs"].items()
        by_name = {name: entry for name, entry in inputs if "from" not in entry and name != self.spec["memory"]}
        given, is_single = _rows(measurements, self.spec["measurements"] | by_name, "measurements")
        out = self._step(self.builder(given))
        self.builder.last_action = out["action"]
        return _unbatched(out, is_single)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the file's outputs for its inputs, [N, ...] by name; the hidden state is one of each."""
        names = [each.name for each in self.session.get_inputs()]
        values = [inputs[entry] for entry in self.spec["inputs"]]
        if len(names) < len(values):
            rows = [self.session.run(None, {names[0]: row[None]}) for row in np.concatenate(values, axis=1)]
            out = [np.concatenate(each) for each in zip(*rows, strict=True)]
        else:
            out = self.session.run(None, dict(zip(names, values, strict=True)))
        return dict(zip(self.spec["outputs"], out, strict=False))  # a flat file has the actions alone

    def _step(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        memory = self.spec["memory"]
        if memory is not None:
            if self.state is None:
                num_rows = len(next(iter(inputs.values())))
                self.state = np.zeros((num_rows, *self.spec["inputs"][memory]["shape"]), dtype=np.float32)
            inputs = inputs | {memory: self.state}
        out = self.run(inputs)
        self.state = out.pop("next_state", None)
        return out


def _rows(
    given: dict[str, np.ndarray], needed: dict[str, dict[str, Any]], what: str
) -> tuple[dict[str, np.ndarray], bool]:
    """Return the needed arrays with a leading dimension, and whether they had none."""
    rows, is_single = {}, False
    for name, entry in needed.items():
        if name not in given:
            raise ValueError(f"'{name}' is missing in the {what}; needed: {list(needed)}")
        value = np.asarray(given[name])
        if entry["dtype"] == "uint8" != value.dtype:
            raise ValueError(f"'{name}' is an image of uint8, got {value.dtype}")
        value = value.astype(entry["dtype"], copy=False)
        shape = entry["shape"]
        if list(value.shape[value.ndim - len(shape) :]) != shape or not len(shape) <= value.ndim <= len(shape) + 1:
            raise ValueError(f"'{name}' must have the shape {shape}, got {list(value.shape)}")
        is_single = value.ndim == len(shape)
        rows[name] = value[None] if is_single else value
    return rows, is_single


def _unbatched(out: dict[str, np.ndarray], is_single: bool) -> dict[str, np.ndarray]:
    return {name: value[0] if is_single else value for name, value in out.items()}
