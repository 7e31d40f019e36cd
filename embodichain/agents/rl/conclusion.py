"""What a training leaves behind at its end, beside its checkpoints: learning curve, summary and report."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.build import RunFolder
from embodichain.agents.rl.checkpoint.resume import ResumePoint
from embodichain.agents.rl.metrics.learning_curve import draw_learning_curve
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.tools.report.run import REPORT, write_report
from embodichain.tools.report.run_data import read_summary
from embodichain.utils import logger
from embodichain.utils.files import remove_unfinished, write_json
from embodichain.utils.machine import describe_machine

__all__ = ["conclude", "finished_summary", "print_summary"]

# What is printed of a summary.
_PRINTED = {
    "success_rate",
    "success_interval_95",
    "episodes",
    "train_seconds",
    "env_steps",
    "peak_memory_mb",
    "run_folder",
    "checkpoint",
    "video",
    "learning_curve",
}


def finished_summary(point: ResumePoint, iterations: int) -> dict[str, Any] | None:
    """Return the summary of a run that has nothing left to do, and make what it lacks; None where it has."""
    done, folder = point.content["iteration"], RunFolder(point.run)
    summary = read_summary(folder.summary)
    if done < iterations or not summary.keys() >= _PRINTED:
        return None
    logger.log_info(f"all of its {done} iterations are made; to go on, ask for more: trainer.iterations={2 * done}")
    remove_unfinished(folder.path)
    title = point.content["config"]["trainer"]["exp_name"]
    _write_all([writer for writer in _remains(folder, title) if not (folder.path / writer[0]).exists()])
    return summary


def conclude(trainer: Trainer, folder: RunFolder, title: str, wall_seconds: float) -> dict[str, Any]:
    """Leave picture and summary in the run's folder; the checkpoint is there, so where they cannot be is a warning."""
    curve, *others = _remains(folder, title)
    _write_all([curve])
    summary = _summarise(trainer, folder, wall_seconds)
    _write_all([(folder.summary.name, lambda: write_json(folder.summary, summary, indent=2)), *others])
    return summary


def _remains(folder: RunFolder, title: str) -> list[tuple[str, Callable[[], object]]]:
    """Return the files that tell of a training, beside its summary: their names, and functions that write them."""
    return [
        (folder.learning_curve.name, lambda: draw_learning_curve(folder.metrics, folder.learning_curve, title)),
        ("machine.json", lambda: write_json(folder.path / "machine.json", describe_machine(), indent=2)),
        (REPORT, lambda: write_report(folder.path)),
    ]


def _write_all(writers: Sequence[tuple[str, Callable[[], object]]]) -> None:
    """Write one after the other; one that cannot be written is a warning."""
    for name, write in writers:
        try:
            write()
        except (OSError, ValueError) as error:  # a ValueError where the logs that it is made from are not whole
            logger.log_warning(f"{name} could not be written: {error}")


def _summarise(trainer: Trainer, folder: RunFolder, wall_seconds: float) -> dict[str, Any]:
    result = trainer.last_evaluation
    videos = [str(path) for path in result.videos] if result else []
    return {
        "success_rate": result.success_rate if result else None,
        "success_interval_95": list(result.success_interval) if result else None,
        "episodes": result.episodes if result else 0,
        "train_seconds": round(trainer.train_seconds, 2),
        "wall_seconds": round(wall_seconds, 2),
        "env_steps": trainer.global_step,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "run_folder": str(folder.path),
        "checkpoint": str(trainer.last_checkpoint),
        "video": videos[-1] if videos else None,
        "learning_curve": str(folder.learning_curve) if folder.learning_curve.exists() else None,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print what came of a run."""
    rate, interval = summary["success_rate"], summary["success_interval_95"]
    if rate is not None:
        low, high = interval
        print(f"success rate    {rate:.1%} of {summary['episodes']} episodes (95 % interval {low:.1%} to {high:.1%})")
    print(f"training time   {summary['train_seconds']:.1f} s for {summary['env_steps']:,} environment steps")
    if "wall_seconds" in summary:  # runs from before it was kept have none
        print(f"wall time       {summary['wall_seconds']:.1f} s since the start or the resume, evaluations included")
    print(f"peak memory     {summary['peak_memory_mb']:,.0f} MB")
    # A recorder that could not draw or write has said so in a warning.
    no_video = "nothing was evaluated" if rate is None else "no event in trainer.events.eval recorded one"
    for name, why_not in (("checkpoint", ""), ("video", f": {no_video}"), ("learning_curve", "")):
        print(f"{name.replace('_', ' '):15} {summary[name] or f'none{why_not}'}")
    for name, file in (("summary", "summary.json"), ("report", REPORT)):
        path = Path(summary["run_folder"]) / file
        print(f"{name:15} {path if path.exists() else 'none'}")
