"""The NaN guard of a training: skipped gradient steps, outliers of observations, diverged physics.

Legend: N envs, T rollout steps; ... any shape.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer.layout import ROLLOUT_FIELDS, num_env_steps
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy, RunningNormalizer
from embodichain.agents.rl.models.normalizer import CLIP
from embodichain.utils import CommandFailedError, logger
from embodichain.utils.observations import entry_columns

MAX_DIVERGENCE_RATE = 1e-3
"""Divergences per environment step of an iteration above which a run warns."""

_FEW = 8
_REAL_AT_THE_END = {field.name for field in ROLLOUT_FIELDS if field.is_real_at_the_end}


class NonFiniteError(CommandFailedError):
    """A training cannot continue, because its numbers are not finite."""


class Origin(NamedTuple):
    """The first non-finite number of a rollout, by time: field, index of the step, and column of the field.

    ``envs`` are all environments where this field is not finite at some step.
    """

    field: str
    step: int
    column: int
    envs: list[int]


def find_origin(rollout: TensorDict) -> Origin | None:
    """Return the first non-finite number of a rollout [N, T+1]; None if all are finite.

    Of several fields at the same step it is the field computed first: an observation before the action that
    follows from it, the action before the reward.
    """
    found: list[Origin] = []
    for key, values in rollout.items(include_nested=True, leaves_only=True):
        if not isinstance(values, Tensor) or not values.is_floating_point():
            continue
        name = "/".join(key) if isinstance(key, tuple) else key
        field = name.partition("/")[0]
        if name.startswith("info/metrics/"):  # NaN where an environment does not have it
            continue
        real = values if field in _REAL_AT_THE_END else values[:, :-1]
        bad = ~real.reshape(*real.shape[:2], -1).isfinite()  # [N, T or T+1, columns]
        if not bad.any():
            continue
        step = int(bad.any(dim=2).any(dim=0).nonzero()[0])
        column = int(bad[:, step].any(dim=0).nonzero()[0])
        envs = bad.any(dim=2).any(dim=1).nonzero().squeeze(1).tolist()
        found.append(Origin(name, step, column, envs))
    order = {field.name: i for i, field in enumerate(ROLLOUT_FIELDS)}
    return min(found, key=lambda each: (each.step, order.get(each.field.partition("/")[0], len(order))), default=None)


def non_finite_entries(module: nn.Module) -> list[str]:
    """Return the names of non-finite parameters, and of buffers with NaN (a mask may have -inf)."""
    bad = [name for name, value in module.named_parameters() if not value.isfinite().all()]
    return bad + [name for name, value in module.named_buffers() if value.isnan().any()]


class NanGuard:
    """Counts skipped gradient steps and divergences, warns once when they begin, and ends a training that is broken.

    Args:
        max_skipped_updates: updates in a row without a single gradient step that end the training.
        space: the environment's observation space, which names the columns of observations.
    """

    def __init__(
        self, policy: Policy, algorithm: BaseAlgorithm, max_skipped_updates: int, space: spaces.Space[Any] | None = None
    ) -> None:
        self._policy = policy
        self._algorithm = algorithm
        self._max_skipped_updates = max_skipped_updates
        self._space = space
        self._skipped_in_a_row = 0
        self._was_skipping = False
        self._was_spoiling = False
        self._was_diverging = False
        self._had_outliers = False

    def end_iteration(self, rollout: TensorDict | None, metrics: Mapping[str, float], step: int) -> dict[str, float]:
        """Check an iteration after ``step`` environment steps, with its rollout [N, T+1], if any, and its metrics.

        Returns:
            ``train/skipped_steps`` and ``charts/diverged_episodes`` of the iteration, the latter of all ranks.
        """
        self.check_outliers(step)
        num_diverged = 0 if rollout is None else self._check_physics(rollout, step)
        counts = self._algorithm.take_step_counts()
        asked, skipped = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        # One host sync.
        if not torch.stack([parameter.detach().isfinite().all() for parameter in self._policy.parameters()]).all():
            rate = f" of {metrics['train/learning_rate']:g}" if "train/learning_rate" in metrics else ""
            raise NonFiniteError(
                f"step {step}: the update made the policy's parameters NaN or infinite: "
                + (
                    f"gradients were finite and the steps too large: the learning rate{rate} is too high"
                    if asked > skipped
                    else "its algorithm descends a gradient that is not finite, which gradient_step would have skipped"
                )
            )
        self._check_steps(rollout, metrics, step, asked, skipped)
        if counts:  # an off-policy algorithm may make no step in an iteration
            is_stuck = any(calls == misses for calls, misses in counts)
            self._skipped_in_a_row = self._skipped_in_a_row + 1 if is_stuck else 0
        if self._skipped_in_a_row >= self._max_skipped_updates:
            raise NonFiniteError(
                f"step {step}: {self._skipped_in_a_row} updates in a row without a gradient step, since loss or "
                f"gradient was not finite{_describe_origin(rollout, metrics)} (trainer.max_skipped_updates)"
            )
        return {"train/skipped_steps": float(skipped), "charts/diverged_episodes": float(num_diverged)}

    def check_outliers(self, step: int) -> None:
        """Warn of an observation that the input normaliser has clipped."""
        normalizers = (part for part in self._policy.modules() if isinstance(part, RunningNormalizer))
        found = next((part.outliers for part in normalizers if part.outliers is not None), None)
        if found is not None and not self._had_outliers:
            *where, column = found.index
            row, source = "environment", "this rollout"
            if self._algorithm.learns_from == "demonstrations":
                row, source = "frame", "the demonstrations"
            logger.log_warning(
                f"step {step}: {self._column(column)} was {found.value:.4g} in {row} "
                f"{where[0]}, where {found.mean:.4g} ± {found.std:.2g} was expected; {found.count} such "
                f"number{'s' if found.count > 1 else ''} in {source}. The input normaliser clips "
                f"{'them' if found.count > 1 else 'it'} to {CLIP:g} std from the mean; check the code that computes "
                "this entry"
            )
        self._had_outliers = found is not None

    def _check_steps(
        self, rollout: TensorDict | None, metrics: Mapping[str, float], step: int, asked: int, skipped: int
    ) -> None:
        """Warn when gradient steps begin to be skipped, or a replay buffer stores values that will skip later ones."""
        stores = self._algorithm.learns_from == "replay"
        spoils = stores and rollout is not None and find_origin(rollout) is not None
        if (skipped and not self._was_skipping) or (spoils and not self._was_spoiling):
            origin = _describe_origin(rollout, metrics)
            later = "; the replay buffer has it now, and the steps that draw it will be skipped, too"
            logger.log_warning(
                f"step {step}: {skipped} of {asked} gradient steps skipped: loss or gradient not finite{origin}"
                f"{later if origin and stores else ''}"
            )
        self._was_skipping = skipped > 0 or (stores and self._was_skipping)
        self._was_spoiling = spoils

    def _check_physics(self, rollout: TensorDict, step: int) -> int:
        """Return the number of diverged episodes of all ranks; warn when a rank's rate becomes too high."""
        diverged = rollout.get(("info", "diverged"), None)
        per_env = torch.zeros(1, dtype=torch.long) if diverged is None else diverged[:, :-1].sum(dim=1)  # [N]
        count, num_steps = int(per_env.sum()), num_env_steps(rollout)
        is_diverging = count > MAX_DIVERGENCE_RATE * num_steps
        if is_diverging and not self._was_diverging:
            origin = find_origin(rollout)
            cause = "" if origin is None or origin.field != "obs" else f"; not finite: {self._column(origin.column)}"
            logger.log_warning(
                f"step {step}: physics became invalid in {count} of {num_steps} environment steps, in environments "
                f"{_few(per_env.nonzero().squeeze(1).tolist())}: more than {MAX_DIVERGENCE_RATE:g} a step{cause}"
            )
        self._was_diverging = is_diverging
        return int(get_process_group().sum(torch.tensor(count)))

    def _column(self, column: int) -> str:
        """Return a column of the flat observation with the name of its entry."""
        columns = entry_columns(self._space) if isinstance(self._space, spaces.Dict) else {}
        entry = next((f" ({name})" for name, part in columns.items() if part.start <= column < part.stop), "")
        return f"obs[{column}]{entry}"


def _describe_origin(rollout: TensorDict | None, metrics: Mapping[str, float]) -> str:
    """Return the non-finite fields of a rollout for a warning; "" if all are finite."""
    origin = None if rollout is None else find_origin(rollout)
    if origin is None:
        return ""
    terms = [name for name, value in metrics.items() if name.startswith("rewards/") and not math.isfinite(value)]
    return f" ({origin.field} not finite in environments {_few(origin.envs)}" + "".join(f", {t}" for t in terms) + ")"


def _few(ids: list[int]) -> str:
    return f"{ids[:_FEW]}{'...' if len(ids) > _FEW else ''}"
