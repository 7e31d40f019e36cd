"""Operations of a SmolVLA, counted without its numbers, and what follows from them for a GPU."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra vla")

from benchmarks.vla_full_size import Work, count_work, estimate, work_of
from embodichain.agents.rl.models import SmolVLA

LAYERS = {"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
SMALL: dict[str, Any] = {
    "vision": {**LAYERS, "image_size": 32, "patch_size": 8},
    "language": {**LAYERS, "vocab_size": 64, "num_key_value_heads": 2},
    **{"scale_factor": 2, "denoising_steps": 3, "chunk_length": 4},
}


@pytest.mark.parametrize("changes", [{}, {"gradient_checkpointing": True, "cache_vision": True}])
def test_counts_are_those_of_a_model_with_numbers(changes: dict[str, Any]) -> None:
    real = SmolVLA(**SMALL, **changes, cameras=["front"], image_size=[64, 64], state_dim=9, action_dim=2)
    counted = asdict(count_work(SMALL | changes))
    assert counted == pytest.approx(asdict(work_of(real)), rel=0.02)  # numbers of a few bytes are held in other ways
    assert counted["update_gflop"] > counted["decision_gflop"] * (0.5 if changes else 1.0)


def test_estimate_is_the_slower_one_of_computing_and_reading() -> None:
    work = Work(parameters=300, trained=100, euler_steps=10, decision_gflop=2.0, update_gflop=6.0, held_mib=512.0)
    given = {"tflops": 1.0, "bandwidth": 1.0, "utilisation": 0.5, "envs": 4, "minibatch": 2}
    found = estimate(work, argparse.Namespace(**given))
    # 4 x 2 and 2 x 6 GFLOP at 0.5 TFLOP/s
    assert found["s_for_a_decision_of_all_envs"] == 0.016
    assert found["s_for_an_update_on_a_minibatch"] == 0.024
    assert found["held_gib"] == 1.0
    slow = estimate(work, argparse.Namespace(**given | {"bandwidth": 1e-5}))
    # (200 frozen + 10 x 100) x 4 bytes, and for gradients and Adam (200 + 30 x 100 + 7 x 100) x 4, at 5 kB/s
    assert slow["s_for_a_decision_of_all_envs"] == 0.96
    assert slow["s_for_an_update_on_a_minibatch"] == 3.12
