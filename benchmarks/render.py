"""Images per second of cameras in the PushCube scene.

    python benchmarks/render.py
    python benchmarks/render.py --rays --num-envs 16
    python benchmarks/render.py --size 256 --num-envs 64 --depth --mask --threads 4
    python benchmarks/render.py --rays --device cuda:0 --num-envs 1024

The arm moves between the images, so that all of them are rendered again; only the rendering counts. The benchmark
prints images per second of wall time, and of CPU time, on which other processes have less influence: images per second
of one core, times the threads. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

import torch

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks)
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.registry import make
from embodichain.lab.sim.cfg import CameraCfg, ExtrinsicsCfg
from embodichain.utils import replace


def measure(camera: CameraCfg, num_envs: int, threads: int, rounds: int, rays: bool, device: str) -> dict[str, float]:
    """Return the median over the rounds of images per second of wall time and of CPU time."""
    cfg = default_cfg("push_cube")()
    sim_cfg = replace(cfg.sim_cfg, num_threads=threads, enable_rt=rays, sim_device=device, render_device=device)
    cfg = replace(cfg, sensor=[camera], sim_cfg=sim_cfg)
    env: Any = make("PushCubeRL", cfg=cfg, num_envs=num_envs)
    env.reset(seed=1)
    sensor = env.sim.get_sensor(camera.uid)
    sensor.get_data()  # loads, and with rays compiles
    by_clock, by_processor = [], []
    for _ in range(rounds):
        action = torch.rand(num_envs, *env.single_action_space.shape, device=env.device) * 2 - 1
        env.robot.set_qpos(env.robot.get_qpos("arm") + 0.05 * action, name="arm", target=False)
        wait(device)
        start, busy = time.perf_counter(), time.process_time()
        sensor.get_data()
        wait(device)
        by_clock.append(num_envs / (time.perf_counter() - start))
        by_processor.append(threads * num_envs / (time.process_time() - busy))
    env.close()
    return {"by_clock": statistics.median(by_clock), "by_processor": statistics.median(by_processor)}


def wait(device: str) -> None:
    """Wait for the GPU's queued work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128, help="of the square images, pixels (default: %(default)s)")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--depth", action="store_true", help="render depth too")
    parser.add_argument("--mask", action="store_true", help="render the mask too")
    parser.add_argument("--rays", action="store_true", help="trace rays (enable_rt), with shadows")
    parser.add_argument("--device", default="cpu", help="of the physics, and of the rays: cpu or cuda:0")
    args = parser.parse_args()
    focal = 0.95 * args.size
    camera = CameraCfg(
        "camera",
        width=args.size,
        height=args.size,
        intrinsics=(focal, focal, args.size / 2, args.size / 2),
        extrinsics=ExtrinsicsCfg(eye=(-1.7, 1.3, 1.0), target=(-0.4, 0.0, 0.25)),
        enable_depth=args.depth,
        enable_mask=args.mask,
    )
    result = measure(camera, args.num_envs, args.threads, args.rounds, args.rays, args.device)
    method = "ray-traced" if args.rays else "OpenGL"
    kinds = ["color"] + ["depth"] * args.depth + ["mask"] * args.mask
    print(f"{method} {' + '.join(kinds)} {args.size}x{args.size}, {args.num_envs} environments, {args.threads} threads")
    print(f"{result['by_clock']:8.0f} images/s of wall time")
    print(f"{result['by_processor']:8.0f} images/s of CPU time")
    print(json.dumps({"benchmark": "render", **vars(args), **result}))


if __name__ == "__main__":
    main()
