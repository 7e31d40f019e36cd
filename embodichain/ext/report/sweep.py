"""Searches for hyperparameters: trains with many settings that Optuna chooses, and reports the best."""

import argparse
import hashlib
import itertools
import json
import math
import os
import random
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.config.arguments import add_allow_import, add_training_device, all_overrides, allowed_imports
from embodichain.agents.rl.run_config import load_run_config
from embodichain.commands.arguments import CONFIG_HELP, add_json, output_folder, print_result, whole_number
from embodichain.ext.report.compare import final_score, interquartile_mean
from embodichain.tools.run_data import read_run
from embodichain.utils import ConfigError, border, install_extra, system

_MOST_TRIALS = 20  # unless said otherwise, or all settings are lists
_OWN = ("trainer.seed", "trainer.exp_name")  # each training of a sweep has its own


class TrialFailedError(RuntimeError):
    """A training of a trial did not finish."""


class Parameter:
    """A setting to search: ``path=low:high``, ``path=low:high:log`` (logarithmic), or ``path=a,b,c``.

    Attributes:
        choices: its values as JSON; empty: the interval of the other forms, of whole numbers if both ends are.
    """

    def __init__(self, text: str) -> None:
        self.path, _, values = text.partition("=")
        low, *rest = values.split(":")
        listed = _read(f"[{low}]")  # JSON values; otherwise plain words
        choices = listed if isinstance(listed, list) else [_read(value) for value in low.split(",")]
        self.choices = () if rest else tuple(map(json.dumps, choices))
        self._is_log = rest[1:] == ["log"]
        if not (self.path and low) or rest[1 + self._is_log :]:
            raise ConfigError(f"--param '{text}': must be of the form path=low:high, path=low:high:log or path=a,b,c")
        self._ends = [_read(end) for end in (low, rest[0])] if rest else []
        if rest and not (all(isinstance(end, int | float) for end in self._ends) and self._ends[0] < self._ends[1]):
            raise ConfigError(f"--param '{text}': an interval is of two numbers, the lower one first")
        if self._is_log and self._ends[0] <= 0:
            raise ConfigError(f"--param '{text}': a logarithmic interval begins above 0")

    @property
    def first(self) -> str:
        """One of the values, as JSON."""
        return self.choices[0] if self.choices else json.dumps(self._ends[0])

    def suggest(self, trial: Any) -> str:
        """Return a value for an Optuna trial, as JSON."""
        if self.choices:
            return str(trial.suggest_categorical(self.path, self.choices))
        is_whole = all(isinstance(end, int) for end in self._ends)
        suggest = trial.suggest_int if is_whole else trial.suggest_float
        return json.dumps(suggest(self.path, *self._ends, log=self._is_log))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def sweep(
    config: str,
    overrides: Sequence[str],
    parameters: Sequence[str],
    out: Path | None,
    allowed_imports: Sequence[str],
    *,
    trials: int | None,
    seeds: int,
    jobs: int,
    metric: str,
) -> dict[str, Any]:
    """Run the search; return all trials and the best as plain data.

    Args:
        config: path of the training config; ``overrides`` hold in all trainings.
        parameters: the settings that are searched, as texts: ``path=low:high`` and the like.
        out: folder of the database, in which the same search is continued; None: ``sweeps/<exp_name>``.
        allowed_imports: prefixes of modules that the config may name.
        trials: number to run, ``jobs`` at a time, each of ``seeds`` trainings; None: 20, or all combinations where all
            settings are lists.
        metric: metric to maximise, by its last value in a training.
    """
    searched = {parameter.path: parameter for parameter in map(Parameter, parameters)}
    if len(searched) < len(parameters):
        raise ConfigError("--param: each path once")
    for path in (*searched, *(text.partition("=")[0] for text in overrides)):
        if path in _OWN:
            raise ConfigError(f"{path}: each training of a sweep has its own: use --seeds and --out")
    run = load_run_config(config, overrides, allowed_imports)
    first = _as_overrides({path: parameter.first for path, parameter in searched.items()})
    load_run_config(config, [*overrides, *first], allowed_imports)
    name = run.trainer.exp_name
    folder = out or Path("sweeps") / name
    asked = json.dumps([sorted(parameters), metric, seeds, run.resolved], sort_keys=True)
    digest = hashlib.blake2b(asked.encode(), digest_size=4).hexdigest()
    study = _open_study(folder, f"{name}_{digest}")

    is_grid = all(parameter.choices for parameter in searched.values())

    def train(trial: Any) -> float:
        chosen = _as_overrides({path: parameter.suggest(trial) for path, parameter in searched.items()})
        others = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number and t.state.name != "FAIL"]
        if not is_grid and trial.params in [other.params for other in others]:
            raise import_module("optuna").TrialPruned  # the settings of an earlier trial
        scores = []
        for seed in range(1, seeds + 1):
            run_name = f"{name[:60]}_trial{trial.number}_{secrets.token_hex(3)}"
            own = [*overrides, *chosen, f"trainer.exp_name={run_name}", f"trainer.seed={seed}"]
            arguments = ["--config", config, *own, *_options(allowed_imports)]
            try:
                scores.append(score(arguments, folder / f"{run_name}.log", run_name, metric))
            except TrialFailedError as error:
                print(f"trial {trial.number}: failed: {error}", file=sys.stderr, flush=True)
                raise
        value = float(interquartile_mean(np.array(scores)))
        print(f"trial {trial.number}: {value:.4g}  {_plain(trial.params)}", file=sys.stderr, flush=True)
        return value

    if is_grid:
        trials = _enqueue_grid(study, {path: parameter.choices for path, parameter in searched.items()}, trials)
    with border.printing_may_fail():
        study.optimize(train, _MOST_TRIALS if trials is None else trials, n_jobs=jobs, catch=(TrialFailedError,))
    done = [trial for trial in study.trials if trial.value is not None]
    best = max(done, key=lambda trial: trial.value, default=None)
    return {
        "metric": metric,
        "trials": [
            {"number": t.number, "value": t.value, "params": _plain(t.params)}
            for t in study.trials
            if t.state.name not in ("PRUNED", "WAITING")
        ],
        "best": None if best is None else {"value": best.value, "params": _plain(best.params)},
        "study": str(folder),
        "runs": f"outputs/{name[:60]}_trial*",
    }


