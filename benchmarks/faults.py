"""Fault tests: kill small trainings, fill their disks, damage their files, and check the guarantees.

    python -m benchmarks.faults                # 120 kills and every other fault: some minutes
    python -m benchmarks.faults --kills 20 --commands 1
    python -m benchmarks.faults --only "disk" "checkpoint"

A training here is a separate process, forked from one that has imported everything, since an import takes seconds; some
(``--commands``) run the real command. Full and read-only disks are small file systems in memory, which only root may
mount; without this permission these rows report it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.fault_cloning import cloning_kind
from benchmarks.fault_operations import KillAt, every_operation, rl_kind
from benchmarks.fault_runs import (
    REPLAY,
    STEPS,
    TINY,
    BrokenPromiseError,
    begin,
    check_equals,
    check_logs,
    check_saves,
    check_segments,
    command,
    expect,
    finish,
    run_of,
    saved,
    start,
    write_config,
)
from embodichain.agents.rl.algo import ppo
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.metrics.sinks import TensorBoardSink
from embodichain.lab.gym.envs import EmbodiedEnv

CAMERA = {
    "func": "record_camera_data_async",
    "mode": "interval",
    "interval_step": 1,
    "params": {"resolution": [64, 48], "eye": [4.5, 0.0, 1.6], "target": [0.0, 0.0, 0.8]},
}

# --- SIGKILL ---


WAYS = ("inside a save's operations", "while a file is written", "at any time", "the real command")


def moment(way: str, folder: Path, run: Path, rng: random.Random) -> Callable[[], bool]:
    """Return the condition at which a training is killed."""
    pointer = run / "checkpoints/latest.json"
    wanted, before = len(saved(folder)) + rng.randint(0, 3), pointer.stat().st_mtime_ns
    delay = rng.uniform(0.0, 0.003 if way == "while a file is written" else 1.0)
    due: list[float] = []

    def has_come() -> bool:
        if way == "while a file is written":
            is_near = len(saved(folder)) >= wanted and any(run.glob("**/*.tmp"))
        else:
            is_near = way == "at any time" or pointer.stat().st_mtime_ns != before
        if is_near and not due:
            due.append(time.monotonic() + delay)
        return bool(due) and time.monotonic() >= due[0]

    return has_come


def kill_campaign(folder: Path, base: dict[str, Any], kills: int, commands: int, rng: random.Random) -> str:
    """Kill one training again and again, each time after a resume."""
    config = write_config(folder, base)
    first = start(folder, "--config", config).wait(lambda: len(saved(folder)) >= 2)
    first.kill()
    ways = dict.fromkeys(
        ("inside a save's operations", "while a file is written", "at any time", "the real command"), 0
    )
    in_save, run = 0, run_of(folder)
    for i in range(kills):
        way = WAYS[3 if i < commands else (0, 1, 0, 2)[i % 4]]
        ways[way] += 1
        if way == "inside a save's operations":
            training = start(folder, "--resume", "latest", prepare=KillAt(rng.randint(1, 80), "outputs").arm).wait()
        else:
            training = (command if way == "the real command" else start)(folder, "--resume", "latest")
            training.wait(moment(way, folder, run, rng))
            expect(not training.is_over(), f"ended by itself with {training.code}: {training.printed[-300:]}")
            training.kill()
        expect(training.code == -signal.SIGKILL, f"ended with {training.code}: {training.printed[-300:]}")
        in_save += any((run / "checkpoints").glob("*.tmp")) or any(run.glob("*.tmp"))
        check_logs(folder, check_saves(folder))
    finish(folder, check_saves(folder) // STEPS + 2)
    expect(not list(run_of(folder).glob("**/*.tmp")), "a temporary file was left behind")
    check_segments(folder)
    counts = ", ".join(f"{n} {way}" for way, n in ways.items() if n)
    return f"{kills} kills ({counts}); {in_save} left a half-written file; the result is that of a run without"


# --- the other faults ---


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a file system in memory on a folder.

    Raises:
        PermissionError: only root may.
    """
    folder.mkdir(parents=True, exist_ok=True)
    call = ["mount", "-t", "tmpfs", "-o", options, "faults", str(folder)]
    if shutil.which("mount") is None or subprocess.run(call, capture_output=True, check=False).returncode:
        raise PermissionError("a file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk(folder: Path) -> str:
    """A full disk: saved files stay, the training continues, its end is an error; a resume repeats what is missing."""
    with mounted(folder / "outputs", "size=400k"):
        config = write_config(folder, keep_last=None)
        training = start(folder, "--config", config, "trainer.iterations=60").wait()
        expect(training.code == 1, f"exit code 1 was promised, got {training.code}: {training.printed[-300:]}")
        expect("error: the training is finished, but its last checkpoint could" in training.printed, training.printed)
        warnings = training.printed.count("could not be written: [Errno 28]")
        expect(warnings > 1, "no warning of each checkpoint that failed")
        expect("Traceback" not in training.printed, training.printed)
        step = check_saves(folder)
        expect(not list(run_of(folder).glob("**/*.tmp")), "a temporary file was left behind")
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder / "outputs")], check=True)
        finish(folder, 60)
    return f"{step // STEPS} of 60 saved, {warnings - 1} warnings, exit code 1; with room again: as without a fault"


