"""A run's folder, and the files at the end of a training: learning curve, summary and report."""

import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from embodichain import __version__
from embodichain.agents.rl.checkpoint.files import SEGMENTS
from embodichain.agents.rl.checkpoint.saved_run import RunLock, SavedRun, find_run
from embodichain.agents.rl.distributed import ProcessGroup, get_process_group, launch
from embodichain.agents.rl.metrics import sinks
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.run_data import draw_learning_curve, read_object
from embodichain.agents.rl.trainer.evaluation import AT_END
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.agents.rl.vec_env import EvalEnv
from embodichain.utils import ConfigError, doors, is_run_folder, logger, write_json
from embodichain.utils.border import format_finite
from embodichain.utils.device import describe_machine, format_megabytes
from embodichain.utils.files import remove_unfinished
from embodichain.utils.system import peak_memory

METRICS, SUMMARY, LEARNING_CURVE = "metrics.jsonl", "summary.json", "learning_curve.png"
_LEAST_WIDTH = 15  # characters of the first column of a printed summary
_RESTART_PATIENCE = 100.0  # s; an NFS server keeps the locks of a machine that has stopped for 90 s
_AT_THE_START = {"config.json", "machine.json", METRICS, "run.lock", "launch.json", "logs", "checkpoints", "wandb"}


def create_folder(exp_name: str) -> Path:
    """Create a run's folder ``outputs/<exp_name>_<date>_<time>``; if another run began in the same second, wait."""
    Path("outputs").mkdir(exist_ok=True)
    while True:
        folder = Path("outputs") / f"{exp_name}_{datetime.now():%Y%m%d_%H%M%S}"
        try:
            folder.mkdir()
            break
        except FileExistsError:
            time.sleep(0.1)
    for name in ("logs", "checkpoints"):
        (folder / name).mkdir()
    return folder


def remove_without_results(folder: Path) -> None:
    """Remove a run's folder if it has no metric, no checkpoint, and nothing beyond every training's first files.

    A folder that cannot be removed is a warning.
    """
    metrics = folder / METRICS
    try:
        if (metrics.exists() and metrics.stat().st_size > 0) or any(folder.glob("checkpoints/*.pt")):
            return
        others = (path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in _AT_THE_START)
        if not any(path.is_file() for path in others):
            remove_folder(folder)
    except OSError as error:
        logger.log_warning(f"{folder}: has no results, and cannot be removed: {error.strerror}")


def remove_folder(folder: Path) -> None:
    """Remove a run's folder, and ``outputs`` if that is empty."""
    shutil.rmtree(folder)
    with suppress(OSError):
        folder.parent.rmdir()


def open_folder(exp_name: str, point: SavedRun | None, placement: launch.Placement | None, lock: RunLock) -> str:
    """Return the path of the run's locked folder: a new one, or the folder of the run to continue."""
    folder = create_folder(exp_name) if point is None else point.folder
    if point is None:
        lock.take(folder)
    if placement is not None and placement.launch is not None:
        launch.record_launch(folder, placement.launch)
    return str(folder)


def begin_writing(
    run: RunConfig, folder: Path, env: EvalEnv, trainer: Trainer, log: sinks.RunLog, resume: SavedRun | None
) -> None:
    """Write the resolved config, and begin the logs and the recordings.

    The last step that can fail before the training: here logs after the resumed checkpoint are deleted.
    """
    step, wall_time, last_step = None, 0.0, None
    if resume is not None:
        step = trainer.global_step
        for place in (folder, trainer.checkpoints.path, trainer.checkpoints.path / SEGMENTS):
            remove_unfinished(place)
        trainer.checkpoints.take_up(resume.checkpoint, resume.content)
        (folder / SUMMARY).unlink(missing_ok=True)  # of the shorter training
        wall_time, last_step = sinks.rewind_metrics(folder / METRICS, step)
    write_json(folder / "config.json", run.resolved, indent=2)
    code, before = _code_of(run.trainer.import_modules), read_object(folder / "machine.json").get("code", {})
    if changed := [name for name, digest in code.items() if before.get(name, digest) != digest]:
        logger.log_warning(
            f"{', '.join(changed)}: changed since the run began or was last resumed: the resumed training may differ "
            "from an uninterrupted one"
        )
    machine = describe_machine() | {"processes": get_process_group().world_size, "code": code}
    write_json(folder / "machine.json", machine, indent=2)
    logged = sinks.LoggedRun(folder.name, folder, run.resolved, last_step)
    sinks.begin_loggers(log, run.trainer, run.loggers, logged)
    log.add(sinks.TensorBoardSink(folder / "logs", step, run.resolved))
    log.add(sinks.JsonLinesSink(folder / METRICS, wall_time))
    env.start_recording(folder / "videos", "train" if step is None else f"train_from_step_{step}")


