"""Searches for hyperparameters: trains with many settings, and reports the best."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np
import torch

from embodichain.agents.rl.build import build_task
from embodichain.agents.rl.distributed.stop import InterruptedTraining, signals_to
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.lab.gym.wrappers.gymnasium_env import GymnasiumEnv
from embodichain.tools.agents import RandomAgent
from embodichain.tools.compare import IN_TRAINING, final_score, never_logged
from embodichain.tools.report.run_data import read_run
from embodichain.tools.search_space import Parameter, plain_values, read_parameter
from embodichain.tools.statistics import interquartile_mean
from embodichain.utils import ConfigError, logger
from embodichain.utils.extras import install_extra
from embodichain.utils.parent import child_variables
from embodichain.utils.printing import printing_may_fail
from embodichain.utils.system import forward_signal

_OF_A_TRAINING = {
    "trainer.seed": "--seeds says how many seeds a trial has",
    "trainer.exp_name": "--out names the study's folder",
}
"""Settings that a sweep gives each training, and what to use instead."""


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
    """Run the search; return all trials and the best as plain data.

    Args:
        config: path of the training config; ``overrides`` hold in all trainings.
        parameters: the settings that are searched, as texts: ``path=low:high`` and the like.
        out: folder of the study; None: ``sweeps/<exp_name>``.
        allowed_imports: prefixes of modules that the config may name.
        trials: number to run, ``jobs`` at a time, each of ``seeds`` trainings.
        metric: to maximise, by its last value in a training.

    Raises:
        ConfigError: the config or a parameter is wrong, the folder has another search, trainings do not log the metric,
            or the extra ``sweep`` is not installed.
        InterruptedTraining: a signal ended it.
    """
    searched = [read_parameter(text) for text in parameters]
    _check_paths([parameter.path for parameter in searched], overrides)
    with logger.without_repeats():  # the config is read three times
        run = load_run_config(config, overrides, allowed_imports)
        _check_searched(config, overrides, searched, allowed_imports)
    name = run.trainer.exp_name
    if metric.startswith("eval/") and run.eval_env is None:
        others = " or ".join(IN_TRAINING.values())
        raise ConfigError(f"--metric {metric}: trainer.enable_eval is false; take {others}")
    folder = out or Path("sweeps") / name
    study, trainings = _open_study(folder, name), Trainings()
    asked: dict[str, Any] = {"CONFIG": config, "overrides": sorted(overrides), "--param": sorted(parameters)}
    asked |= {"--metric": metric, "--seeds": seeds, "settings with the digest": _digest(run)}
    study_id = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=2).hexdigest()  # of sweeps in one folder
    if not _check_same(study, folder, asked):
        _check_metric(run, metric)

    def train(number: int, values: dict[str, Any]) -> float:
        chosen = [*overrides, *(f"{path}={json.dumps(value)}" for path, value in values.items())]
        scores = []
        for seed in range(1, seeds + 1):
            run_name = f"{name[:65]}_sweep_{study_id}_{number:04d}_{seed}"
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


def _check_paths(searched: Sequence[str], overrides: Sequence[str]) -> None:
    """Raise ConfigError if a setting is searched twice, or is one that each training of a sweep has of its own."""
    for path in searched:
        if searched.count(path) > 1:
            raise ConfigError(f"--param: {path} is there {searched.count(path)} times")
    for path in (*searched, *(text.partition("=")[0] for text in overrides)):
        if path in _OF_A_TRAINING:
            raise ConfigError(f"{path}: each training of a sweep has its own; {_OF_A_TRAINING[path]}")


def _digest(run: RunConfig) -> str:
    """Return a digest of what is learned, without the device."""
    settings: dict[str, Any] = json.loads(json.dumps(run.resolved))
    for block in (settings["trainer"], settings["algorithm"].get("cfg", {})):
        block.pop("device", None)
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()


def _check_searched(
    config: str, overrides: Sequence[str], searched: Sequence[Parameter], allowed_imports: Sequence[str]
) -> None:
    """Raise ConfigError if neither the first nor the last values of all parameters give a config that can be trained.

    If one of the two does not, that is a warning: values may be refused alone or together, and those trials fail.
    """
    problems = []
    for end in (0, -1):
        values = [f"{parameter.path}={json.dumps(parameter.ends[end])}" for parameter in searched]
        try:
            load_run_config(config, [*overrides, *values], allowed_imports)
        except ConfigError as error:
            problems.append(error)
    if len(problems) == 2:
        raise ConfigError(f"--param: {problems[0]}")
    for problem in problems:
        logger.log_warning(f"--param: trials with these values fail: {problem}")


def _check_metric(run: RunConfig, metric: str) -> None:
    """Play an episode with random actions; raise ConfigError if it shows that the trainings will not log the metric.

    Without evaluations, whose episodes have a time limit, the first training shows it.
    """
    shown = "eval/success_rate" if metric == IN_TRAINING["eval/success_rate"] else metric
    if run.eval_env is None or not shown.startswith("eval/"):
        return
    with closing(build_task(run.env_id, run.eval_env.for_evaluation({}, 1).without_records())) as env:
        evaluator = Evaluator(env, 1, run.eval_env.seed, torch.device("cpu"), Path())
        found = evaluator.run(RandomAgent(env.single_action_space), "").scalars()
    if shown not in found and shown == "eval/success_rate" and isinstance(env, GymnasiumEnv):
        logger.log_warning(
            f"--metric {metric}: an episode with random actions did not say whether it is a success; where "
            f"'{run.env_id}' never says it, take --metric eval/avg_reward"
        )
    elif shown not in found:
        raise ConfigError(f"--metric: tried in an episode with random actions: {never_logged(metric, found)}")


def _check_same(study: Any, folder: Path, asked: dict[str, Any]) -> bool:
    """Return whether a study has values; raise ConfigError if they are of another search than it is asked for.

    A study without values is given what is searched.
    """
    if all(trial.value is None for trial in study.trials):
        study.set_user_attr("search", asked)
        return False
    stored = study.user_attrs.get("search", {})
    for part, value in asked.items():
        if stored.get(part) != value:
            raise ConfigError(
                f"{folder}: has the trials of another search: {part} {_shown(stored.get(part))}, here {_shown(value)}. "
                "Choose another folder with --out, or delete this one"
            )
    return True


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value) or "none"
    return "unknown" if value is None else str(value)


def search(
    study: Any, parameters: Sequence[Parameter], train: Callable[[int, dict[str, Any]], float], trials: int, jobs: int
) -> None:
    """Run ``trials`` trials, ``jobs`` at a time; report failed ones to the study and continue.

    What a trial tries follows from its number and the trials before it, so that a continued study does not repeat them.
    """
    running: dict[Future[float], Any] = {}
    left = trials
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while left or running:
                while left and len(running) < jobs:
                    study.sampler = _sampler(len(study.trials) + 1)
                    trial = study.ask()
                    values = {parameter.path: parameter.suggest(trial) for parameter in parameters}
                    running[pool.submit(train, trial.number, values)] = trial
                    left -= 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    _tell(study, running.pop(future), future)
        except KeyboardInterrupt:
            # The trainings have received the signal too: the pool waits for them.
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
    """Train in a separate process; return the last value of the metric."""
    command = [sys.executable, "-m", "embodichain.agents.rl.train", "--config", config, *overrides]
    command += [argument for prefix in prefixes for argument in ("--allow-import", prefix)]
    with log.open("w", encoding="utf-8") as output:
        code = trainings.run(command, output)
    if code != 0:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise TrialFailedError(f"exit code {code}: {''.join(last)} (see {log})")
    return final_score(read_run(max(Path("outputs").glob(f"{run_name}_*"))), metric)


def _open_study(folder: Path, name: str) -> Any:
    try:
        import optuna  # noqa: PLC0415 (an optional extra)
        from optuna.storages import JournalStorage  # noqa: PLC0415
        from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"sweep: the package optuna is not installed: {install_extra('sweep')}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        storage = JournalStorage(JournalFileBackend(str(folder / "study.jsonl")))
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror}") from error


def _sampler(seed: int) -> Any:
    import optuna  # noqa: PLC0415 (an optional extra)

    return optuna.samplers.TPESampler(seed=seed)


def _failed() -> Any:
    import optuna  # noqa: PLC0415 (an optional extra)

    return optuna.trial.TrialState.FAIL


class TrialFailedError(RuntimeError):
    """A training of a trial did not finish."""


class Trainings:
    """The training processes of a sweep. It forwards signals to them, and starts no more after one."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._changing = threading.Lock()
        self._received: int | None = None

    def run(self, command: Sequence[str], output: IO[Any]) -> int:
        """Run a command that ends with this process; return its exit code.

        Raises:
            TrialFailedError: a signal has ended the sweep.
        """
        with self._changing:
            if self._received is not None:
                raise TrialFailedError("the sweep has been interrupted")
            # A new session: Ctrl-C then reaches it once, forwarded by us.
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | child_variables(),
                start_new_session=True,
            )
            self._running.add(process)
            if self._received is not None:  # received since the check above
                forward_signal(process, self._received)
        code = process.wait()
        with self._changing:
            self._running.remove(process)
        return code

    def taking_signals(self) -> AbstractContextManager[None]:
        """Return a context in which a signal that ends trainings raises InterruptedTraining."""
        return signals_to(self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        # Without the lock, which another thread holds while it starts a process.
        self._received = number
        for process in tuple(self._running):
            forward_signal(process, number)
        raise InterruptedTraining(number)


def format_sweep(result: dict[str, Any], config: str, overrides: Sequence[str], allow_import: Sequence[str]) -> str:
    """Return the result of ``sweep`` for the screen; ``allow_import`` are the prefixes of the command line."""
    done = sorted((t for t in result["trials"] if t["value"] is not None), key=lambda t: -t["value"])
    failed = len(result["trials"]) - len(done)
    if result["best"] is None:
        return f"all {failed} trials failed\nstudy    {result['study']}"
    lines = [f"{result['metric']} of {len(done)} trials ({failed} failed), the best first", ""]
    lines += [
        f"  {t['value']:8.4g}  "
        + "  ".join(f"{path.rpartition('.')[2]} {value}" for path, value in t["params"].items())
        for t in done[:10]
    ]
    chosen = [f"{path}={json.dumps(value)}" for path, value in result["best"]["params"].items()]
    options = [text for prefix in allow_import for text in ("--allow-import", prefix)]
    confirm = shlex.join(["embodichain", "train", config, *overrides, *chosen, "trainer.seed=101", *options])
    lines += ["", "confirm the best on seeds that were not used to choose it:", f"  {confirm}"]
    return "\n".join([*lines, "", f"study    {result['study']}"])
