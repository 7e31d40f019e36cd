"""PPO's learning curves compared with Stable-Baselines3's PPO: same environment and hyperparameters, several seeds.

pip install stable-baselines3
python -m benchmarks.sb3_curves configs/agents/rl/basic/cart_pole/train_config_quickstart.json --eval-every 2
python -m benchmarks.sb3_curves configs/agents/rl/push_cube/train_config_quickstart.json

Every ``--eval-every`` iterations both are evaluated on the same 200 fixed episodes, without exploration. The plot shows
the median and the range of the seeds; the last line printed is JSON. Each training is a separate process with one
thread, so that ``--jobs 2`` of them can run side by side: the comparison is of learning over steps, not over time.

Remaining differences: Stable-Baselines3 normalises advantages over each minibatch, updates its observation normalizer
at every step of a rollout instead of after it, and bootstraps a truncated step inside the reward.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.curves import Curve, Point, plot_runs, run_child, train_ours
from embodichain.agents.rl.build import build_envs
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.utils import to_dict

LEARNERS = ("ours", "sb3")
EVAL_SEED = 1_000_004
EVAL_EPISODES = 200


def train_sb3(run: RunConfig, env: Any, curve: Curve) -> None:
    """Train with Stable-Baselines3's PPO at the same hyperparameters."""
    from benchmarks import sb3_learners  # noqa: PLC0415 (only this half of the comparison needs it)
    from embodichain.ext.gymnasium.sb3 import SB3VecEnv  # noqa: PLC0415

    cfg, policy = run.trainer, run.resolved["policy"]
    venv = sb3_learners.normalized(SB3VecEnv(env), policy)
    model = sb3_learners.make_ppo(venv, policy, to_dict(run.algorithm), cfg.buffer_size, cfg.seed)
    steps = cfg.iterations * cfg.buffer_size * env.num_envs
    model.learn(steps, callback=sb3_learners.AfterIteration(curve.after))


def run_one(config: str, learner: str, seed: int, every: int, overrides: Sequence[str]) -> None:
    """Train once, printing the curve's points."""
    torch.set_num_threads(1)
    run = load_run_config(config, ["trainer.enable_eval=true", "trainer.events={}", f"trainer.seed={seed}", *overrides])
    torch.manual_seed(seed)
    env, eval_env = build_envs(run)
    assert eval_env is not None
    train = {"ours": train_ours, "sb3": train_sb3}[learner]
    evaluator = Evaluator(eval_env, EVAL_EPISODES, EVAL_SEED, torch.device("cpu"), Path("unused"))
    steps, results = run.trainer.buffer_size * env.num_envs, {"success": "success_rate", "return": "avg_reward"}
    train(run, env, Curve(evaluator, every, steps, results))


def spawn(args: argparse.Namespace, learner: str, seed: int) -> list[Point]:
    """Run one training in a separate process, and return its curve."""
    arguments = [args.config, "--one", learner, "--seeds", str(seed)]
    arguments += ["--eval-every", str(args.eval_every), *(f"--override={o}" for o in args.override)]
    points = run_child("benchmarks.sb3_curves", arguments)
    print(f"{learner:5} seed {seed}: {' '.join(format(p['success'], '4.0%') for p in points)}", flush=True)
    return points


def draw(curves: dict[str, list[list[Point]]], picture: Path, title: str) -> None:
    """Plot median and range of success and return over environment steps."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    figure.suptitle(title)
    for axis, key in zip(axes, ("return", "success"), strict=True):
        for learner, runs in curves.items():
            plot_runs(axis, runs, key, learner)
        axis.set(xlabel="environment steps", ylabel=f"{key} (evaluation)")
        axis.grid(alpha=0.3)
        axis.legend()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Read the command line, train, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="training config of a PPO with an actor-critic of two MLPs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--eval-every", type=int, default=10, metavar="ITERATIONS")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, one core each")
    parser.add_argument("--override", action="append", default=[], metavar="key=value")
    parser.add_argument("--picture", type=Path, help="plot to write, png (default: outputs/sb3_curves_<exp_name>.png)")
    parser.add_argument("--one", choices=LEARNERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(args.config, args.one, args.seeds[0], args.eval_every, args.override)
        return

    trainer = load_run_config(args.config, args.override).trainer
    if trainer.iterations % args.eval_every:
        parser.error(f"--eval-every {args.eval_every}: must divide trainer.iterations, {trainer.iterations}")
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {(o, s): pool.submit(spawn, args, o, s) for s in args.seeds for o in LEARNERS}
        curves = {o: [futures[o, s].result() for s in args.seeds] for o in LEARNERS}
    picture = args.picture or Path("outputs") / f"sb3_curves_{trainer.exp_name}.png"
    draw(curves, picture, trainer.exp_name)

    print(f"\n{'steps':>10}" + "".join(f"{learner + ' success':>30}" for learner in LEARNERS))
    table = []
    for i, point in enumerate(curves["ours"][0]):
        row: dict[str, Any] = {"step": point["step"]}
        line = f"{point['step']:>10,}"
        for learner in LEARNERS:
            values = [points[i]["success"] for points in curves[learner]]
            row[learner] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            line += f"{f'{statistics.median(values):.1%}  ({min(values):.1%}-{max(values):.1%})':>30}"
        print(line)
        table.append(row)
    result = {"benchmark": "sb3_curves", "config": args.config, "seeds": args.seeds, "curve": table}
    print(f"plot: {picture}")
    print(json.dumps(result | {"all": curves}))


if __name__ == "__main__":
    main()
