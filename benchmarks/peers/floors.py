"""Lower bounds for any learner: the bare physics of a rollout, and the matrix products of an update.

Legend: B minibatch, I inputs and U units of a layer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from benchmarks.env_step import Case
from benchmarks.peers.setting import Setting
from embodichain.lab.gym.envs import EmbodiedEnv


def gemm_shapes(widths: Sequence[int], batch: int) -> list[tuple[int, int, int]]:
    """Return the products of one optimizer step of an MLP, as (m, k, n) for [m, k] x [k, n].

    Each layer has the output, [B, I] x [I, U], and the gradient of its weights, [U, B] x [B, I]; all but the first have
    the gradient of their input, [B, U] x [U, I].

    Args:
        widths: sizes of the input, the hidden layers and the output.
        batch: B.
    """
    shapes = []
    for i, (inputs, units) in enumerate(pairwise(widths)):
        shapes += [(batch, inputs, units), (units, batch, inputs)]
        if i > 0:
            shapes.append((batch, units, inputs))
    return shapes


def measure(
    task: str, setting: Setting, env: EmbodiedEnv, warm_up: int, iterations: int, now: Callable[[], float]
) -> dict[str, Any]:
    """Return median seconds of an iteration's physics, alone and in ``env.step`` alone, and of its matrix products.

    Physics and ``env.step`` are measured as in ``benchmarks/env_step.py``, under random actions, with one torch thread;
    the products are computed with all of torch's threads, into preallocated tensors. ``now`` returns the time, s.
    """
    widths = [env.flattened_observation_space.shape[-1], *setting.hidden_sizes]
    shapes = gemm_shapes([*widths, env.single_action_space.shape[0]], setting.batch_size)
    shapes += gemm_shapes([*widths, 1], setting.batch_size)
    update = _products(shapes, setting.gradient_steps)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    case = Case(task, setting.num_envs, resets=True, now=now)
    gemm = []
    for _ in range(warm_up + iterations):
        case.round(setting.num_steps)
        torch.set_num_threads(num_threads)
        begun = now()
        update()
        gemm.append(now() - begun)
        torch.set_num_threads(1)
    case.env.close()
    rounds = slice(warm_up, None)
    flop = setting.gradient_steps * sum(2 * m * k * n for m, k, n in shapes)
    return {
        "bare_step": statistics.median(map(sum, case.times.bare[rounds])),
        "env_step_alone": statistics.median(map(sum, case.times.env[rounds])),
        "gemm": statistics.median(gemm[rounds]),
        "gemm_gflop": flop / 1e9,
        "threads": num_threads,
    }


def _products(shapes: Sequence[tuple[int, int, int]], repeats: int) -> Callable[[], None]:
    """Return a function that computes the products ``repeats`` times."""
    operands = [(torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, k, n in shapes]

    def run() -> None:
        for _ in range(repeats):
            for a, b, out in operands:
                torch.mm(a, b, out=out)

    return run
