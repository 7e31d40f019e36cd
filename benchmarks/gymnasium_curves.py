"""Learning curves of PPO and SAC on Gymnasium's MuJoCo tasks, and Stable-Baselines3's at equal hyperparameters.

pip install stable-baselines3
python -m benchmarks.gymnasium_curves --algorithms ppo --steps 300000 --seeds 1 2 3 --jobs 2
python -m benchmarks.gymnasium_curves --algorithms sac --steps 50000 --tasks Hopper-v5 HalfCheetah-v5 --seeds 1 2 3
python -m benchmarks.gymnasium_curves --algorithms sac_fewer --steps 1000000 --seeds 1 2 3
python -m benchmarks.gymnasium_curves --algorithms sac_scaled --learners ours --steps 1000000 --tasks HalfCheetah-v5
python -m benchmarks.gymnasium_curves --seeds

Each training is a separate process with one thread. When it has ended, its curve is appended to ``--results``, and is
not computed again; curves of other settings (``SETTINGS``) are kept and not read. Without a seed nothing is trained. In
the end all curves with the present settings that have ``--steps`` are plotted up to there and compared there, and of
tasks where a learner has none as long all that there are, at the last step that they share.

Each point of a curve is the mean return of the same 20 episodes, without exploration. Equal are: the environments and
their number, networks, initialisation, Adam, all hyperparameters, the normalisation of observations (PPO's), the
clipping of actions (PPO's) and their squashing (SAC's), and bootstrapping from the final observation at the time limit.
Rewards are not scaled, but for ``sac_scaled``. From the same parameters and samples both make the same updates, up to
rounding and the items below (tests/benchmarks/test_sb3_learners.py). What is left:

- seeds of the training's episodes: ours has a seed for each, Stable-Baselines3 one for each environment.
- PPO: our observation normalizer begins with 16 steps of each environment that are not counted, and changes after each
  iteration, Stable-Baselines3's at each step. Our log-std is kept in [-5, 2]. Our normalised advantages
  are 0.6 % larger: they have a std of 1 over the 80 samples, Stable-Baselines3's have an unbiased one of 1.
- SAC: before the first update our untrained policy acts, Stable-Baselines3's actions are uniform, and its first
  update is 50 steps later (sac_fewer: at the same step). Its log-std has no gradient beyond its range, ours one that
  leads back.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.curves import COLORS, NAMES, Curve, Point, plot_runs, run_child, train_ours
from embodichain.agents.rl.build import build_envs
from embodichain.agents.rl.run_config import load_run_config
from embodichain.ext.gymnasium.gymnasium_env import PREFIX, GymnasiumEnv, GymnasiumEnvCfg
from embodichain.ext.report.compare import compare_groups

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
LEARNERS = ("ours", "sb3")
EVAL_EPISODES = 20
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/gymnasium_curves.jsonl"
PICTURE = ROOT / "docs/media/gymnasium_curves.png"

Record = dict[str, Any]
"""A training: ``algorithm``, ``task``, ``learner``, ``seed``, ``settings`` and the curve's ``points``."""


def _network(hidden_sizes: list[int], activation: str, orthogonal_init: bool) -> dict[str, Any]:
    cfg = {"hidden_sizes": hidden_sizes, "activation": activation, "orthogonal_init": orthogonal_init}
    return {"type": "mlp", "network_cfg": cfg}


def _settings(
    num_envs: int, buffer_size: int, policy: dict[str, Any], network: dict[str, Any], cfg: dict[str, Any]
) -> dict[str, Any]:
    policy = policy | {"actor": network, "critic": network}
    return {"num_envs": num_envs, "buffer_size": buffer_size, "policy": policy, "algorithm": cfg}


