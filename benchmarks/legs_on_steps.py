"""How walking policies get along on blocks and stairs of one height: falls, velocity errors and distance, 200 episodes.

    python -m benchmarks.legs_on_steps outputs/go2_rough_quickstart_* --height 0.05

Each run is evaluated on a terrain of blocks and stairs (up and down) of that height, without
a curriculum. Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.lab.sim.terrain_cfg import StairsTerrainCfg, StepsTerrainCfg, TerrainCfg
from embodichain.tools.open_run import open_run
from embodichain.utils.configclass import replace

SEED = 7_000_003


def terrain_of_steps(height: float) -> TerrainCfg:
    """Return a terrain whose blocks and stairs are all of one height, m."""
    both = (height, height)
    stairs = [StairsTerrainCfg(height=both), StairsTerrainCfg(height=both, inverted=True)]
    return TerrainCfg(
        [StepsTerrainCfg(height=both), *stairs], num_levels=1, num_columns=6, cell_size=6.0, platform=1.5, border=10.0
    )


def evaluate(run: str, height: float, episodes: int) -> dict[str, Any]:
    """Return a run's metrics on steps of a height, m."""
    terrain = terrain_of_steps(height)
    with open_run(find_run(run), episodes, change=lambda cfg: replace(cfg, terrain=terrain)) as opened:
        evaluator = Evaluator(opened.env, episodes, SEED, opened.device, Path())
        evaluator.run(opened.policy, "")
    columns = evaluator.table.columns()
    means = {name: float(np.mean(columns[f"metrics/{name}"])) for name in ("velocity_error_xy", "velocity_error_yaw")}
    falls = float(np.mean(columns["metrics/fall_rate at the end"]))
    return {"run": run, "height": height, "episodes": episodes, "survived": 1.0 - falls, **means}


def main() -> None:
    """Evaluate the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, or checkpoints")
    parser.add_argument("--height", type=float, nargs="+", default=[0.05], help="of the steps, m (default: 0.05)")
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args()
    rows = [evaluate(run, height, args.episodes) for run in args.runs for height in args.height]
    print(f"{'run':50}{'height m':>10}{'survived':>10}{'xy m/s':>10}{'yaw rad/s':>11}")
    for row in rows:
        print(
            f"{row['run'][-48:]:50}{row['height']:10.3f}{row['survived']:10.1%}"
            f"{row['velocity_error_xy']:10.3f}{row['velocity_error_yaw']:11.3f}"
        )
    print(json.dumps({"benchmark": "legs_on_steps", "rows": rows}))


if __name__ == "__main__":
    main()
