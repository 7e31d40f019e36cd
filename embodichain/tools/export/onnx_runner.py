"""Runs a policy that `embodichain export --format onnx` wrote. It needs NumPy and ONNX Runtime, and nothing else.

    policy = PolicyRunner("policy.onnx")
    policy.reset()                                          # wherever an episode begins
    out = policy({"robot/qpos": qpos, "robot/qvel": qvel})  # one observation, or N with a leading dimension
    out["action"], out["command"]                           # for the environment; for the robot, in physical units

`policy.spec` describes each input and command. With a `chunk_length` H above 1, actions and commands are H rows, to be
executed one after the other before the next call.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime


class PolicyRunner:
    """Maps observations by name to actions and commands, and carries the hidden state of a recurrent policy."""

    def __init__(self, path: str | Path) -> None:
        self.session = onnxruntime.InferenceSession(str(Path(path)), providers=["CPUExecutionProvider"])
        self.spec = json.loads(self.session.get_modelmeta().custom_metadata_map["embodichain"])
        self.state: np.ndarray | None = None

    def reset(self, rows: np.ndarray | None = None) -> None:
        """Begin new episodes: reset the hidden state of all rows, or of some (indices or a mask)."""
        if rows is None or self.state is None:
            self.state = None
        else:
            self.state[rows] = 0.0

    def __call__(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``action`` and ``command`` for an observation, or for N of them."""
        inputs, memory = {}, self.spec["memory"]
        for name, entry in self.spec["inputs"].items():
            if name == memory:
                continue
            if name not in obs:
                raise ValueError(f"'{name}' is missing in the observation; needed: {list(self.spec['inputs'])}")
            value = np.asarray(obs[name], dtype=entry["dtype"])
            if list(value.shape[-len(entry["shape"]) :]) != entry["shape"]:
                raise ValueError(f"'{name}' must have the shape {entry['shape']}, got {list(value.shape)}")
            is_single = value.ndim == len(entry["shape"])
            inputs[name] = value[None] if is_single else value
        if memory is not None:
            if self.state is None:
                num_rows = len(next(iter(inputs.values())))
                self.state = np.zeros((num_rows, *self.spec["inputs"][memory]["shape"]), dtype=np.float32)
            inputs[memory] = self.state
        values = self.session.run(self.spec["outputs"], inputs)
        out = dict(zip(self.spec["outputs"], values, strict=True))
        self.state = out.pop("next_state", None)
        return {name: value[0] if is_single else value for name, value in out.items()}