def score(arguments: Sequence[str], log: Path, run_name: str, metric: str) -> float:
    """Train in a separate process, which ends with this one; return the last value of the metric."""
    command = [sys.executable, "-m", "embodichain.agents.rl.train", *arguments]
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | system.child_variables()) as process,
    ):
        code = process.wait()
    if code != 0:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise TrialFailedError(f"exit code {code}: {''.join(last)} (see {log})")
    value = final_score(read_run(next(Path("outputs").glob(f"{run_name}_*"))), metric)
    if math.isnan(value):
        raise TrialFailedError(f"the last value of '{metric}' is not finite")
    return value


def _enqueue_grid(study: Any, choices: Mapping[str, Sequence[str]], most: int | None) -> int:
    """Enqueue combinations without a value, at most ``most``, in a random order; return the number of trials to run."""
    done = [trial.params for trial in study.trials if trial.state.name == "COMPLETE"]
    waiting = [trial.system_attrs["fixed_params"] for trial in study.trials if trial.state.name == "WAITING"]
    grid = map(dict.fromkeys, choices.values())  # each value once
    combinations = [dict(zip(choices, values, strict=True)) for values in itertools.product(*grid)]
    random.Random(1).shuffle(combinations)
    left = [combination for combination in combinations if combination not in done]
    for combination in left[:most]:
        if combination not in waiting:
            study.enqueue_trial(combination)
    return len(left[:most])


def _open_study(folder: Path, name: str) -> Any:
    try:
        import optuna  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise ConfigError(f"sweep: the package optuna is not installed: {install_extra('sweep')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{folder / 'study.db'}"
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials) + 1)
    return study


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an Optuna trial, by path, as a config has them."""
    return {path: _read(value) if isinstance(value, str) else value for path, value in params.items()}


def _as_overrides(values: Mapping[str, str]) -> list[str]:
    return [f"{path}={value}" for path, value in values.items()]


def _options(allow_import: Sequence[str]) -> list[str]:
    return [text for prefix in allow_import for text in ("--allow-import", prefix)]


def format_sweep(result: dict[str, Any], config: str, overrides: Sequence[str], allow_import: Sequence[str]) -> str:
    """Return the result of ``sweep`` for the screen; ``allow_import`` are the prefixes of the command line."""
    done = sorted((t for t in result["trials"] if t["value"] is not None), key=lambda t: -t["value"])
    failed = len(result["trials"]) - len(done)
    if result["best"] is None:
        return f"all {failed} trials failed\nstudy    {result['study']}"
    lines = [f"{result['metric']} of {len(done)} trials ({failed} failed), the best first", ""]
    for trial in done[:10]:
        values = "  ".join(f"{path} {value}" for path, value in trial["params"].items())
        lines.append(f"  {trial['value']:8.4g}  {values}")
    chosen = _as_overrides({path: json.dumps(value) for path, value in result["best"]["params"].items()})
    command = ["embodichain", "train", config, *overrides, *chosen, "trainer.seed=101", *_options(allow_import)]
    lines += ["", "confirm the best on seeds that were not used to choose it:", f"  {shlex.join(command)}"]
    return "\n".join([*lines, "", f"study    {result['study']}", f"runs     {result['runs']}"])


EXAMPLES = (
    "train_config.json --param algorithm.cfg.learning_rate=1e-4:3e-3:log --param algorithm.cfg.n_epochs=4,8",
    "train_config.json trainer.iterations=40 --param algorithm.cfg.gamma=0.95:0.99 --seeds 3 --jobs 4",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help=CONFIG_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="values in place of the config's")
    parser.add_argument(
        "--param",
        dest="parameters",
        action="append",
        required=True,
        metavar="PATH=VALUES",
        help="a setting to search: low:high, low:high:log, or a,b,c; can be given several times",
    )
    parser.add_argument(
        "--trials", type=whole_number(), metavar="T", help="default: 20; all combinations where all settings are lists"
    )
    parser.add_argument(
        "--seeds", type=whole_number(), default=1, metavar="S", help="trainings of a trial (default: 1)"
    )
    parser.add_argument("--jobs", type=whole_number(), default=1, metavar="J", help="trials at a time (default: 1)")
    parser.add_argument("--metric", default="eval/success_rate", help="to maximise (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=output_folder,
        metavar="FOLDER",
        help="of the study; an existing study is continued (default: sweeps/<name>)",
    )
    add_training_device(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Search and print; return 0, or 1 if no trial finished."""
    overrides = all_overrides(args)
    counts = {"trials": args.trials, "seeds": args.seeds, "jobs": args.jobs}
    result = sweep(
        args.config, overrides, args.parameters, args.out, allowed_imports(args), metric=args.metric, **counts
    )
    print_result(args, result, lambda found: format_sweep(found, args.config, overrides, args.allow_import))
    return int(result["best"] is None)
