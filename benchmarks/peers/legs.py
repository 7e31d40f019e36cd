"""A quadruped learns to walk: this library and UniLab, and the bare physics and mjbatch, compared in one run.

    python3.11 -m venv ../unilab && ../unilab/bin/pip install "unilab[mujoco]==1.5.2"     # with torch for CPUs
    python3.11 -m venv ../mjbatch && ../mjbatch/bin/pip install mjbatch==0.1.4
    python -m benchmarks.peers.legs --unilab ../unilab/bin/python --mjbatch ../mjbatch/bin/python --budget 600

Both peers need environments of their own, since each requires another MuJoCo. The trainings run one after another on
all cores, each as its users start it: our command with the config, but without evaluations, and
``train --algo ppo --task go2_joystick_flat --sim mujoco``. Each is stopped after ``--budget`` seconds of wall time, its
start included. Then some of the checkpoints that it has written are evaluated: 200 episodes of 10 s, each with one
command, drawn uniformly from UniLab's ranges, in the library's own environment; ``walking.py`` defines the errors and a
fall. The goal is reached at the first of two evaluated checkpoints in a row that meet it.

The physics rows step UniLab's Go2 (without its meshes) with 4 substeps of 5 ms: see ``physics.py``. The last line is
JSON. The machine has to be quiet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.peers.walking import COMMANDS, EPISODES, GOAL, Motion, measure, time_to_goal
from benchmarks.peers.worker import ROOT
from embodichain.agents.rl.build import OpenRun, open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import load_policy_state, policy_input
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.device import torch_threads

CONFIG = ROOT / "configs/agents/rl/go2_flat/train_config_quickstart.json"
COMMAND = "base_velocity"
EVAL_SEED = 1_000_004
STOP_SECONDS = 60.0  # until a training that was told to stop is killed
LAST_SECOND = 1.0  # of a budget: what is written in it may be incomplete

Point = dict[str, float]
"""``seconds`` of training, and what ``walking.measure`` returns."""
Checkpoints = list[tuple[float, Path]]
"""Each with the seconds from the training's start to its writing."""
Curves = dict[str, dict[int, list[Point]]]
"""Of each learner and seed."""
Evaluate = Callable[[Sequence[Path]], list[Point]]
"""Evaluates checkpoints."""
OURS, UNILAB = "this library", "UniLab"


class OurWalker:
    """A run's evaluation environment and policy."""

    def __init__(self, run: OpenRun) -> None:
        self._run = run
        self._env = cast(EmbodiedEnv, run.env)
        self.dt = self._env.step_dt

    def load(self, checkpoint: Path) -> None:
        """Use the policy of a checkpoint."""
        load_policy_state(self._run.policy, find_run(str(checkpoint)).content["policy"], str(checkpoint))

    def reset(self) -> Tensor:
        """Begin the same episodes each time."""
        self._obs, _ = self._env.reset(seed=EVAL_SEED)
        return self._env.command_manager.get_command(COMMAND).clone()

    def step(self) -> Motion:
        """Make one control step."""
        given = policy_input(self._run.policy, self._obs, None, self._run.device)
        action = self._run.policy.get_action(given, deterministic=True)["action"]
        self._obs, _, terminated, truncated, _ = self._env.step(action)
        base = self._env.robot.base
        velocity = torch.cat((base.linear_velocity()[:, :2], base.angular_velocity()[:, 2:]), dim=1)
        return Motion(velocity, -base.projected_gravity()[:, 2], base.get()[:, 2], terminated | truncated)


def fixed_commands() -> list[str]:
    """Return the overrides of our config for the evaluation: UniLab's commands, and no time limit."""
    place = f"env.commands.{COMMAND}"
    ranges = [f"{place}.params.{name}={list(values)}" for name, values in COMMANDS.items()]
    rest = [f"{place}.resampling_time=[1000,1000]", f"{place}.params.standing_share=0", f"{place}.params.heading=null"]
    return [*ranges, *rest, "max_episode_steps=1000000", "trainer.events={}"]


