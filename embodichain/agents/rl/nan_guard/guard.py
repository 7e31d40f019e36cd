"""NaN guard of a training: non-finite updates, outliers of observations, and physics that becomes invalid.

Legend: N envs, T rollout steps, n diverged envs, O flattened observation size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer import num_env_steps
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy, RunningNormalizer
from embodichain.agents.rl.models.normalizer import CLIP
from embodichain.agents.rl.nan_guard.bundle import save_bundle, space_from_data
from embodichain.agents.rl.nan_guard.nonfinite import find_origin, parameters_are_finite
from embodichain.utils import logger
from embodichain.utils.observations import entry_of_column
from embodichain.utils.state import freeze, generators_state

MAX_BUNDLES = 3  # of each kind
_FEW = 8


class NonFiniteError(RuntimeError):
    """A training cannot continue, because what it computes is not finite."""


class Guards:
    """Counts non-finite updates and divergences; warns once when they begin, and writes a bundle then.

    Args:
        folder: of the bundles; created with the first one.
        max_skipped_updates: updates in a row without a single gradient step that end the training.
        context: entries that every bundle has.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        algorithm: BaseAlgorithm,
        max_skipped_updates: int,
        context: Mapping[str, Any],
    ) -> None:
        self._folder = folder
        self._policy = policy
        self._algorithm = algorithm
        self._max_skipped_updates = max_skipped_updates
        self._context = context
        self._generators: dict[str, Any] = {}
        self._num_bundles = {"update": 0, "divergence": 0}
        self._last_bundle: Path | None = None  # of an update
        self._skipped_in_a_row = 0
        self._was_skipping = False
        self._was_spoiling = False
        self._was_diverging = False
        self._had_outliers = False

    def begin_update(self) -> None:
        """Record the state of the random generators before an update."""
        self._generators = freeze(generators_state())

    def end_warm_up(self) -> None:
        """Check the input normaliser's statistics of the steps before the first iteration."""
        self._check_outliers(0)

    def end_iteration(
        self, rollout: TensorDict, before: Mapping[str, Any], metrics: Mapping[str, float], step: int
    ) -> dict[str, float]:
        """Check an iteration.

        Args:
            before: the states of ``policy`` and ``algorithm`` before the update.

        Returns:
            ``train/skipped_steps`` and ``charts/diverged_episodes`` of the iteration, the latter of all ranks.

        Raises:
            NonFiniteError: there were no gradient steps for too long, or the parameters are not finite.
        """
        self._check_outliers(step)
        num_diverged = int(get_process_group().sum(torch.tensor(self._check_physics(rollout, step))))
        counts = self._algorithm.take_step_counts()
        asked, skipped = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        broken = not parameters_are_finite(self._policy)
        # What a replay buffer has stored spoils later updates, too.
        stays = self._algorithm.learns_from == "replay"
        spoils = stays and find_origin(rollout) is not None
        if broken or (skipped and not self._was_skipping) or (spoils and not self._was_spoiling):
            self._report_update(rollout, before, metrics, step, asked, skipped, broken)
        self._was_skipping = skipped > 0 or (stays and self._was_skipping)
        self._was_spoiling = spoils
        is_stuck = any(calls == misses for calls, misses in counts)
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if is_stuck else 0
        if broken:
            raise NonFiniteError(
                f"step {step}: the update made the policy's parameters NaN or infinite: "
                f"{_describe_break(asked > skipped, metrics)}. {self._replay_hint()}"
            )
        if self._skipped_in_a_row >= self._max_skipped_updates:
            raise NonFiniteError(
                f"step {step}: {self._skipped_in_a_row} updates in a row without a gradient step, since loss or "
                f"gradient was not finite (trainer.max_skipped_updates). {self._replay_hint()}"
            )
        return {"train/skipped_steps": float(skipped), "charts/diverged_episodes": float(num_diverged)}

    def _report_update(
        self,
        rollout: TensorDict,
        before: Mapping[str, Any],
        metrics: Mapping[str, float],
        step: int,
        asked: int,
        skipped: int,
        broken: bool,
    ) -> None:
        content = {
            **self._context,
            "policy": before["policy"],
            "algorithm": before["algorithm"],
            "generators": self._generators,
            "progress": self._algorithm.progress,
            "device": str(self._algorithm.device),
            "rollout": rollout.exclude("origin", "info", "state_before"),
            "figures": dict(metrics),
            "asked": asked,
            "skipped": skipped,
        }
        path = self._write("update", step, content)
        self._last_bundle = path or self._last_bundle
        if not broken:
            origin = _describe_origin(rollout, metrics)
            warning = f"{skipped} of {asked} gradient steps skipped: loss or gradient not finite{origin}"
            if origin and self._algorithm.learns_from == "replay":
                warning += "; the steps that draw it from the replay buffer will be skipped, too"
            logger.log_warning(f"step {step}: {warning}. {self._replay_hint()}")

    def _check_outliers(self, step: int) -> None:
        """Warn of an observation that the input normaliser has clipped."""
        normalizers = (part for part in self._policy.modules() if isinstance(part, RunningNormalizer))
        found = next((part.outliers for part in normalizers if part.outliers is not None), None)
        if found is not None and not self._had_outliers:
            *where, column = found.index
            logger.log_warning(
                f"step {step}: {self._column(column)} was {found.value:.4g} in environment "
                f"{where[0]}, where {found.mean:.4g} ± {found.std:.2g} was expected; {found.count} such "
                f"number{'s' if found.count > 1 else ''} in this rollout. The input normaliser takes "
                f"{'them' if found.count > 1 else 'it'} as {CLIP:g} std from the mean, so that the entry stays "
                "readable; mend what computes it"
            )
        self._had_outliers = found is not None

    def _check_physics(self, rollout: TensorDict, step: int) -> int:
        """Return how many episodes ended by divergence."""
        count, record = find_divergences(rollout)
        num_steps = num_env_steps(rollout)
        is_diverging = count > MAX_DIVERGENCE_RATE * num_steps
        if is_diverging and not self._was_diverging:
            path = self._write("divergence", step, {**self._context, **record})
            ids = record["env_ids"].tolist()
            logger.log_warning(
                f"step {step}: physics became invalid in {count} of {num_steps} environment steps, in environments "
                f"{_few(ids)}: more than {MAX_DIVERGENCE_RATE:g} a step{self._observed(record)}. Their last states and "
                f"actions: {path or 'not written'}"
            )
        self._was_diverging = is_diverging
        return count

    def _observed(self, record: Mapping[str, Tensor]) -> str:
        """Return which entry of the observations before divergences was not finite first; "" if all were."""
        invalid = (~record["obs"].isfinite()).flatten(0, 1).any(dim=0).nonzero().squeeze(1)
        if not len(invalid):
            return ""
        return f"; before, the observation was not finite: {self._column(int(invalid[0]))}"

    def _column(self, column: int) -> str:
        """Return a column of the flat observation with the name of its entry."""
        space = self._context.get("spaces", {}).get("observation")
        entry = entry_of_column(space_from_data(space), column) if space else ""
        return f"obs[{column}]{f' ({entry})' if entry else ''}"

    def _write(self, kind: str, step: int, content: Mapping[str, Any]) -> Path | None:
        if self._num_bundles[kind] >= MAX_BUNDLES:
            return None
        try:
            path = save_bundle(self._folder, kind, step, content)
        except OSError as error:
            logger.log_warning(f"{self._folder}: a bundle cannot be written: {error.strerror}")
            return None
        self._num_bundles[kind] += 1
        return path

    def _replay_hint(self) -> str:
        if self._last_bundle is None:
            return "There is no bundle of it"
        return f"'embodichain replay {self._last_bundle}' shows where it began"


