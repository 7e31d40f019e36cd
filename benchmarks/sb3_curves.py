"""PPO's learning curves compared with Stable-Baselines3's PPO: same environment and hyperparameters, several seeds.

pip install stable-baselines3
python -m benchmarks.sb3_curves configs/agents/rl/basic/cart_pole/train_config_quickstart.json --eval-every 2
python -m benchmarks.sb3_curves configs/agents/rl/push_cube/train_config_quickstart.json
python -m benchmarks.sb3_curves configs/agents/rl/gymnasium/acrobot_v1/train_config_ppo.json --eval-every 50

Every ``--eval-every`` iterations both are evaluated on the same 200 fixed episodes, without exploration. Printed are
the median and the range over the seeds; the last line is JSON. Each training is a separate process with one
thread, so that ``--jobs 2`` of them can run side by side. Times are of the training alone, without evaluations; in a
Gymnasium environment Stable-Baselines3 has its own vector environment, elsewhere ours.

Remaining differences: Stable-Baselines3 normalises advantages over each minibatch (ours too, if the config says so)
and no returns, updates its observation normalizer at every step of a rollout instead of after it, and bootstraps a
truncated step inside the reward.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks.curves import Curve, Point, run_child, train_ours
from embodichain.agents.rl.build import build_envs
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.vec_env import knows_success

LEARNERS = ("ours", "sb3")
EVAL_EPISODES = 200


def run_one(config: str, learner: str, seed: int, every: int, overrides: Sequence[str]) -> None:
    """Train once, printing the curve's points."""
    torch.set_num_threads(1)
    run = load_run_config(config, ["trainer.enable_eval=true", "trainer.events={}", f"trainer.seed={seed}", *overrides])
    torch.manual_seed(seed)
    env, eval_env = build_envs(run)
    assert eval_env is not None
    results = {"return": "avg_reward"} | ({"success": "success_rate"} if knows_success(eval_env) else {})
    curve = Curve(eval_env, EVAL_EPISODES, results)
    if learner == "sb3":
        from benchmarks import sb3_learners  # noqa: PLC0415 (only this half needs Stable-Baselines3)

        sb3_learners.train(run, env, curve, every)
    else:
        train_ours(run, env, curve, f"{every} it", run.trainer.iterations * run.trainer.buffer_size * env.num_envs)


def spawn(args: argparse.Namespace, learner: str, seed: int) -> list[Point]:
    """Run one training in a separate process, and return its curve."""
    arguments = [args.config, "--one", learner, "--seeds", str(seed)]
    arguments += ["--eval-every", str(args.eval_every), *(f"--override={o}" for o in args.override)]
    points = run_child("benchmarks.sb3_curves", arguments)
    print(f"{learner:5} seed {seed}: {' '.join(f'{p[headline(p)]:.3f}' for p in points)}", flush=True)
    return points


def headline(point: Point) -> str:
    """Return the name of the result by which a task is judged."""
    return "success" if "success" in point else "return"


def main() -> None:
    """Read the command line, train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="training config of a PPO with an actor-critic of two MLPs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--eval-every", type=int, default=10, metavar="ITERATIONS")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=LEARNERS)
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, one core each")
    parser.add_argument("--override", action="append", default=[], metavar="key=value")
    parser.add_argument("--one", choices=LEARNERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(args.config, args.one, args.seeds[0], args.eval_every, args.override)
        return

    trainer = load_run_config(args.config, args.override).trainer
    if trainer.iterations % args.eval_every:
        parser.error(f"--eval-every {args.eval_every}: must divide trainer.iterations, {trainer.iterations}")
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {(o, s): pool.submit(spawn, args, o, s) for s in args.seeds for o in args.learners}
        curves = {o: [futures[o, s].result() for s in args.seeds] for o in args.learners}
    key = headline(curves[args.learners[0]][0][0])
    print(f"\n{'steps':>10}" + "".join(f"{f'{learner} {key}':>36}{'time':>8}" for learner in curves))
    for i, point in enumerate(curves[args.learners[0]][0]):
        line = f"{point['step']:>10,}"
        for runs in curves.values():
            values = [points[i][key] for points in runs]
            text = f"{statistics.median(values):,.3f}  ({min(values):,.3f} to {max(values):,.3f})"
            line += f"{text:>36}{statistics.median(points[i]['seconds'] for points in runs):>6.1f} s"
        print(line)
    print(json.dumps({"config": args.config, "overrides": args.override, "seeds": args.seeds, "curves": curves}))


if __name__ == "__main__":
    main()
