"""A checkpoint that version 0.1 wrote (two iterations of the tiny CartPole run, before the rooms were moved)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from embodichain.agents.rl.train import main

CHECKPOINT = Path(__file__).with_name("version_0_1.pt")
# What version 0.1 logged when it continued this run by one iteration itself.
LOGGED = {
    "step": 24,
    "train/value_loss": 1.1966177225112915,
    "train/grad_norm": 1.2405952215194702,
    "train/std": 1.000741958618164,
    "rewards/upright": 0.6799538135528564,
    "metrics/pole_angle": 0.23566821217536926,
    "charts/episode_reward_avg_100": 7.86828484137853,
    "eval/avg_reward": 9.7910857796669,
}


def test_checkpoint_of_version_0_1_continues_as_version_0_1_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "outputs/v0_1_20261122_000000"
    (run / "logs").mkdir(parents=True)
    (run / "checkpoints").mkdir()
    shutil.copy(CHECKPOINT, run / "checkpoints/v0_1_step_16.pt")
    assert main(["--resume", str(run), "trainer.iterations=3"]) == 0
    logged = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    # Other processors round otherwise.
    assert {name: logged[name] for name in LOGGED} == pytest.approx(LOGGED, rel=1e-4)
