"""What domain randomisation costs an environment's step.

    python benchmarks/randomization.py
    python benchmarks/randomization.py --num-envs 64 --rounds 10

Two environments of PushCube under the same law of actions: one draws friction, mass, the drives' gains and the cube's
colour at every reset, together and each alone; the other draws only what the task draws. Episodes are spread over
their whole length, so that in nearly every step some end and reset. The two take turns, step by step, so that a busy
machine slows both. The cost is (median step with) / (median step without) - 1 of a round; the table has the median over
the rounds with its quartiles. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import randomization
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.utils.gym_utils import config_to_cfg
from embodichain.utils.utility import load_json

CONFIG = Path(__file__).parents[1] / "configs" / "agents" / "rl" / "push_cube" / "gym_config.json"
CUBE = {"uid": "cube"}
CASES: dict[str, list[str]] = {
    "friction, mass, gains, colour": [
        "randomize_rigid_object_friction",
        "randomize_rigid_object_mass",
        "randomize_joint_drive",
        "randomize_visual_material",
    ],
    "friction": ["randomize_rigid_object_friction"],
    "mass": ["randomize_rigid_object_mass"],
    "gains": ["randomize_joint_drive"],
    "colour": ["randomize_visual_material"],
    "size": ["randomize_rigid_object_scale"],
}
PARAMS: dict[str, dict[str, Any]] = {
    "randomize_rigid_object_friction": {"entity_cfg": CUBE, "friction_range": [0.4, 1.2]},
    "randomize_rigid_object_mass": {"entity_cfg": CUBE, "mass_range": [0.5, 1.5]},
    "randomize_joint_drive": {
        "entity_cfg": {"uid": "Manipulator"},
        "stiffness_range": [0.8, 1.25],
        "damping_range": [0.8, 1.25],
    },
    "randomize_visual_material": {"entity_cfg": CUBE, "base_color_range": [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]},
    "randomize_rigid_object_scale": {"entity_cfg": CUBE, "scale_factor_range": [[0.9], [1.1]]},
}
WARM_UP_STEPS = 100


def build(num_envs: int, terms: list[str]) -> EmbodiedEnv:
    """Return PushCube with these events, in the middle of its episodes."""
    config = load_json(CONFIG)
    config["num_envs"] = num_envs
    for name in terms:
        config["env"]["events"][name] = {"func": name, "mode": "reset", "params": PARAMS[name]}
    env: EmbodiedEnv = build_env(config["id"], base_env_cfg=config_to_cfg(config))
    env.reset(seed=0)
    env.elapsed_steps.copy_(torch.arange(num_envs) % (env.cfg.max_episode_steps or 1))
    return env


def timed_step(env: EmbodiedEnv, generator: torch.Generator) -> float:
    """Return the time of a step under random actions, s."""
    shape = (env.num_envs, env.action_manager.total_action_dim)
    action = 2.0 * torch.rand(shape, generator=generator) - 1.0
    start = time.perf_counter()
    env.step(action)
    return time.perf_counter() - start


def measure(num_envs: int, terms: list[str], steps: int, rounds: int) -> dict[str, float]:
    """Return the medians over the rounds: milliseconds, and the share that the randomisation adds."""
    envs = [build(num_envs, []), build(num_envs, terms)]
    generators = [torch.Generator().manual_seed(0) for _ in envs]
    times: list[list[float]] = [[], []]
    for i in range(-1, rounds):
        of_round: list[list[float]] = [[], []]
        for step in range(steps if i >= 0 else WARM_UP_STEPS):
            for which in (0, 1) if step % 2 == 0 else (1, 0):
                of_round[which].append(timed_step(envs[which], generators[which]))
        if i >= 0:
            for which in (0, 1):
                times[which].append(statistics.median(of_round[which]))
    for env in envs:
        env.close()
    costs = sorted(b / a - 1.0 for a, b in zip(*times, strict=True))
    return {
        "plain_ms": 1e3 * statistics.median(times[0]),
        "random_ms": 1e3 * statistics.median(times[1]),
        "cost": statistics.median(costs),
        "cost_low": costs[len(costs) // 4],
        "cost_high": costs[-1 - len(costs) // 4],
    }


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--steps", type=int, default=40, help="of each round")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)  # as the collector does
    print(f"PushCubeRL, N = {args.num_envs}")
    print(f"{'drawn at every reset':32}{'plain ms':>10}{'random ms':>11}{'cost':>8}  (quartiles)")
    results = []
    for name, terms in CASES.items():
        known = [term for term in terms if hasattr(randomization, term)]
        if not known:
            continue
        row = measure(args.num_envs, known, args.steps, args.rounds)
        results.append({"case": name, "terms": known, **row})
        quartiles = f"({row['cost_low']:+.1%} to {row['cost_high']:+.1%})"
        print(f"{name:32}{row['plain_ms']:10.3f}{row['random_ms']:11.3f}{row['cost']:+8.1%}  {quartiles}", flush=True)
    print(json.dumps({"benchmark": "randomization", "num_envs": args.num_envs, "results": results}))


if __name__ == "__main__":
    main()
