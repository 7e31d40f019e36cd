"""Train a policy from one config file.

python -m embodichain.agents.rl.train --config configs/agents/rl/push_cube/train_config.json
python -m embodichain.agents.rl.train --resume latest
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

from embodichain.agents.rl.build import RunFolder, build_env_groups, build_envs, build_learner, build_trainer
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.utils.config import resolve_device
from embodichain.agents.rl.utils.learning_curve import draw_learning_curve
from embodichain.agents.rl.utils.resume import ResumePoint, check_config, find_resume_point
from embodichain.agents.rl.utils.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.utils.trainer import Trainer
from embodichain.lab.gym.envs import EmbodiedEnv
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
    parser.add_argument("--config", metavar="PATH", help="training config, JSON or YAML")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run: its folder, a checkpoint of it, or 'latest'; without --config, by the run's own config",
    )
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
    args = parser.parse_intermixed_args(argv)
    if args.config is None and args.resume is None:
        parser.error("one of --config and --resume is needed")
    return args


def train_from_config(
    config_path: str | None,
    distributed: bool | None = None,
    overrides: Sequence[str] = (),
    allowed_imports: Sequence[str] = (),
    resume: str | None = None,
) -> dict[str, Any]:
    """Train as a config says.

    Args:
        config_path: of the training config; None: that of the run to be resumed.
        distributed: several processes; None: as the config says.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that ``trainer.import_modules`` may name, beside those in the
            environment variable ``EMBODICHAIN_ALLOW_IMPORT`` (comma-separated).
        resume: go on with a run: its folder, one of its checkpoints, or ``"latest"``.

    Returns:
        What also stands in the run folder's ``summary.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used, or does not fit the run to be resumed;
            nothing is left behind.
        InterruptedTraining: SIGINT or SIGTERM came; the finished iterations are saved.
    """
    if distributed:
        raise ConfigError("--distributed: training over several processes is not available yet")
    run, point = _load_run(config_path, overrides, [*allowed_imports, *imports_allowed_by_environment()], resume)
    device = resolve_device(run.train.trainer.device)
    torch.manual_seed(run.train.trainer.seed)
    np.random.seed(run.train.trainer.seed)  # noqa: NPY002 (the generator that users' code draws from)
    env, eval_env = build_envs(run)
    env_groups: list[EmbodiedEnv] = []
    stop = StopSignals()
    try:
        env_groups = build_env_groups(run)
        policy, algorithm = build_learner(run, env, device)
        folder = RunFolder.create(run.train.trainer.exp_name) if point is None else RunFolder(point.run)
        trainer = build_trainer(run, folder, env, eval_env, policy, algorithm, point, stop.check, env_groups)
        try:
            with stop:
                _train(trainer, run.train.trainer.iterations * run.train.trainer.buffer_size * env.num_envs)
        finally:
            trainer.log.close()
    finally:
        for each in (env, *env_groups):
            each.close()
        if eval_env is not None:
            eval_env.close()
    draw_learning_curve(folder.metrics, folder.learning_curve, run.train.trainer.exp_name)
    summary = _summarise(trainer, folder)
    folder.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 2 wrong usage or config, 130 or 143 interrupted."""
    args = parse_args(argv)
    try:
        summary = train_from_config(args.config, args.distributed, args.overrides, args.allow_import, args.resume)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except InterruptedTraining as signal:
        print("interrupted", file=sys.stderr)
        return signal.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    _print_summary(summary)
    return 0


def _train(trainer: Trainer, total_timesteps: int) -> None:
    """Train; whatever ends it early, what was finished is saved."""
    try:
        trainer.train(total_timesteps)
    except BaseException:
        trainer.rescue()
        path = trainer.last_checkpoint
        if path is not None:
            logger.log_info(f"checkpoint saved: {path}; --resume {path.parent.parent} goes on from there")
        raise


def _load_run(
    config_path: str | None, overrides: Sequence[str], allowed_imports: Sequence[str], resume: str | None
) -> tuple[RunConfig, ResumePoint | None]:
    """Return the run's config and, where one is resumed, the checkpoint to go on from."""
    run = None if config_path is None else load_run_config(config_path, overrides, allowed_imports)
    if resume is None:
        assert run is not None
        return run, None
    point = find_resume_point(resume, None if run is None else run.train.trainer.exp_name)
    if run is None:
        run = load_checkpoint_config(point.content["config"], overrides, allowed_imports)
    check_config(point.content["config"], run.resolved, resume)
    logger.log_info(f"going on from {point.path}")
    return run, point


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
