"""The benchmark of saving, as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/agents/rl/basic/cart_pole/train_config_quickstart.json"
SIZES = ["trainer.iterations=2", "trainer.num_envs=2", "trainer.buffer_size=4", "algorithm.cfg.batch_size=8"]


def test_saving_is_timed_and_the_results_are_the_last_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks/saving.py"), str(CONFIG), *SIZES, "trainer.enable_eval=false"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["steps"] == 16
    # The state at the start and after each iteration; the last checkpoint.
    assert results["calls"] == {"copy": 3, "write": 1, "train": 1}
    assert 0 < results["share"] < 1
    assert not list(tmp_path.iterdir())