def limited_files(folder: Path) -> str:
    """Files that may not grow (RLIMIT_FSIZE): as a full disk, without root."""

    def limit() -> None:
        import resource  # noqa: PLC0415 (in the forked process)

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    training = start(folder, "--config", write_config(folder), "trainer.iterations=4", prepare=limit).wait()
    expect(training.code == 1, f"exit code 1 was promised, got {training.code}: {training.printed[-300:]}")
    expect(training.printed.count("[Errno 27] File too large") == 5, training.printed)
    expect(not list((run_of(folder) / "checkpoints").iterdir()), "something was left of a checkpoint")
    return "4 warnings, exit code 1, no temporary file"


def read_only_place(folder: Path) -> str:
    """No run folder can be created: one line, exit code 2."""
    with mounted(folder / "outputs", "ro,size=1m"):
        training = start(folder, "--config", write_config(folder)).wait()
        expect(training.code == 2, f"exit code 2 was promised, got {training.code}")
        (line,) = training.printed.splitlines()
        expect("cannot be made: Read-only file system" in line, line)
    return "one line, exit code 2"


def read_only_run(folder: Path) -> str:
    """A run's folder that cannot be written any more, found at a resume: one line, exit code 2, nothing changed."""
    begin(folder, 2)
    run = run_of(folder)
    shutil.copytree(run, folder / "copy")
    with mounted(run, "size=8m"):
        shutil.copytree(folder / "copy", run, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(run)], check=True)
        training = start(folder, "--resume", str(run), "trainer.iterations=4").wait()
        expect(training.code == 2, f"exit code 2 was promised, got {training.code}: {training.printed[-300:]}")
        errors = [line for line in training.printed.splitlines() if not line.startswith("[INFO]")]
        expect(len(errors) == 1 and "cannot be written: [Errno 30]" in errors[0], str(errors))
    return "one line, exit code 2"


def checkpoints_turn_read_only(folder: Path) -> str:
    """The folder of checkpoints becomes read-only while the training runs: as a full disk."""
    training = start(folder, "--config", write_config(folder), "trainer.iterations=60")
    training.wait(lambda: len(saved(folder)) >= 3)
    checkpoints = run_of(folder) / "checkpoints"
    with mounted(checkpoints, "ro,size=1m"):
        training.wait()
    expect(training.code == 1, f"exit code 1 was promised, got {training.code}: {training.printed[-300:]}")
    expect("[Errno 30] Read-only file system" in training.printed, training.printed[-300:])
    finish(folder, 60)
    return "warnings, exit code 1; writable again: as without a fault"


def killed_encoder(folder: Path) -> str:
    """The video's encoder is killed: the video is lost, and nothing else."""
    config = write_config(folder, events={"train": {"camera": CAMERA}})
    training = start(folder, "--config", config, "trainer.iterations=60")
    killed: list[int] = []

    def kill_ffmpeg() -> bool:
        for child in Path(f"/proc/{training.pid}/task/{training.pid}/children").read_text().split():
            if b"ffmpeg" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
                killed.append(int(child))
        return bool(killed)

    training.wait(lambda: len(saved(folder)) >= 3)
    training.wait(kill_ffmpeg).wait()
    expect(killed, "there was no encoder (no OpenGL here?): " + training.printed[-300:])
    expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
    warnings = [line for line in training.printed.splitlines() if line.startswith("[WARNING]")]
    expect(len(warnings) == 1 and "ffmpeg was killed by signal 9" in warnings[0], str(warnings))
    check_logs(folder, check_saves(folder))
    return "one warning, exit code 0, everything else is there"