def _code_of(modules: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of the loaded Python files of some modules' packages, by module."""
    packages = {name.partition(".")[0] for name in modules} - {"embodichain"}
    loaded = {name: module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] in packages}
    files = {name: Path(file) for name, module in loaded.items() if (file := getattr(module, "__file__", None))}
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file.is_file()}


def take_run(
    resume: str | None,
    exp_name: str | None,
    process_group: ProcessGroup,
    placement: launch.Placement | None,
    lock: RunLock,
) -> SavedRun | None:
    """Find the run to continue, lock it and read its checkpoint, on rank 0; return it on all ranks.

    Processes that torchrun has restarted continue the run of their launch, whatever ``resume`` says.

    Args:
        resume: a run's folder, a checkpoint of it, or ``latest``; None: the launch's, if any.
        exp_name: experiment name of the runs to consider; None: all.
    """
    restarts = 0 if placement is None else placement.restarts
    is_restart = bool(process_group.gather(torch.tensor(restarts)).max() > 0)

    def find() -> tuple[str, str, dict[str, Any]] | None:
        begun = None if placement is None else launch.find_launched_run(exp_name, placement, is_restart)
        target = resume if begun is None else str(begun)
        if target is None:
            return None

        def take(folder: Path) -> None:
            if not is_run_folder(folder):
                raise ConfigError(f"{target}: is in no run's folder, which a resume continues")
            # A process of this launch that holds the lock is about to end.
            lock.take(folder, _RESTART_PATIENCE if begun is not None else 0.0)

        saved = find_run(target, exp_name, take)
        if (version := saved.content["code_version"]) != __version__:
            logger.log_warning(
                f"{saved.checkpoint}: was written by version {version}, this is {__version__}: the resumed training "
                "may differ from an uninterrupted one"
            )
        return str(saved.folder), str(saved.checkpoint), saved.content

    found = process_group.run_on_main(find)
    return None if found is None else SavedRun(Path(found[0]), Path(found[1]), found[2])


def finished_summary(point: SavedRun, iterations: int) -> dict[str, Any] | None:
    """Return the summary of a finished run, and write its missing files; None if it is not finished."""
    done, folder = point.content["iteration"], point.folder
    summary = read_object(folder / SUMMARY)
    if done < iterations:
        return None
    logger.log_info(
        f"all {done} iterations are finished; to continue, raise trainer.iterations: trainer.iterations={2 * done}"
    )
    if not summary:
        return None
    remove_unfinished(folder)
    _write_all([writer for writer in _last_files(folder, point.exp_name) if not (folder / writer[0]).exists()])
    was = summary["run_folder"]  # the run may have been moved
    return {name: x.replace(was, str(folder)) if isinstance(x, str) else x for name, x in summary.items()}


def conclude(trainer: Trainer, folder: Path, title: str, wall_seconds: float) -> dict[str, Any]:
    """Write learning curve, summary and report; one that cannot be written is a warning. Return the summary."""
    curve, *others = _last_files(folder, title)
    _write_all([curve])
    summary = _summarise(trainer, folder, wall_seconds)
    _write_all([(SUMMARY, lambda: write_json(folder / SUMMARY, summary, indent=2)), *others])
    return summary


