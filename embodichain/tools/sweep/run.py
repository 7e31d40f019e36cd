"""Searches for settings: trains with many, and says which did best."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.run_config import load_run_config
from embodichain.tools.compare.groups import final_score
from embodichain.tools.compare.statistics import interquartile_mean
from embodichain.tools.report.run_data import read_run
from embodichain.tools.sweep.parameters import Parameter, plain_values, read_parameter
from embodichain.tools.sweep.trainings import Trainings, TrialFailedError
from embodichain.utils import ConfigError
from embodichain.utils.printing import printing_may_fail


def sweep(
    config: str,
    overrides: Sequence[str],
    parameters: Sequence[str],
    out: Path | None,
    allowed_imports: Sequence[str],
    *,
    trials: int,
    seeds: int,
    jobs: int,
    metric: str,
) -> dict[str, Any]:
    """Search, and return the trials and the best of them as plain data.

    Args:
        config: path of the training config; ``overrides`` hold in all trainings.
        parameters: the settings that are searched, as texts: ``path=low:high`` and the like.
        out: folder of the study; None: ``sweeps/<exp_name>``.
        allowed_imports: prefixes of modules that the config may name.
        trials: how many, ``jobs`` at a time, each of ``seeds`` trainings.
        metric: to be as high as can be, by its last value in a training.

    Raises:
        ConfigError: the config or a parameter is wrong, or the extra ``sweep`` is not installed.
        InterruptedTraining: a signal ended it.
    """
    searched = [read_parameter(text) for text in parameters]
    run = load_run_config(config, overrides, allowed_imports)
    name = run.trainer.exp_name
    if metric.startswith("eval/") and run.eval_env is None:
        raise ConfigError(f"--metric {metric}: trainer.enable_eval is false; take charts/success_rate_avg_100")
    folder = out or Path("sweeps") / name
    study, trainings = _open_study(folder, name), Trainings()

    def train(number: int, values: dict[str, Any]) -> float:
        chosen = [*overrides, *(f"{path}={json.dumps(value)}" for path, value in values.items())]
        scores = []
        for seed in range(1, seeds + 1):
            run_name = f"{name[:70]}_sweep_{number:04d}_{seed}"
            own = [*chosen, f"trainer.exp_name={run_name}", f"trainer.seed={seed}"]
            log = folder / f"{run_name}.log"
            scores.append(_train(trainings, config, own, allowed_imports, log, run_name, metric))
        return float(interquartile_mean(np.array(scores)))

    with printing_may_fail(), trainings.taking_signals():
        search(study, searched, train, trials, jobs)
    done = [trial for trial in study.trials if trial.value is not None]
    best = max(done, key=lambda trial: trial.value, default=None)
    return {
        "metric": metric,
        "trials": [{"number": t.number, "value": t.value, "params": plain_values(t.params)} for t in study.trials],
        "best": None if best is None else {"value": best.value, "params": plain_values(best.params)},
        "study": str(folder),
    }


def search(
    study: Any, parameters: Sequence[Parameter], train: Callable[[int, dict[str, Any]], float], trials: int, jobs: int
) -> None:
    """Let a study ask for so many trials, some at a time; where a training fails it is told, and the search goes on."""
    running: dict[Future[float], Any] = {}
    left = trials
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while left or running:
                while left and len(running) < jobs:
                    trial = study.ask()
                    values = {parameter.path: parameter.suggest(trial) for parameter in parameters}
                    running[pool.submit(train, trial.number, values)] = trial
                    left -= 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    _tell(study, running.pop(future), future)
        except KeyboardInterrupt:
            # The trainings have the signal, too: the pool waits for them.
            for future in running:
                future.cancel()
            raise


def _tell(study: Any, trial: Any, future: Future[float]) -> None:
    try:
        value: float | None = future.result()
    except TrialFailedError as error:
        value = None
        print(f"trial {trial.number}: failed: {error}", file=sys.stderr, flush=True)
    else:
        print(f"trial {trial.number}: {value:.4g}  {plain_values(trial.params)}", file=sys.stderr, flush=True)
    study.tell(trial.number, value, state=None if value is not None else _failed())


def _train(
    trainings: Trainings,
    config: str,
    overrides: list[str],
    prefixes: Sequence[str],
    log: Path,
    run_name: str,
    metric: str,
) -> float:
    """Train in a process of its own; return the last value of a metric."""
    command = [sys.executable, "-m", "embodichain.agents.rl.train", "--config", config, *overrides]
    command += [argument for prefix in prefixes for argument in ("--allow-import", prefix)]
    with log.open("w", encoding="utf-8") as output:
        code = trainings.run(command, output)
    if code != 0:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise TrialFailedError(f"exit code {code}: {''.join(last)} (see {log})")
    folder = max(Path("outputs").glob(f"{run_name}_*"))
    try:
        return final_score(read_run(folder), metric)
    except ConfigError as error:
        raise TrialFailedError(str(error)) from error


def _open_study(folder: Path, name: str) -> Any:
    try:
        import optuna  # noqa: PLC0415 (an optional extra)
        from optuna.storages import JournalStorage  # noqa: PLC0415
        from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "sweep: the package optuna is not installed: pip install 'embodichain-mujoco[sweep]'"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        storage = JournalStorage(JournalFileBackend(str(folder / "study.jsonl")))
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=1),
        )
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror}") from error


def _failed() -> Any:
    import optuna  # noqa: PLC0415 (an optional extra)

    return optuna.trial.TrialState.FAIL