@torch.no_grad()
def evaluate_ours(checkpoints: Sequence[Path]) -> list[Point]:
    """Return what ``measure`` returns for each checkpoint."""
    points = []
    # One thread, as in our own evaluations: torch's idle workers would take the physics' cores.
    with open_run(find_run(str(checkpoints[0])), EPISODES, overrides=fixed_commands()) as run, torch_threads(1):
        walker = OurWalker(run)
        for checkpoint in checkpoints:
            walker.load(checkpoint)
            points.append(measure(walker))
    return points


def train_ours(config: Path, overrides: Sequence[str], seed: int, folder: Path, budget: float) -> Checkpoints:
    """Train with our command; returns the checkpoints."""
    quiet = ["trainer.enable_eval=false", "trainer.events={}", 'trainer.save_freq="10 it"', f"trainer.seed={seed}"]
    command = [sys.executable, "-m", "embodichain.agents.rl.train", "--config", str(config.resolve())]
    return train([*command, *quiet, *overrides], folder, budget, "outputs/*/checkpoints/*_step_*.pt")


def train_unilab(python: str, model: Path, seed: int, folder: Path, budget: float) -> Checkpoints:
    """Train with UniLab's command at its defaults, but beyond its 151 iterations; returns the checkpoints."""
    command = [str(Path(python).with_name("train")), "--algo", "ppo", "--task", "go2_joystick_flat", "--sim", "mujoco"]
    command += [f"env.scene.model_file={model}", f"algo.seed={seed}", "training.no_play=true", "training.device=cpu"]
    command += ["algo.max_iterations=100000", "algo.save_interval=5", f"training.log_dir={folder / 'log'}"]
    return train(command, folder, budget, "log/model_*.pt")


def train(command: Sequence[str], folder: Path, budget: float, pattern: str) -> Checkpoints:
    """Train for ``budget`` seconds, or until the training ends by itself, with ``folder`` as the working directory.

    Args:
        pattern: pattern of the checkpoints in the folder.

    Returns:
        The checkpoints that were written in that time, in its order.

    Raises:
        SystemExit: the training failed, or wrote none.
    """
    log = folder / "log.txt"
    start = time.time()
    with log.open("w", encoding="utf-8") as output:
        # A session of its own: UniLab's command starts another process, which has to be stopped with it.
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=output, stderr=output, start_new_session=True
        )
        failed = not stop_after(process, budget)
    found = written_in(folder, pattern, start, budget - LAST_SECOND)
    if failed or not found:
        raise SystemExit(f"{' '.join(command)}\nfailed:\n{log.read_text(encoding='utf-8')[-4000:]}")
    return found


def written_in(folder: Path, pattern: str, start: float, seconds: float) -> Checkpoints:
    """Return the folder's files that were written within ``seconds`` after ``start`` (s since the epoch), in order."""
    times = sorted((path.stat().st_mtime - start, path) for path in folder.glob(pattern))
    return [(after, path) for after, path in times if after <= seconds]


def stop_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """End a process and its children after that time; returns False if it has failed before."""
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return True


