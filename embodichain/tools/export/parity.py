"""Whether an exported policy does what the policy does. Legend: N environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.vec_env import step_with
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.tools.export.formats import Run
from embodichain.tools.export.module import DeployedPolicy
from embodichain.utils.observations import select_entries

TOLERANCE = 1e-5


class ParityError(RuntimeError):
    """An exported policy does something else than the policy."""


@dataclass(frozen=True)
class Step:
    """A step of N environments, as the policy took it.

    Attributes:
        inputs: what is given to the exported policy, by name, [N, ...] each; without the memory.
        action: the policy's, clipped as the environment does, [N, A], or a chunk [N, H, A].
        begins: which environments begin an episode with it, [N] bool.
    """

    inputs: dict[str, np.ndarray]
    action: np.ndarray
    begins: np.ndarray


@torch.no_grad()
def record_steps(
    env: EmbodiedEnv, policy: Policy, device: torch.device, entries: Sequence[str], count: int, seed: int
) -> list[Step]:
    """Play with a policy's most likely actions, and keep at least ``count`` observations with what it did.

    Args:
        entries: of the observation, to keep.
        count: observations, over all environments.
    """
    obs, _ = env.reset(seed=seed)
    state = torch.zeros(env.num_envs, policy.state_size, device=device) if policy.state_size else None
    begins = np.ones(env.num_envs, dtype=bool)
    low, high = env.single_action_space.low, env.single_action_space.high
    act = step_with(env, policy.chunk_length)
    steps: list[Step] = []
    while len(steps) * env.num_envs < count:
        chosen = policy.get_action(policy_input(policy, obs, state, device), deterministic=True)
        kept = select_entries(obs, entries)
        inputs = {name: kept[name].cpu().numpy().copy() for name in entries}
        steps.append(Step(inputs, np.clip(chosen["action"].cpu().numpy(), low, high), begins))
        obs, _, terminated, truncated, _ = act(chosen["action"].to(env.device))
        done = terminated | truncated
        begins = done.cpu().numpy()
        if state is not None:
            state = chosen["next_state"].masked_fill(done.to(device).unsqueeze(-1), 0.0)
    return steps


def check_parity(run: Run, module: DeployedPolicy, steps: Sequence[Step]) -> float:
    """Play recorded steps again with an exported policy, which keeps its own recurrent state.

    Args:
        steps: from :func:`record_steps`.

    Returns:
        The largest difference between its actions and the policy's.

    Raises:
        ParityError: it is above 1e-5, or not a number.
    """
    largest = 0.0
    num_envs = len(steps[0].action)
    memory: dict[str, np.ndarray] = {}
    if module.memory is not None:
        memory[module.memory] = np.zeros((num_envs, *module.inputs[module.memory][0]), dtype=np.float32)
    for i, step in enumerate(steps):
        memory = {name: np.where(step.begins[:, None], np.float32(0), state) for name, state in memory.items()}
        given = {
            name: value.astype(str(module.inputs[name][1]).removeprefix("torch."))
            for name, value in step.inputs.items()
        }
        out = run(given | memory)
        if module.memory is not None:
            memory[module.memory] = out["next_state"]
        difference = float(np.abs(out["action"] - step.action).max())
        if not difference <= TOLERANCE:
            raise ParityError(
                f"step {i} of {len(steps)}: the exported policy's action differs from the policy's by "
                f"{difference:.3g}, allowed are {TOLERANCE:g}"
            )
        largest = max(largest, difference)
    return largest