def _describe_break(has_stepped: bool, metrics: Mapping[str, float]) -> str:
    """Return the reason of non-finite parameters; ``gradient_step`` makes a step only with finite gradients."""
    if not has_stepped:
        return "its algorithm descends a gradient that is not finite, which gradient_step would have skipped"
    rate = metrics.get("train/learning_rate")
    of = "" if rate is None else f" of {rate:g}"
    return f"gradients were finite and the steps too large: the learning rate{of} is too high"


def _describe_origin(rollout: TensorDict, metrics: Mapping[str, float]) -> str:
    """Return the non-finite fields of a rollout for a warning; "" if all are finite."""
    origin = find_origin(rollout)
    if origin is None:
        return ""
    terms = [name for name, value in metrics.items() if name.startswith("rewards/") and not math.isfinite(value)]
    return f" ({origin.field} not finite in environments {_few(origin.envs)}" + "".join(f", {t}" for t in terms) + ")"


def _few(ids: list[int]) -> str:
    return f"{ids[:_FEW]}{'...' if len(ids) > _FEW else ''}"


MAX_DIVERGENCE_RATE = 1e-3  # divergences per environment step of an iteration above which a run warns
WINDOW = 10  # steps before a divergence that are recorded


def find_divergences(rollout: TensorDict) -> tuple[int, dict[str, Tensor]]:
    """Return the number of divergences in a rollout [N, T+1], and a record of the n environments that diverged.

    The record has ``env_ids`` [n] (numbered through the env sets), ``count`` [n], the ``slot`` [n] of the rollout in
    which each diverged last, the simulation's state before that step, [n, ...] by name, and ``obs`` [n, WINDOW, O] and
    ``action`` [n, WINDOW, ...] of the steps up to that one: the last ``window`` [n] are of this rollout, others 0.
    """
    diverged = rollout.get(("info", "diverged"), None)
    if diverged is None:
        return 0, {}
    diverged = diverged[:, :-1]
    count = diverged.sum(dim=1)
    total = int(count.sum())
    if not total:
        return 0, {}
    rows = count.nonzero().squeeze(1)
    steps = torch.arange(diverged.shape[1], device=diverged.device)
    slot = torch.where(diverged, steps, -1).amax(dim=1)[rows]
    states = rollout.get("state_before", None)
    record = {"env_ids": rows, "count": count[rows], "slot": slot}
    record |= {} if states is None else {str(name): value[rows, 0] for name, value in states.items()}
    record["window"] = (slot + 1).clamp(max=WINDOW)
    slots = slot.unsqueeze(1) - torch.arange(WINDOW - 1, -1, -1, device=rows.device)  # [n, WINDOW]
    for name in ("obs", "action"):
        values = rollout[name][rows.unsqueeze(1), slots.clamp(min=0)]
        before = (slots < 0).reshape(*slots.shape, *[1] * (values.dim() - slots.dim()))
        record[name] = values.masked_fill(before, 0.0)
    if "origin" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
        record["env_ids"] = rows + rollout["origin"].env_set * rollout.batch_size[0]
    return total, record