# Stable-Baselines3's defaults, but for 8 environments x 250 steps instead of 2048 of one, and minibatches of 80.
PPO = _settings(
    num_envs=8,
    buffer_size=250,
    policy={"name": "actor_critic", "normalize_obs": True},
    network=_network([64, 64], "tanh", orthogonal_init=True),
    cfg={
        "learning_rate": 3e-4,
        "lr_schedule": "constant",
        "n_epochs": 10,
        "batch_size": 80,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_coef": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "normalize_advantages": "minibatch",
    },
)
# Stable-Baselines3's defaults, but for 128 units instead of 256, 1,000 steps before the first update instead of 100,
# and 50 steps and updates at a time.
SAC = _settings(
    num_envs=1,
    buffer_size=50,
    policy={
        "name": "soft_actor_critic",
        "normalize_obs": False,
        "log_std_range": [-20.0, 2.0],
        "slope_floor": 1e-6,
    },
    network=_network([128, 128], "relu", orthogonal_init=False),
    cfg={
        "learning_rate": 3e-4,
        "batch_size": 256,
        "gamma": 0.99,
        "tau": 0.005,
        "replay_capacity": 1_000_000,
        "learning_starts": 1_000,
        "updates_per_step": 1.0,
    },
)
# 16 environments and an update for each step of them all, 5 at a time: for curves of as many steps as PPO's.
SAC_FEWER = SAC | {"num_envs": 16, "buffer_size": 5, "algorithm": SAC["algorithm"] | {"updates_per_step": 1 / 16}}
# Rewards in units of the returns' std: no learner of theirs is equal.
SAC_SCALED = SAC | {"algorithm": SAC["algorithm"] | {"normalize_returns": True}}
SETTINGS = {"ppo": PPO, "sac": SAC, "sac_fewer": SAC_FEWER, "sac_scaled": SAC_SCALED}
"""By name, which begins with the algorithm's name."""
STEPS_OF_A_POINT = {"ppo": 50_000, "sac": 5_000, "sac_fewer": 50_000, "sac_scaled": 5_000}
TITLES = {"ppo": "PPO", "sac": "SAC", "sac_fewer": "SAC, fewer updates", "sac_scaled": "SAC, scaled rewards"}


def _algorithm(name: str) -> str:
    return name.partition("_")[0]


def train_config(algorithm: str, task: str, seed: int, iterations: int) -> dict[str, Any]:
    """Return the training config of this library."""
    settings = SETTINGS[algorithm]
    return {
        "trainer": {
            "seed": seed,
            "device": "cpu",
            "gym_config": {"id": PREFIX + task},
            "num_envs": settings["num_envs"],
            "buffer_size": settings["buffer_size"],
            "iterations": iterations,
        },
        "policy": settings["policy"],
        "algorithm": {"name": _algorithm(algorithm), "cfg": {"normalize_returns": False} | settings["algorithm"]},
    }


