"""Parity of an exported policy with the original. Legend: N environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from embodichain.agents.rl.build import TaskEnv
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.vec_env import step_with
from embodichain.lab.gym.envs.managers.measurements import Measurement
from embodichain.tools.export.formats import Run, Spec, load_runner
from embodichain.tools.export.module import DeployedPolicy
from embodichain.utils.errors import CommandFailedError
from embodichain.utils.observations import select_entries

TOLERANCE = 1e-5


class ParityError(CommandFailedError):
    """The actions of the exported policy differ from the policy's."""


@dataclass(frozen=True)
class Step:
    """A step of N environments, as the policy took it.

    Attributes:
        inputs: of the exported policy, by name, [N, ...] each; without the hidden state.
        action: the policy's, clipped as the environment does, [N, A], or a chunk [N, H, A].
        begins: environments in which an episode begins with this step, [N] bool.
        measured: raw measurements by name, [N, D] each.
    """

    inputs: dict[str, np.ndarray]
    action: np.ndarray
    begins: np.ndarray
    measured: dict[str, np.ndarray] = field(default_factory=dict)


@torch.no_grad()
def record_steps(
    env: TaskEnv,
    policy: Policy,
    device: torch.device,
    entries: Sequence[str],
    count: int,
    seed: int,
    measurements: Sequence[Measurement] = (),
) -> list[Step]:
    """Record at least ``count`` observations, over all environments, with the policy's deterministic actions.

    Args:
        entries: of the observation, to record.
        measurements: to record beside them.
    """
    obs, _ = env.reset(seed=seed)
    state = torch.zeros(env.num_envs, policy.state_size, device=device) if policy.state_size else None
    begins = np.ones(env.num_envs, dtype=bool)
    low, high = env.single_action_space.low, env.single_action_space.high
    act = step_with(env, policy.chunk_length)
    steps: list[Step] = []
    while len(steps) * env.num_envs < count:
        chosen = policy.get_action(policy_input(policy, obs, state, device), deterministic=True)
        selected = select_entries(obs, entries)
        inputs = {name: selected[name].cpu().numpy().copy() for name in entries}
        measured = {each.name: each.read().cpu().numpy().copy() for each in measurements}
        steps.append(Step(inputs, np.clip(chosen["action"].cpu().numpy(), low, high), begins, measured))
        obs, _, terminated, truncated, _ = act(chosen["action"].to(env.device))
        done = terminated | truncated
        begins = done.cpu().numpy()
        if state is not None:
            state = chosen["next_state"].masked_fill(done.to(device).unsqueeze(-1), 0.0)
    return steps


def check_parity(run: Run, module: DeployedPolicy, steps: Sequence[Step]) -> float:
    """Repeat recorded steps with an exported policy, which carries its own hidden state.

    Args:
        steps: from :func:`record_steps`.

    Returns:
        The largest difference between its actions and the policy's.

    Raises:
        ParityError: it is above 1e-5, or NaN.
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
        spec: what is written beside the policy.
        steps: from :func:`record_steps`, with the measurements, of an environment without simulated noise and delays.

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
