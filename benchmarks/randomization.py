"""Cost of domain randomisation in an environment's step.

    python benchmarks/randomization.py
    python benchmarks/randomization.py --num-envs 64 --rounds 10

Two environments of PushCube get the same random actions: one also draws friction, mass, the drives' gains and the
cube's colour at every reset. The benchmark measures the four together, the four together from ranges of one value (so
that the physics, which is faster or slower with other frictions, stays the same), and each alone. Episodes are spread
over their whole length, so that some end and reset in nearly every step. The two environments alternate step by step,
so that a busy machine slows both. The cost is (median step with) / (median step without) - 1 of a round, in wall time
and in CPU time, on which other processes have less influence; the table has the medians over the rounds, with the
quartiles of the latter. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import randomization
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.utility import load_json

CONFIG = Path(__file__).parents[1] / "configs" / "agents" / "rl" / "push_cube" / "gym_config.json"
CUBE = {"uid": "cube"}
ALL_TO_NO_EFFECT = "all four, to no effect"
CASES: dict[str, list[str]] = {
    "friction, mass, gains, colour": [
        "randomize_rigid_object_friction",
        "randomize_rigid_object_mass",
        "randomize_joint_drive",
        "randomize_visual_material",
    ],
    ALL_TO_NO_EFFECT: [
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
# Ranges of one value: drawn and written, but without effect on the physics, whose speed depends on them.
TO_NO_EFFECT: dict[str, dict[str, Any]] = {
    "randomize_rigid_object_friction": {"friction_range": [0.0, 0.0], "relative": True},
    "randomize_rigid_object_mass": {"mass_range": [0.0, 0.0], "relative": True},
    "randomize_joint_drive": {"stiffness_range": [1.0, 1.0], "damping_range": [1.0, 1.0]},
}
WARM_UP_STEPS = 100


def build(num_envs: int, terms: list[str], to_no_effect: bool = False) -> EmbodiedEnv:
    """Return PushCube with these events, in the middle of its episodes."""
    config = load_json(CONFIG)
    config["num_envs"] = num_envs
    for name in terms:
        params = PARAMS[name] | (TO_NO_EFFECT.get(name, {}) if to_no_effect else {})
        config["env"]["events"][name] = {"func": name, "mode": "reset", "params": params}
    env: EmbodiedEnv = build_env(config["id"], base_env_cfg=config_to_cfg(config))
    env.reset(seed=0)
    env.elapsed_steps.copy_(torch.arange(num_envs) % (env.cfg.max_episode_steps or 1))
    return env


def timed_step(env: EmbodiedEnv, generator: torch.Generator) -> tuple[float, float]:
    """Return the time of a step under random actions in wall time and in CPU time, s."""
    shape = (env.num_envs, env.action_manager.total_action_dim)
    action = 2.0 * torch.rand(shape, generator=generator) - 1.0
    start, busy = time.perf_counter(), time.process_time()
    env.step(action)
    return time.perf_counter() - start, time.process_time() - busy


def measure(num_envs: int, terms: list[str], to_no_effect: bool, steps: int, rounds: int) -> dict[str, float]:
    """Return the medians over the rounds: CPU milliseconds, and the share that the randomisation adds."""
    envs = [build(num_envs, []), build(num_envs, terms, to_no_effect)]
    generators = [torch.Generator().manual_seed(0) for _ in envs]
    # Medians of each round: wall time and CPU time, without and with randomisation.
    medians: list[list[list[float]]] = []
    for i in range(-1, rounds):
        of_round: list[list[tuple[float, float]]] = [[], []]
        for step in range(steps if i >= 0 else WARM_UP_STEPS):
            for which in (0, 1) if step % 2 == 0 else (1, 0):
                of_round[which].append(timed_step(envs[which], generators[which]))
        if i >= 0:
            medians.append([[statistics.median(times) for times in zip(*of, strict=True)] for of in of_round])
    for env in envs:
        env.close()
    by_clock, by_processor = (sorted(on[k] / off[k] - 1.0 for off, on in medians) for k in (0, 1))
    return {
        "plain_ms": 1e3 * statistics.median(off[1] for off, _ in medians),
        "random_ms": 1e3 * statistics.median(on[1] for _, on in medians),
        "cost_by_clock": statistics.median(by_clock),
        "cost": statistics.median(by_processor),
        "cost_low": by_processor[len(by_processor) // 4],
        "cost_high": by_processor[-1 - len(by_processor) // 4],
    }


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=40, help="of each round")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)  # as the collector does
    print(f"PushCubeRL, N = {args.num_envs}")
    print(f"{'drawn at every reset':32}{'plain ms':>10}{'random ms':>11}{'wall time':>10}{'cost':>8}  (quartiles)")
    results = []
    for name in args.cases:
        terms = CASES[name]
        known = [term for term in terms if hasattr(randomization, term)]
        if not known:
            continue
        row = measure(args.num_envs, known, name == ALL_TO_NO_EFFECT, args.steps, args.rounds)
        results.append({"case": name, "terms": known, **row})
        quartiles = f"({row['cost_low']:+.1%} to {row['cost_high']:+.1%})"
        print(f"{name:32}{row['plain_ms']:10.3f}{row['random_ms']:11.3f}{row['cost_by_clock']:+10.1%}", end="")
        print(f"{row['cost']:+8.1%}  {quartiles}", flush=True)
    print(json.dumps({"benchmark": "randomization", "num_envs": args.num_envs, "results": results}))


if __name__ == "__main__":
    main()