def run_one(algorithm: str, task: str, learner: str, seed: int, steps: int) -> None:
    """Train once in this process, printing the curve's points."""
    torch.set_num_threads(1)
    size = SETTINGS[algorithm]["num_envs"] * SETTINGS[algorithm]["buffer_size"]
    env = GymnasiumEnv(GymnasiumEnvCfg(id=PREFIX + task, num_envs=EVAL_EPISODES))
    curve = Curve(env, EVAL_EPISODES, {"return": "avg_reward", "length": "avg_length"})
    every = STEPS_OF_A_POINT[algorithm] // size
    run = load_run_config(train_config(algorithm, task, seed, steps // size))
    if learner == "sb3":
        from benchmarks import sb3_learners  # noqa: PLC0415 (only this half needs Stable-Baselines3)

        sb3_learners.train(run, None, curve, every)
        return
    torch.manual_seed(seed)
    train_ours(run, build_envs(run)[0], curve, f"{every} it", steps // size * size)


def read_records(path: Path) -> list[Record]:
    """Return the records with the present settings; of equal trainings only the longest."""
    longest: dict[tuple[Any, ...], Record] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for record in map(json.loads, lines):
        key = tuple(record[name] for name in ("algorithm", "task", "learner", "seed"))
        known = longest.get(key)
        is_longer = known is None or len(record["points"]) > len(known["points"])
        if record["settings"] == SETTINGS[record["algorithm"]] and is_longer:
            longest[key] = record
    return list(longest.values())


def train_missing(args: argparse.Namespace) -> None:
    """Run the trainings that were asked for and are not stored, and store each when it has ended."""
    stored = read_records(args.results)

    def is_stored(job: tuple[str, str, str, int]) -> bool:
        names = ("algorithm", "task", "learner", "seed")
        found = [record for record in stored if tuple(record[name] for name in names) == job]
        return any(record["points"][-1]["step"] >= args.steps for record in found)

    def train(job: tuple[str, str, str, int]) -> None:
        algorithm, task, learner, seed = job
        points = run_child("benchmarks.gymnasium_curves", ["--one", *map(str, job), "--steps", str(args.steps)])
        record = {"algorithm": algorithm, "task": task, "learner": learner, "seed": seed}
        with args.results.open("a") as file:
            file.write(json.dumps(record | {"settings": SETTINGS[algorithm], "points": points}) + "\n")
        print(f"{algorithm} {task} {learner:5} seed {seed}: {' '.join(str(p['return']) for p in points)}", flush=True)

    jobs = [
        (algorithm, task, learner, seed)
        for seed in args.seeds
        for algorithm in args.algorithms
        for task in args.tasks
        for learner in args.learners
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(train, (job for job in jobs if not is_stored(job))))


def curves_of(records: Sequence[Record], algorithm: str, task: str, steps: int) -> dict[str, list[list[Point]]]:
    """Return the curves of a task by learner, up to ``steps``; shorter curves are left out.

    Where a learner has curves and none as long, all are cut to the last step that they share.
    """
    found = [record for record in records if (record["algorithm"], record["task"]) == (algorithm, task)]
    whole = [record for record in found if record["points"][-1]["step"] >= steps]
    if {record["learner"] for record in whole} == {record["learner"] for record in found}:
        found = whole
    end = min((steps, *(record["points"][-1]["step"] for record in found)))
    curves = {
        learner: [[p for p in r["points"] if p["step"] <= end] for r in found if r["learner"] == learner]
        for learner in LEARNERS
    }
    return {learner: runs for learner, runs in curves.items() if runs}


def last_returns(curves: Mapping[str, list[list[Point]]]) -> dict[str, np.ndarray]:
    """Return the returns at the end of each learner's curves, [R]."""
    return {learner: np.array([points[-1]["return"] for points in runs]) for learner, runs in curves.items()}


def compare(algorithm: str, task: str, curves: Mapping[str, list[list[Point]]]) -> dict[str, Any] | None:
    """Print a row of the table, and return how the learners compare at the end; None with only one of them."""
    finals = last_returns(curves)
    step = next(iter(curves.values()))[0][-1]["step"]
    row = f"{algorithm:11}{task:15}{step:>10,}"
    for returns in map(finals.get, LEARNERS):
        cell = "" if returns is None else f"{returns.mean():,.0f} ({returns.min():,.0f} to {returns.max():,.0f})"
        row += f"{cell:>30}"
    if len(finals) < len(LEARNERS):
        print(row.rstrip())
        return None
    result = compare_groups(*LEARNERS, {learner: {task: returns} for learner, returns in finals.items()})
    ends = result["interval_95"]  # None of single seeds
    interval = "" if ends is None else f" ({ends[0]:+,.0f} to {ends[1]:+,.0f})"
    print(f"{row}   {result['difference']:+,.0f}{interval}: {result['verdict']}")
    return result


def draw(records: Sequence[Record], steps: int, path: Path) -> None:
    """Plot median and range of the returns over up to ``steps`` environment steps, a row for each algorithm.

    Longer curves than all seeds have are thin lines.
    """
    algorithms = [name for name in SETTINGS if any(record["algorithm"] == name for record in records)]
    figure = Figure(figsize=(12, 3.5 * len(algorithms)), layout="constrained")
    axes = figure.subplots(len(algorithms), len(TASKS), squeeze=False)
    for row, algorithm in zip(axes, algorithms, strict=True):
        for axis, task in zip(row, TASKS, strict=True):
            curves = curves_of(records, algorithm, task, steps)
            for learner, runs in curves.items():
                plot_runs(axis, runs, "return", NAMES[learner], COLORS[learner])
            if not curves:
                axis.set_axis_off()
                continue
            end = next(iter(curves.values()))[0][-1]["step"]
            for record in records:
                points = [p for p in record["points"] if p["step"] <= steps]
                if (record["algorithm"], record["task"]) == (algorithm, task) and points[-1]["step"] > end:
                    label = f"{NAMES[record['learner']]}, seed {record['seed']}"
                    at, returns = zip(*((p["step"], p["return"]) for p in points), strict=True)
                    axis.plot(at, returns, label=label, color=COLORS[record["learner"]], linewidth=0.7)
            axis.set(title=f"{TITLES[algorithm]}, {task}", xlabel="environment steps", ylabel="return (evaluation)")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.3)
            axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Read the command line; train, compare and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=LEARNERS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3], help="none: train nothing")
    parser.add_argument("--steps", type=int, default=300_000, help="of a training, and of the comparison")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, one core each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines, one a training")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        algorithm, task, learner, seed = args.one
        run_one(algorithm, task, learner, int(seed), args.steps)
        return
    for algorithm in args.algorithms:
        if args.steps % STEPS_OF_A_POINT[algorithm]:
            parser.error(f"--steps {args.steps}: {algorithm} takes multiples of {STEPS_OF_A_POINT[algorithm]}")
    train_missing(args)
    records = read_records(args.results)
    print(f"{'':26}{'steps':>10}" + "".join(f"{NAMES[learner]:>30}" for learner in LEARNERS) + "   difference")
    for algorithm in SETTINGS:
        for task in TASKS:
            if curves := curves_of(records, algorithm, task, args.steps):
                compare(algorithm, task, curves)
    draw(records, args.steps, args.picture)
    print(f"plot: {args.picture}")


if __name__ == "__main__":
    main()
