"""Steps of a policy in its environment, recorded for comparison with an exported file. Legend: N environments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.vec_env import TaskEnv, step_with
from embodichain.lab.gym.envs.managers.measurements import Measurement
from embodichain.utils import CommandFailedError
from embodichain.utils.observations import select_entries

TOLERANCE = 1e-5


class ParityError(CommandFailedError):
    """The actions of the exported policy differ from the policy's."""


@dataclass(frozen=True)
class Step:
    """A step of N environments, as the policy took it.

    Attributes:
        inputs: exported policy's inputs by name, [N, ...] each; without the hidden state.
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
    """Record at least ``count`` observations (their ``entries``) and measurements, with deterministic actions."""
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


def format_export(export: Mapping[str, Any]) -> list[str]:
    """Return the lines for the screen about the plain data of an export."""
    lines = [
        f"parity     {export['observations']} observations, actions differ by {export['difference']:.2g} at most",
        f"inputs     {', '.join(export['inputs'])}",
        *([f"measured   {', '.join(export['measurements'])}"] if export["measurements"] else []),
        f"outputs    {', '.join(export['outputs'])}",
    ]
    return [*lines, *(f"written    {file}" for file in export["files"])]