def _last_files(folder: Path, title: str) -> list[tuple[str, Callable[[], object]]]:
    """Return names and writers of the files at the end of a training, without the summary."""
    return [
        (LEARNING_CURVE, lambda: draw_learning_curve(folder / METRICS, folder / LEARNING_CURVE, title)),
        *((name, partial(write, folder)) for name, write in doors.load_all(doors.REPORTS).items()),
    ]


def _write_all(writers: Sequence[tuple[str, Callable[[], object]]]) -> None:
    """Write the files; a failure is a warning."""
    for name, write in writers:
        try:
            write()
        except Exception as error:  # noqa: BLE001 (a full disk, damaged logs: the training is finished)
            logger.log_warning(f"{name} could not be written: {error}")


def _summarise(trainer: Trainer, folder: Path, wall_seconds: float) -> dict[str, Any]:
    result = trainer.last_evaluation
    videos = result.videos if result else []
    peak, curve = peak_memory(), folder / LEARNING_CURVE
    return {
        "success_rate": result.success_rate if result else None,
        "success_once": result.success_once if result else None,
        "success_interval_95": list(result.success_interval) if result and result.success_interval else None,
        "avg_reward": result.avg_reward if result else None,
        "episodes": result.episodes if result else 0,
        "metrics": result.metrics if result else {},
        "train_seconds": round(trainer.train_seconds, 2),
        "wall_seconds": round(wall_seconds, 2),
        "eval_seconds": 0.0 if trainer.evaluator is None else round(trainer.evaluator.seconds, 2),
        "render_seconds": 0.0 if trainer.evaluator is None else round(trainer.evaluator.footage.seconds, 2),
        "env_steps": trainer.global_step,
        "peak_memory_mb": None if peak is None else round(peak / 2**20, 1),
        "run_folder": str(folder),
        "checkpoint": str(trainer.saver.last),
        "video": videos[-1] if videos else None,
        "learning_curve": str(curve) if curve.exists() else None,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print the results of a run."""
    rows = list(_summary_rows(summary))
    width = max(_LEAST_WIDTH, *(len(name) for name, _ in rows))
    for name, text in rows:
        print(f"{name:{width}} {text}")


def _summary_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and texts."""
    rate, interval, metrics = summary["success_rate"], summary["success_interval_95"], summary["metrics"]
    if rate is not None:
        low, high = interval
        yield "success rate", f"{rate:.1%} of {summary['episodes']} episodes (95 % interval {low:.1%} to {high:.1%})"
        yield "success once", f"{summary['success_once']:.1%}, at any step of an episode"
    elif summary["episodes"]:
        yield "return", f"{format_finite(summary['avg_reward'])}, mean of {summary['episodes']} episodes"
    for name, value in metrics.items():
        if (end := metrics.get(f"{name}{AT_END}")) is not None:
            yield name, f"{format_finite(end)} at the end of an episode, {format_finite(value)} on average"
        elif not name.endswith(AT_END):
            yield name, format_finite(value)
    yield "training time", f"{summary['train_seconds']:.1f} s for {summary['env_steps']:,} environment steps"
    yield "wall time", f"{summary['wall_seconds']:.1f} s since the start or the resume, evaluations included"
    if summary["eval_seconds"]:
        rendering = f", of which {summary['render_seconds']:.1f} s for videos" if summary["render_seconds"] else ""
        yield "evaluations", f"{summary['eval_seconds']:.1f} s{rendering}"
    yield "peak memory", format_megabytes(summary["peak_memory_mb"])
    # A failed recorder has warned.
    no_video = (
        "nothing was recorded: add the event record_camera_data to trainer.events.eval, or to another library's task "
        'the kwargs {"render_mode": "rgb_array"}'
        if summary["episodes"]
        else "nothing was evaluated"
    )
    for name, why_not in (("checkpoint", ""), ("video", f": {no_video}"), ("learning_curve", "")):
        yield name.replace("_", " "), str(summary[name] or f"none{why_not}")
    for name, file in (("summary", "summary.json"), ("report", "report.html")):
        path = Path(summary["run_folder"]) / file
        yield name, str(path if path.exists() else "none")
