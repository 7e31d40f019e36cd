"""Speed of an environment's step, as a share of the bare physics' speed.

    python benchmarks/env_step.py
    python benchmarks/env_step.py --task CartPoleRL --num-envs 64 --rounds 10
    python benchmarks/env_step.py --task Go2FlatRL Go2RoughRL G1FlatRL --num-envs 1024 --rounds 6
    python benchmarks/env_step.py --task Go2FlatRL --num-envs 1024 --sensor-models

``env.step`` does everything: action terms, physics, observations, rewards, resets. The bare step is ``Batch.step`` on
the same compiled model, for the same substeps, from the same states and under the same position targets, which are
recorded while the environment steps. The two alternate in rounds, so that a busy machine slows both. With
``--sensor-models``, what a robot with legs measures has noise, a delay and a history, and its actions have a delay.

There are two cases. In ``steady``, as in a training, episodes are spread over their whole length, so that some end and
reset in nearly every step. In ``endless`` there is no time limit, and success does not end an episode. A ratio is (mean
bare step) / (mean env step) of a round; the table shows the median over the rounds. Actions are random. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from mujoco.batch import Batch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.utility import load_json

CONFIGS = Path(__file__).parents[1] / "configs" / "agents" / "rl"
TASKS = {
    "PushCubeRL": "push_cube",
    "CartPoleRL": "basic/cart_pole",
    "Go2FlatRL": "go2_flat",
    "Go2RoughRL": "go2_rough",
    "G1FlatRL": "g1_flat",
}
STATE = ("qpos", "qvel", "ctrl", "qacc_warmstart")
WARM_UP_STEPS = 100
# Of each measured entry; numbers have no influence on the speed.
SENSOR_MODELS = {
    "observation_noise": {"bound": 0.05},
    "observation_delay": {"delay": [0, 2]},
    "observation_history": {"length": 3},
}
MEASURED = ("base/", "joints/")  # how the entries' names begin
ACTION_DELAY = [0, 2]


@dataclass
class Times:
    """Seconds of single steps, one list per round."""

    env: list[list[float]] = field(default_factory=list)
    bare: list[list[float]] = field(default_factory=list)
    resets: int = 0

    def row(self) -> dict[str, float]:
        """Return the medians over the rounds: milliseconds and ratios of the mean step."""
        env, bare = ([statistics.mean(times) for times in rounds] for rounds in (self.env, self.bare))
        ratios = sorted(b / e for b, e in zip(bare, env, strict=True))
        steps = sum(map(len, self.env))
        return {
            "bare_ms": 1e3 * statistics.median(bare),
            "env_ms": 1e3 * statistics.median(env),
            "resets_per_step": self.resets / steps,
            "ratio": statistics.median(ratios),
            "ratio_low": ratios[len(ratios) // 4],
            "ratio_high": ratios[-1 - len(ratios) // 4],
        }


class Case:
    """One environment, and a bare batch on its model; ``now`` returns the time, s."""

    def __init__(
        self,
        task: str,
        num_envs: int,
        resets: bool,
        has_sensor_models: bool = False,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._now = now
        config = load_json(CONFIGS / TASKS[task] / "gym_config.json")
        if has_sensor_models:
            add_sensor_models(config["env"])
        config["num_envs"] = num_envs
        if not resets:
            config["max_episode_steps"] = 1_000_000_000
        self.env: EmbodiedEnv = build_env(task, base_env_cfg=config_to_cfg(config))
        self.resets = resets
        self.bare = Batch(self.env.sim.model, num_envs, nthread=self.env.sim.cfg.num_threads)
        self.times = Times()
        self._generator = torch.Generator().manual_seed(0)
        self.env.reset(seed=0)
        if resets:
            limit = self.env.cfg.max_episode_steps or 1
            self.env.elapsed_steps.copy_(torch.arange(num_envs) % limit)
        else:
            self.env.success_terminates = False
        for _ in range(WARM_UP_STEPS):
            self.env.step(self._action())

    def round(self, steps: int) -> None:
        """Time steps of the environment, then the bare steps from the same states."""
        if not self.resets:
            self.env.reset(seed=len(self.times.env))
        backend = self.env.sim.backend
        actions = [self._action() for _ in range(steps)]
        recorded: list[tuple[dict[str, Tensor], Tensor, Tensor]] = []
        env_times, bare_times = [], []
        for action in actions:
            before = {name: backend.read(name) for name in STATE}
            start = self._now()
            _, _, terminated, truncated, _ = self.env.step(action)
            env_times.append(self._now() - start)
            recorded.append((before, backend.read("ctrl"), terminated | truncated))
        for before, ctrl, done in recorded:
            # If an episode ended, the targets of its last step are lost: use the step before's.
            before["ctrl"] = torch.where(done[:, None], before["ctrl"], ctrl)
            for name in STATE:
                self.bare.bind(name)[:] = before[name]
            start = self._now()
            self.bare.step(nstep=self.env.cfg.sim_steps_per_control)
            bare_times.append(self._now() - start)
        self.times.resets += sum(int(done.sum()) for _, _, done in recorded)
        self.times.env.append(env_times)
        self.times.bare.append(bare_times)

    def _action(self) -> Tensor:
        shape = self.env.action_space.shape
        assert shape is not None
        return 2.0 * torch.rand(shape, generator=self._generator) - 1.0


def add_sensor_models(env: dict[str, Any]) -> None:
    """Add noise, delay and history to all measured entries of a robot with legs, and a delay to its actions."""
    entries = [term.get("name", name) for name, term in env["observations"].items()]
    for entry in filter(lambda name: name.startswith(MEASURED), entries):
        env["observations"] |= {
            f"{entry} {func}": {"func": func, "mode": "modify", "name": entry, "params": params}
            for func, params in SENSOR_MODELS.items()
        }
    for term in env["actions"].values():
        term["params"]["delay"] = ACTION_DELAY


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=["PushCubeRL", "CartPoleRL"])
    parser.add_argument("--num-envs", nargs="+", type=int, default=[64, 1024])
    parser.add_argument("--steps", type=int, default=80, help="of each round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sensor-models", action="store_true", help="noise, delay and history, for robots with legs")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as the collector does: torch's idle threads would take the physics' cores
    print(f"{'task':12}{'N':>6}  {'case':10}{'bare ms':>9}{'env ms':>9}{'resets':>8}{'ratio':>8}  (quartiles)")
    results = []
    for task in args.task:
        for num_envs in args.num_envs:
            kinds = {"steady": True, "endless": False}
            cases = {name: Case(task, num_envs, resets, args.sensor_models) for name, resets in kinds.items()}
            for _ in range(args.rounds):
                for case in cases.values():
                    case.round(args.steps)
            for name, case in cases.items():
                row = case.times.row()
                results.append({"task": task, "num_envs": num_envs, "case": name, **row})
                quartiles = f"({row['ratio_low']:.1%}-{row['ratio_high']:.1%})"
                print(
                    f"{task:12}{num_envs:6}  {name:10}{row['bare_ms']:9.3f}{row['env_ms']:9.3f}"
                    f"{row['resets_per_step']:8.2f}{row['ratio']:8.1%}  {quartiles}",
                    flush=True,
                )
                case.env.close()
    print(json.dumps({"benchmark": "env_step", "steps": args.steps, "rounds": args.rounds, "results": results}))


if __name__ == "__main__":
    main()
