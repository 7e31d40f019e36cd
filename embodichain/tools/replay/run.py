"""Repeats the update of a bundle and reports every gradient step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.algo.optim import watching_steps
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.agents.rl.nan_guard.bundle import space_from_data
from embodichain.agents.rl.nan_guard.nonfinite import (
    FieldStats,
    Origin,
    describe_batch,
    describe_rollout,
    find_origin,
    parameters_are_finite,
)
from embodichain.agents.rl.trainer.threads import update_precision, update_threads
from embodichain.tools.replay.report import StepReport, UpdateReport
from embodichain.utils.module_utils import import_allowed_modules
from embodichain.utils.observations import entry_of_column
from embodichain.utils.state import generators_state, load_generators_state
from embodichain.utils.validation import from_dict


def allow_modules(bundle: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Import the modules that the bundle's run imported.

    Raises:
        ConfigError: one of them, or the policy that the bundle names, is not below one of the allowed prefixes.
    """
    modules = bundle["config"]["trainer"].get("import_modules", [])
    import_allowed_modules(modules, allowed, "the run's trainer.import_modules")
    parse_policy_block(bundle["config"]["policy"], allowed)


def describe_divergence(bundle: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return field statistics of each environment's steps before its last divergence."""
    names = [name for name, value in bundle.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]

    def since(name: str, i: int) -> slice:
        return slice(-int(bundle["window"][i]), None) if name in ("obs", "action") else slice(None)

    return [
        {
            "environment": int(env),
            "count": int(bundle["count"][i]),
            "step": int(bundle["slot"][i]),
            "fields": [asdict(FieldStats.of(name, bundle[name][i][since(name, i)])) for name in names],
        }
        for i, env in enumerate(bundle["env_ids"])
    ]


def replay_update(bundle: Mapping[str, Any], device: torch.device | str = "cpu") -> UpdateReport:
    """Rebuild policy and algorithm as before the update, and repeat it; no environment is needed.

    The update of an algorithm with a replay buffer is not repeated: the bundle has the rollout alone.

    Args:
        bundle: from ``load_bundle``, of the kind ``"update"``, with its tensors on ``device``.

    Raises:
        ConfigError: the bundle's policy or algorithm cannot be built here.
    """
    policy, algorithm = _build(bundle, device)
    rollout = bundle["rollout"]
    origin = find_origin(rollout)
    metrics = bundle["figures"].items()
    tensors = {name: value for name, value in policy.state_dict().items() if isinstance(value, torch.Tensor)}
    before = [name for name, value in tensors.items() if not value.isfinite().all()]
    observer = _Observer(policy, algorithm)
    precision = update_precision(bundle["config"]["trainer"]["precision"], algorithm.device)
    is_repeated = algorithm.learns_from == "rollouts"
    if is_repeated:
        with _as_in(bundle, policy), watching_steps(observer.watch), precision:
            algorithm.update(rollout)
    return UpdateReport(
        rollout=describe_rollout(rollout),
        origin=origin,
        entry=_entry(origin, space_from_data(bundle["spaces"]["observation"])),
        parameters=before,
        reward_terms=[name for name, value in metrics if name.startswith("rewards/") and not math.isfinite(value)],
        steps=observer.steps,
        skipped_in_run=bundle["skipped"],
        is_broken=not parameters_are_finite(policy),
        is_repeated=is_repeated,
    )


def _build(bundle: Mapping[str, Any], device: torch.device | str) -> tuple[Policy, BaseAlgorithm]:
    config, made = bundle["config"], {name: space_from_data(data) for name, data in bundle["spaces"].items()}
    observation = made["observation"]
    assert isinstance(observation, spaces.Dict)
    policy = build_policy(config["policy"], made["flat"], made["action"], device, observation_space=observation)
    policy.load_state_dict(bundle["policy"])
    block = config["algorithm"]
    settings = block.get("cfg", {})
    from_dict(get_algo_class(block["name"]).cfg_class, settings, "algorithm.cfg")
    algorithm = build_algo(block["name"], settings, policy, device)
    algorithm.load_state_dict(bundle["algorithm"])
    algorithm.progress = bundle["progress"]
    return policy, algorithm


@contextmanager
def _as_in(bundle: Mapping[str, Any], policy: Policy) -> Iterator[None]:
    """Use the run's number of threads and the states of its random generators inside the block."""
    generators = generators_state()
    load_generators_state(bundle["generators"])
    try:
        with update_threads(policy, bundle["num_threads"]):
            yield
    finally:
        load_generators_state(generators)


class _Observer:
    """Records each gradient step."""

    def __init__(self, policy: Policy, algorithm: BaseAlgorithm) -> None:
        self.steps: list[StepReport] = []
        self._policy = policy
        self._has_skipped = False
        self._batch: TensorDict | None = None
        self._terms: dict[str, torch.Tensor] = {}
        # Batch and terms can be seen if the algorithm has a method loss(batch) -> (loss, terms).
        self._loss: Any = getattr(algorithm, "loss", None)
        if callable(self._loss):
            vars(algorithm)["loss"] = self._observed_loss

    def watch(self, loss: torch.Tensor) -> None:
        """Record a step, after its gradients and before the optimizer."""
        value = loss.item()
        parts = [parameter.grad for parameter in self._policy.parameters() if parameter.grad is not None]
        is_skipped = not bool(torch.nn.utils.get_total_norm(parts).isfinite())
        gradients: dict[str, float] = {}
        for name, parameter in self._policy.named_parameters():
            if parameter.grad is not None:
                share = (~parameter.grad.isfinite()).float().mean().item()
                gradients |= {name: share} if share else {}
        loss_is_finite = math.isfinite(value)
        self.steps.append(
            StepReport(
                index=len(self.steps),
                loss=value,
                terms={name: term.item() for name, term in self._terms.items()},
                gradients=gradients if loss_is_finite else {},
                fields=describe_batch(self._batch) if is_skipped and self._batch is not None else [],
                operation=self._find_operation() if gradients and loss_is_finite and not self._has_skipped else "",
                is_skipped=is_skipped,
            )
        )
        self._has_skipped |= is_skipped

    def _observed_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = self._loss(*args, **kwargs)
        match args, result:
            case (TensorDict() as batch,), (torch.Tensor(), dict() as terms):
                self._batch = batch
                self._terms = {name: term for name, term in terms.items() if isinstance(term, torch.Tensor)}
        return result

    def _find_operation(self) -> str:
        """Return the operation of the loss with a NaN derivative, and its line of code."""
        if self._batch is None:
            return ""
        parameters = [parameter for parameter in self._policy.parameters() if parameter.requires_grad]
        generators = generators_state()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly():
                loss, _ = self._loss(self._batch)
                load_generators_state(generators)
                try:
                    torch.autograd.grad(loss, parameters, allow_unused=True)
                except RuntimeError as error:
                    name = str(error).partition("'")[2].partition("'")[0]
                    lines = [line.strip() for warning in caught for line in str(warning.message).splitlines()]
                    places = [line for line in lines if line.startswith("File ")]
                    return f"{name} ({places[-1]})" if places else name
        return ""


def _entry(origin: Origin | None, space: spaces.Space[Any]) -> str:
    """Return the entry of the observation that the origin is in, "" if none."""
    if origin is None or origin.field != "obs":
        return ""
    return entry_of_column(space, origin.column or 0)
