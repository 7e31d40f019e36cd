"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embodichain.agents.rl.build import RunFolder, build_envs, build_learner, build_trainer, load_run_config
from embodichain.agents.rl.utils.config import resolve_device
from embodichain.agents.rl.utils.learning_curve import draw_learning_curve
from embodichain.agents.rl.utils.trainer import Trainer
from embodichain.utils import ConfigError, logger
from embodichain.utils.module_utils import imports_allowed_by_environment

__all__ = ["main", "parse_args", "train_from_config"]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line: ``config``, ``distributed`` (None where unset) and ``overrides``."""
    parser = argparse.ArgumentParser(
        prog="python -m embodichain.agents.rl.train",
        description="Train a policy from one config file.",
        epilog="example: %(prog)s --config train_config.json trainer.num_envs=256 algorithm.cfg.gamma=0.98",
    )
    parser.add_argument("--config", required=True, metavar="PATH", help="training config, JSON or YAML")
    parser.add_argument(
        "--distributed",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="several processes (unset: as trainer.distributed says)",
    )
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="PREFIX",
        help="let trainer.import_modules name modules below this one (also: EMBODICHAIN_ALLOW_IMPORT, comma-separated)",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values in place of the config's")
    return parser.parse_intermixed_args(argv)


def train_from_config(
    config_path: str,
    distributed: bool | None = None,
    overrides: Sequence[str] = (),
    allowed_imports: Sequence[str] = (),
) -> dict[str, Any]:
    """Train as a config says.

    Args:
        config_path: of the training config.
        distributed: several processes; None: as the config says.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that ``trainer.import_modules`` may name, beside those in the
            environment variable ``EMBODICHAIN_ALLOW_IMPORT`` (comma-separated).

    Returns:
        What also stands in the run folder's ``summary.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used; nothing is left behind.
    """
    if distributed:
        raise ConfigError("--distributed: training over several processes is not available yet")
    run = load_run_config(config_path, overrides, [*allowed_imports, *imports_allowed_by_environment()])
    device = resolve_device(run.train.trainer.device)
    torch.manual_seed(run.train.trainer.seed)
    np.random.seed(run.train.trainer.seed)  # noqa: NPY002 (the generator that users' code draws from)
    env, eval_env = build_envs(run)
    try:
        policy, algorithm = build_learner(run, env, device)
        folder = RunFolder.create(run.train.trainer.exp_name)
        trainer = build_trainer(run, folder, env, eval_env, policy, algorithm)
        try:
            trainer.train(run.train.trainer.iterations * run.train.trainer.buffer_size * env.num_envs)
        except BaseException:
            logger.log_info(f"checkpoint saved: {trainer.save_checkpoint()}")
            raise
        finally:
            trainer.log.close()
    finally:
        env.close()
        if eval_env is not None:
            eval_env.close()
    draw_learning_curve(folder.metrics, folder.learning_curve, run.train.trainer.exp_name)
    summary = _summarise(trainer, folder)
    folder.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 2 wrong usage or config, 130 interrupted."""
    args = parse_args(argv)
    try:
        summary = train_from_config(args.config, args.distributed, args.overrides, args.allow_import)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    _print_summary(summary)
    return 0


def _summarise(trainer: Trainer, folder: RunFolder) -> dict[str, Any]:
    result = trainer.last_evaluation
    videos = [str(path) for path in result.videos] if result else []
    return {
        "success_rate": result.success_rate if result else None,
        "success_interval_95": list(result.success_interval) if result else None,
        "episodes": result.episodes if result else 0,
        "train_seconds": round(trainer.train_seconds, 2),
        "env_steps": trainer.global_step,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "run_folder": str(folder.path),
        "checkpoint": str(trainer.last_checkpoint),
        "video": videos[-1] if videos else None,
        "learning_curve": str(folder.learning_curve),
    }


def _print_summary(summary: dict[str, Any]) -> None:
    rate, interval = summary["success_rate"], summary["success_interval_95"]
    if rate is not None:
        low, high = interval
        print(f"success rate    {rate:.1%} of {summary['episodes']} episodes (95 % interval {low:.1%} to {high:.1%})")
    print(f"training time   {summary['train_seconds']:.1f} s for {summary['env_steps']:,} environment steps")
    print(f"peak memory     {summary['peak_memory_mb']:,.0f} MB")
    for name in ("checkpoint", "video", "learning_curve"):
        missing = "none: no recorded evaluation, or no OpenGL" if name == "video" else "none"
        print(f"{name.replace('_', ' '):15} {summary[name] or missing}")
    print(f"summary         {Path(summary['run_folder']) / 'summary.json'}")


if __name__ == "__main__":
    sys.exit(main())
