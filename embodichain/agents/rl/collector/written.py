"""Whether environments write into the rollout what they are to write there. Shapes: N envs, T rollout steps."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.vec_env import Step
from embodichain.utils import ConfigError

__all__ = ["checked_steps"]

_FLAGS = ("done", "terminated", "truncated")
_CHECKED = 2  # steps


def checked_steps(step: Step, rollout: TensorDict, name: str) -> Step:
    """Return a ``step`` whose first calls fail where what it returned is not in the rollout afterwards.

    The first slots are filled with what the environment does not write: rewards that are no number, and flags that are
    all True, then all False. So a slot that was not written is told even from rewards of 0.

    Args:
        step: ``VecEnv.step`` or ``StepsChunks.step_chunk``.
        rollout: [N, T+1], shared with the environment; filled from slot 0 on.
        name: of the environment's class, for messages.
    """
    num_checked = min(_CHECKED, rollout.batch_size[1] - 1)
    rollout["reward"][:, :num_checked] = torch.nan
    for flag in _FLAGS:
        rollout[flag][:, :num_checked] = torch.arange(num_checked, device=rollout[flag].device) == 0
    num_done = 0

    def checked(action: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        nonlocal num_done
        results = step(action)
        if num_done < num_checked:
            _, reward, terminated, truncated, _ = results
            returned = {"reward": reward, "done": terminated | truncated}
            returned |= {"terminated": terminated, "truncated": truncated}
            _check(rollout[:, num_done], returned, num_done, name)
            num_done += 1
        return results

    return checked


def _check(slot: TensorDict, returned: dict[str, torch.Tensor], index: int, name: str) -> None:
    wrong = [field for field, values in returned.items() if not _is_same(slot[field], values)]
    if wrong:
        raise ConfigError(
            f"{name}: step returned {', '.join(wrong)} that slot {index} of the rollout does not have: after "
            "set_rollout_buffer(rollout), the k-th step must write reward, done, terminated and truncated into slot k "
            "(see VecEnv in embodichain/agents/rl/vec_env.py)"
        )


def _is_same(written: torch.Tensor, returned: torch.Tensor) -> bool:
    if written.shape != returned.shape:
        return False
    return bool(torch.allclose(written, returned.to(written), rtol=0.0, atol=0.0, equal_nan=True))