def dying_log(folder: Path) -> str:
    """TensorBoard's folder is deleted: that log is lost, with one warning, and nothing else."""
    training = start(folder, "--config", write_config(folder), "trainer.iterations=60")
    training.wait(lambda: len(saved(folder)) >= 3)
    shutil.rmtree(run_of(folder) / "logs")
    expect(training.wait().code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
    expect(training.printed.count("[WARNING] TensorBoard has failed at step") == 1, training.printed[-300:])
    expect(len((run_of(folder) / "metrics.jsonl").read_text().splitlines()) == 60, "metrics.jsonl is not complete")
    return "one warning, exit code 0, metrics.jsonl complete"


def raising_sink(folder: Path) -> str:
    """A log that raises any exception: the same."""

    def prepare() -> None:
        def fail(self: TensorBoardSink, scalars: dict[str, float], step: int) -> None:
            raise ValueError("a library's own trouble")

        TensorBoardSink.write = fail  # type: ignore[method-assign]

    training = start(folder, "--config", write_config(folder), "trainer.iterations=3", prepare=prepare).wait()
    expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
    expect(training.printed.count("TensorBoard has failed at step 8: a library's own trouble") == 1, training.printed)
    return "one warning, exit code 0"


def wandb_without_network(folder: Path) -> str:
    """W&B with an account and without a network: it logs offline, with a message."""
    try:
        import wandb  # noqa: F401, PLC0415 (an optional extra)
    except ImportError as error:
        raise PermissionError("wandb is not installed; the unit tests have a fake module") from error

    def prepare() -> None:
        os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "5"}

    config = write_config(folder, use_wandb=True)
    training = start(folder, "--config", config, "trainer.iterations=3", prepare=prepare).wait()
    expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-500:]}")
    expect(training.printed.count("Weights & Biases cannot be reached") == 1, training.printed[-500:])
    expect(list((run_of(folder) / "wandb").glob("offline-run-*")), "nothing was logged offline")
    return "one warning, exit code 0, logged offline"


def damaged_checkpoints(folder: Path, rng: random.Random, count: int = 12) -> str:
    """Cut off, flipped and empty files: each time the one before it is used, with a message."""
    begin(folder, 4)
    run = run_of(folder)
    shutil.copytree(run, folder / "before")
    for i in range(count):
        latest = run / "checkpoints/tiny_step_32.pt"
        data = bytearray(latest.read_bytes())
        if i % 3 == 0:
            data = data[: rng.randrange(len(data))]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        latest.write_bytes(data)
        training = start(folder, "--resume", "latest").wait()
        expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
        expect(f"{latest.relative_to(folder)}: damaged" in training.printed, training.printed)
        expect("continuing from" in training.printed and "tiny_step_24.pt" in training.printed, training.printed)
        check_logs(folder, check_saves(folder))
    (folder / "again").mkdir()
    (folder / "again/outputs").mkdir()
    (folder / "before").rename(folder / "again/outputs" / run.name)
    check_equals(folder, folder / "again")
    return f"{count} damaged files: each time the one before it, and a word; the result is the same"


# --- NaN and infinite values ---


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's ``metrics.jsonl``."""
    return [json.loads(line) for line in (run_of(folder) / "metrics.jsonl").read_text().splitlines()]


def invalid_physics(folder: Path) -> str:
    """A NaN action in one environment's step: its episode ends and is counted, and nothing else changes."""

    def prepare() -> None:
        step, count = EmbodiedEnv.step, iter(range(1_000_000))

        def step_or_spoil(self: EmbodiedEnv, action: torch.Tensor) -> Any:
            if next(count) == 30:  # after the 16 steps of the warm-up, in the fourth iteration of 4
                action = action.clone()
                action[1] = float("nan")
            return step(self, action)

        EmbodiedEnv.step = step_or_spoil  # type: ignore[method-assign]

    training = start(folder, "--config", write_config(folder), "trainer.iterations=6", prepare=prepare).wait()
    expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
    counts = [row["charts/diverged_episodes"] for row in rows_of(folder)]
    expect(counts == [0, 0, 0, 1, 0, 0], f"one episode was to be counted, in the fourth iteration: {counts}")
    saved_policy = CheckpointFolder(run_of(folder) / "checkpoints", "").load_latest()[1]["policy"]
    expect(all(value.isfinite().all() for value in saved_policy.values()), "the policy is not finite")
    return "that episode counted once, exit code 0, the policy finite"


