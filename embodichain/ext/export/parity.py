"""Parity of an exported policy with the original. Legend: N environments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodichain.ext.export.formats import Run, Spec, load_runner
from embodichain.ext.export.module import DeployedPolicy
from embodichain.tools.steps import TOLERANCE, ParityError, Step


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
