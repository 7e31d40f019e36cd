"""Search a quickstart's hyperparameters for the highest success within a given training time.

    python benchmarks/search.py --seconds 45 --trials 30
    python benchmarks/search.py --config configs/agents/rl/reach/train_config_quickstart.json --seconds 60 --trials 30

Optuna proposes rollouts, networks, activations, epochs, minibatches, learning rates, discounts and the rest of
``propose`` (by the tree of Parzen estimators, as ``embodichain sweep`` does). Each proposal is trained for a few
iterations to measure the time of one, and then for as many as fit into ``--seconds``, with the learning rate's schedule
over all of them. Its value is the success of the final evaluation. Every trial has another seed, so that the search
does not overfit one: check the best proposals with several seeds in ``benchmarks/time_to_success.py``. Keep the machine
quiet meanwhile. The study is stored in ``--out``, from which a stopped search continues. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import optuna
from child_training import train
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

CONFIG = "configs/agents/rl/push_cube/train_config_quickstart.json"
PROBE = 6  # iterations, of which the first one is not timed


def propose(trial: optuna.Trial) -> list[str]:
    """Return one point of the search space, as overrides of the config."""
    rollout = trial.suggest_categorical("rollout", ["64x128", "128x64", "128x128", "256x32", "64x64"])
    num_envs, num_steps = rollout.split("x")
    units = trial.suggest_categorical("units", [64, 128])
    activation = trial.suggest_categorical("activation", ["elu", "tanh", "relu"])
    algorithm = {
        "n_epochs": trial.suggest_int("n_epochs", 3, 10),
        "batch_size": trial.suggest_categorical("batch_size", [512, 1024, 2048]),
        "learning_rate": trial.suggest_float("learning_rate", 5e-4, 5e-3, log=True),
        "gamma": trial.suggest_float("gamma", 0.93, 0.985),
        "gae_lambda": trial.suggest_float("gae_lambda", 0.85, 0.98),
        "clip_coef": trial.suggest_float("clip_coef", 0.12, 0.35),
        "max_grad_norm": trial.suggest_categorical("max_grad_norm", [0.5, 1.0, 5.0]),
        "vf_coef": trial.suggest_categorical("vf_coef", [0.25, 0.5, 1.0]),
    }
    networks = {
        f"policy.{name}.network_cfg": {"hidden_sizes": [units] * 2, "activation": activation}
        for name in ("actor", "critic")
    }
    return [
        f"trainer.num_envs={num_envs}",
        f"trainer.buffer_size={num_steps}",
        f"policy.init_log_std={trial.suggest_float('init_log_std', -1.2, 0.0)}",
        *(f"{place}.{key}={json.dumps(value)}" for place, block in networks.items() for key, value in block.items()),
        *(f"algorithm.cfg.{key}={value}" for key, value in algorithm.items()),
    ]


def main() -> None:
    """Search, and print each trial and the best ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("search.log"))
    args = parser.parse_args()

    def success(trial: optuna.Trial) -> float:
        overrides = [*propose(trial), f"trainer.seed={trial.number + 1}"]
        lines, _ = train(args.config, [*overrides, f"trainer.iterations={PROBE}", "trainer.enable_eval=false"])
        parts = ("collect", "update", "statistics")
        seconds = statistics.median(sum(line[f"time/{part}_seconds"] for part in parts) for line in lines[1:])
        iterations = max(1, int(args.seconds / seconds))
        last = [f"trainer.{name}_freq={iterations} it" for name in ("eval", "save")]
        _, summary = train(args.config, [*overrides, f"trainer.iterations={iterations}", *last])
        print(
            f"{trial.number:>4}{summary['success_rate']:>8.1%}{summary['train_seconds']:>7.1f} s  {trial.params}",
            flush=True,
        )
        return float(summary["success_rate"])

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(n_startup_trials=12, multivariate=True, seed=0)
    storage = JournalStorage(JournalFileBackend(str(args.out)))
    study = optuna.create_study(
        study_name="search", storage=storage, sampler=sampler, direction="maximize", load_if_exists=True
    )
    study.optimize(success, n_trials=args.trials)
    best = sorted(study.trials, key=lambda trial: -(trial.value or 0.0))[:5]
    print(json.dumps({"config": args.config, "best": [{"success": t.value, **t.params} for t in best]}))


if __name__ == "__main__":
    main()
