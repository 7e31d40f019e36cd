"""A training in a separate process, for the benchmarks that read its logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def train(
    config: str, overrides: list[str], module: str = "embodichain.agents.rl.train"
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Train without videos, in a folder that is deleted; return the lines of ``metrics.jsonl`` and the summary.

    Args:
        config: file of a training config, from the repository's root.
        overrides: of it.
        module: takes the arguments of ``embodichain.agents.rl.train``.
    """
    paths = os.pathsep.join(path for path in (str(ROOT), os.environ.get("PYTHONPATH")) if path)
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, "--config", str(ROOT / config)]
        command += ["trainer.events={}", *overrides]
        environment = os.environ | {"PYTHONPATH": paths}
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{' '.join(overrides)} failed:\n{result.stdout}{result.stderr}")
        (run,) = Path(folder).glob("outputs/*")
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines], json.loads((run / "summary.json").read_text(encoding="utf-8"))