def environment() -> dict[str, str]:
    """Return the variables of a training: each has the OpenMP settings of its users."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    return own | {"PYTHONPATH": str(ROOT)}


def call(python: str, *arguments: object) -> list[str]:
    """Run one of our scripts with a peer's Python, and return the lines of its output."""
    done = subprocess.run(
        [python, *map(str, arguments)], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{python} {' '.join(map(str, arguments))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout.splitlines()


def evaluate_unilab(python: str, model: Path, checkpoints: Sequence[Path]) -> list[Point]:
    """Return what ``measure`` returns for each checkpoint."""
    lines = call(python, "-m", "benchmarks.peers.with_unilab", "evaluate", model, *checkpoints)
    return [json.loads(line.removeprefix("point ")) for line in lines if line.startswith("point ")]


def spread(checkpoints: Checkpoints, count: int) -> Checkpoints:
    """Return at most ``count`` of the checkpoints at equal distances, the last one included."""
    if len(checkpoints) <= count:
        return checkpoints
    last = len(checkpoints) - 1
    return [checkpoints[last - round(last * k / count)] for k in reversed(range(count))]


def physics_rates(pythons: Sequence[str], model: Path) -> list[dict[str, Any]]:
    """Return the median rate of each Python's engine, and those of three rounds, in which the engines take turns."""
    command = ["-m", "benchmarks.peers.physics", model, len(os.sched_getaffinity(0))]
    rounds = [[json.loads(call(python, *command)[-1]) for python in pythons] for _ in range(3)]
    columns = [[row["rate"] for row in rows] for rows in zip(*rounds, strict=True)]
    return [row | {"rate": statistics.median(c), "rates": c} for row, c in zip(rounds[0], columns, strict=True)]


def print_results(curves: Curves, rates: Sequence[dict[str, Any]]) -> None:
    """Print the curves of each seed, the times to the goal, and the rates; nothing is left out where we lose."""
    print(f"{'':14}{'seed':>5}{'train s':>9}{'error xy m/s':>14}{'error yaw rad/s':>17}{'falls':>8}")
    for learner, runs in curves.items():
        for seed, points in runs.items():
            for p in points:
                line = f"{learner:14}{seed:>5}{p['seconds']:>9.0f}{p['error_xy']:>14.3f}{p['error_yaw']:>17.3f}"
                print(f"{line}{p['falls']:>8.1%}")
    print(f"\nseconds to {GOAL['error_xy']} m/s, {GOAL['error_yaw']} rad/s and {GOAL['falls']:.0%} falls")
    medians = {learner: statistics.median(map(time_to_goal, runs.values())) for learner, runs in curves.items()}
    for learner, seconds in medians.items():
        each = ", ".join(f"{time_to_goal(points):.0f}" for points in curves[learner].values())
        print(f"{learner:14}{seconds:>9.0f}   (each seed: {each})")
    if min(medians.values()) < math.inf:
        print(f"UniLab's time by ours: {medians[UNILAB] / medians[OURS]:.2f}")
    print("\nphysics alone, control steps/s")
    for row in rates:
        each = ", ".join(f"{rate:,.0f}" for rate in row["rates"])
        print(f"{row['engine']:14}{row['rate']:>9,.0f}   (MuJoCo {row['mujoco']}; rounds: {each})")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", type=Path, default=CONFIG, help="our training config")
    parser.add_argument("--override", action="append", default=[], metavar="key=value", help="of our training config")
    parser.add_argument("--unilab", required=True, metavar="PYTHON", help="of an environment with UniLab")
    parser.add_argument("--mjbatch", metavar="PYTHON", help="of an environment with mjbatch (unset: no such row)")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of each training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--points", type=int, default=16, help="most checkpoints of a training that are evaluated")
    args = parser.parse_args()
    for path in filter(None, (args.unilab, args.mjbatch)):
        if not Path(path).is_file():
            parser.error(f"{path}: no such file, must be the Python of an environment with the peer")
    curves: Curves = {OURS: {}, UNILAB: {}}
    with tempfile.TemporaryDirectory() as root:
        call(args.unilab, "-m", "benchmarks.peers.with_unilab", "model", root)
        model = Path(root) / "scene_flat.xml"
        trainings = {
            OURS: partial(train_ours, args.config, args.override),
            UNILAB: partial(train_unilab, args.unilab, model),
        }
        evaluations: dict[str, Evaluate] = {OURS: evaluate_ours, UNILAB: partial(evaluate_unilab, args.unilab, model)}
        for seed in args.seeds:
            for learner, runs in curves.items():
                folder = Path(root) / f"{learner} {seed}"
                folder.mkdir()
                chosen = spread(trainings[learner](seed, folder, args.budget), args.points)
                points = evaluations[learner]([path for _, path in chosen])
                runs[seed] = [{"seconds": seconds} | p for (seconds, _), p in zip(chosen, points, strict=True)]
                print(f"seed {seed}, {learner}: {json.dumps(runs[seed][-1])}", file=sys.stderr, flush=True)
        rates = physics_rates([sys.executable, args.unilab, *filter(None, [args.mjbatch])], model)
    print_results(curves, rates)
    print(
        json.dumps(
            {
                "benchmark": "peers.legs",
                "config": str(args.config),
                "overrides": args.override,
                "budget": args.budget,
                "goal": GOAL,
                "curves": curves,
                "physics": rates,
                "processors": len(os.sched_getaffinity(0)),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