def spoiled_updates(folder: Path, spoil: Callable[[torch.Tensor, Any], torch.Tensor]) -> str:
    """A NaN loss or gradient: that step is skipped, counted and saved; many in a row end the run."""

    def spoiling(first: int, last: int) -> Callable[[], None]:
        def prepare() -> None:
            step, count = ppo.gradient_step, iter(range(1_000_000))

            def step_or_spoil(optimizer: Any, parameters: Any, loss: torch.Tensor, max_norm: float) -> torch.Tensor:
                own = list(parameters)
                return step(optimizer, own, spoil(loss, own) if first <= next(count) <= last else loss, max_norm)

            ppo.gradient_step = step_or_spoil

        return prepare

    config = write_config(folder)
    training = start(folder, "--config", config, "trainer.iterations=5", prepare=spoiling(2, 2)).wait()
    expect(training.code == 0, f"exit code 0 was promised, got {training.code}: {training.printed[-300:]}")
    skipped = [row["train/skipped_steps"] for row in rows_of(folder)]
    expect(skipped == [0, 0, 1, 0, 0], f"one step was to be skipped, in the third iteration: {skipped}")
    expect(training.printed.count("gradient steps skipped") == 1, training.printed)
    expect(list((run_of(folder) / "bundles").iterdir()), "there is no bundle")
    endless = folder / "endless"
    endless.mkdir()
    training = start(endless, "--config", f"../{config}", prepare=spoiling(2, 1_000_000)).wait()
    expect(training.code == 1, f"exit code 1 was promised, got {training.code}: {training.printed[-300:]}")
    expect("Traceback" not in training.printed, training.printed)
    expect(list((run_of(endless) / "bundles").iterdir()), "there is no bundle")
    check_logs(endless, check_saves(endless))
    return "once: skipped, counted, a bundle, exit code 0; each time: a bundle, exit code 1"


# --- the table ---


@dataclass
class Row:
    """A line of the table."""

    fault: str
    outcome: str = ""
    seconds: float = 0.0
    verdict: str = field(default="as promised")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the fault tests; return 0 if every guarantee holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--commands", type=int, default=6, help="number of kills of the real command")
    parser.add_argument("--most", type=int, metavar="N", help="of the kills at every file operation, evenly spread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="parts of the names of faults")
    args = parser.parse_args(argv)
    rng = random.Random(args.seed)
    cases: dict[str, Callable[[Path], str]] = {
        "SIGKILL": lambda folder: kill_campaign(folder, TINY, args.kills, args.commands, rng),
        "SIGKILL with a replay buffer": lambda folder: kill_campaign(
            folder, REPLAY, min(args.kills, 20), min(args.commands, 2), rng
        ),
        "kills at every file operation of PPO": lambda folder: every_operation(
            folder, rl_kind(folder, TINY, 4), args.most
        ),
        "kills at every file operation of SAC": lambda folder: every_operation(
            folder, rl_kind(folder, REPLAY, 4), args.most
        ),
        "kills at every file operation of a cloning": lambda folder: every_operation(
            folder, cloning_kind(folder, 5), args.most
        ),
        "damaged checkpoints": lambda folder: damaged_checkpoints(folder, rng),
        "full disk": full_disk,
        "files that may not grow (full disk without root)": limited_files,
        "read-only disk: start": read_only_place,
        "read-only disk: resume": read_only_run,
        "read-only disk: checkpoints in mid-run": checkpoints_turn_read_only,
        "video encoder killed": killed_encoder,
        "TensorBoard's folder deleted": dying_log,
        "log that raises": raising_sink,
        "NaN in the physics": invalid_physics,
        "NaN in the loss": lambda folder: spoiled_updates(folder, lambda loss, own: loss * float("nan")),
        # The square root of 0 is 0, and its derivative there infinite.
        "NaN in a gradient": lambda folder: spoiled_updates(
            folder, lambda loss, own: loss + (own[0].sum() * 0.0).sqrt()
        ),
        "W&B without network": wandb_without_network,
    }
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of each run that was truncated
    rows = []
    print(f"{'fault':50} {'verdict':13} {'s':>6}  outcome")
    for name, case in cases.items():
        if not any(word in name for word in args.only):
            continue
        row, since = Row(name), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                row.outcome = case(Path(folder))
            except BrokenPromiseError as broken:
                row.outcome, row.verdict = str(broken), "BROKEN"
            except PermissionError as error:
                row.outcome, row.verdict = str(error), "not possible"
        row.seconds = round(time.monotonic() - since, 1)
        rows.append(row)
        print(f"{row.fault:50} {row.verdict:13} {row.seconds:>6.1f}  {row.outcome}", flush=True)
    print(json.dumps({"kills": args.kills, "seed": args.seed, "rows": [vars(row) for row in rows]}))
    return int(any(row.verdict == "BROKEN" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
