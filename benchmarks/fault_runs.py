"""Small trainings in separate processes, and checks of their folders, for the fault tests."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from embodichain.agents.rl import train
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.utils.utility import load_json

CONFIG = Path(__file__).resolve().parents[1] / "configs/agents/rl/basic/cart_pole/gym_config.json"
NETWORK = {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "tanh"}}
# 2 environments x 4 steps: 8 steps an iteration, and a checkpoint after each.
TINY: dict[str, Any] = {
    "trainer": {
        "exp_name": "tiny",
        "gym_config": str(CONFIG),
        "device": "cpu",
        "num_envs": 2,
        "iterations": 1_000_000,
        "buffer_size": 4,
        "save_freq": "1 it",
        "keep_last": 3,
    },
    "policy": {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True},
    "algorithm": {"name": "ppo", "cfg": {"n_epochs": 1, "batch_size": 8}},
}
STEPS = 8
# SAC, whose ring of 32 + 2 * 4 + 2 slots of each environment is full after 11 iterations; episodes of 9 steps at most.
REPLAY: dict[str, Any] = {
    "trainer": TINY["trainer"] | {"gym_config": load_json(CONFIG) | {"max_episode_steps": 9}},
    "policy": {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True},
    "algorithm": {
        "name": "sac",
        "cfg": {"batch_size": 8, "n_steps": 3, "replay_capacity": 64, "learning_starts": 16, "updates_per_step": 0.25},
    },
}


class BrokenPromiseError(AssertionError):
    """A guarantee that does not hold."""


def expect(holds: object, what: str) -> None:
    """Raise BrokenPromiseError with a message unless a condition holds."""
    if not holds:
        raise BrokenPromiseError(what)


# --- trainings in forked processes ---


@dataclass
class Training:
    """A training that was started in a folder.

    Attributes:
        folder: its working directory.
        pid: of the process.
        code: its exit code, negative for a signal; None while it runs.
    """

    folder: Path
    pid: int
    code: int | None = None

    @property
    def printed(self) -> str:
        """Its output so far."""
        return (self.folder / "terminal.txt").read_text(encoding="utf-8", errors="replace")

    def is_over(self) -> bool:
        """Return whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def wait(self, until: Callable[[], bool] = lambda: False, timeout: float = 180.0) -> Training:
        """Wait for a condition or the end of the training; kill one that hangs.

        Raises:
            BrokenPromiseError: it hangs.
        """
        end = time.monotonic() + timeout
        while not self.is_over() and not until():
            if time.monotonic() > end:
                self.kill()
                raise BrokenPromiseError(f"hangs: nothing within {timeout:.0f} s")
            time.sleep(0.0002)
        return self

    def kill(self) -> None:
        """SIGKILL it, and wait for its end."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start(
    folder: Path,
    *arguments: str,
    prepare: Callable[[], object] = lambda: None,
    main: Callable[[Sequence[str]], int] = train.main,
) -> Training:
    """Start a command in a folder; ``prepare`` is called in its process first.

    Args:
        folder: the working directory.
        arguments: of the command.
        prepare: called before it.
        main: the command: that of trainings, or another.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return Training(folder, pid)
    code = 70
    try:
        terminal = os.open(folder / "terminal.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(terminal, 1)
        os.dup2(terminal, 2)
        os.chdir(folder)
        journal = os.open("journal.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        save = CheckpointFolder.save

        def note(self: CheckpointFolder, content: dict[str, Any], step: int, *rest: Any) -> Path:
            path = save(self, content, step, *rest)
            os.write(journal, f"{step}\n".encode())  # so a save is finished
            return path

        CheckpointFolder.save = note  # type: ignore[method-assign]
        prepare()
        code = main(list(arguments))
        sys.stdout.flush()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 (the process ends below, come what may)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def command(folder: Path, *arguments: str) -> Training:
    """Start the real command in a folder."""
    with (folder / "terminal.txt").open("w") as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "embodichain.agents.rl.train", *arguments],
            cwd=folder,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
    process.returncode = 0  # it is waited for by its number
    return Training(folder, process.pid)


def write_config(folder: Path, base: dict[str, Any] = TINY, **trainer: Any) -> str:
    """Write a config, by default the tiny one, with changes in its trainer block; return its name."""
    config = copy.deepcopy(base)
    config["trainer"] |= trainer
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return "config.json"


def begin(folder: Path, iterations: int) -> None:
    """Train without a fault, as the start of a test."""
    training = start(folder, "--config", write_config(folder), f"trainer.iterations={iterations}").wait()
    expect(training.code == 0, training.printed)


def run_of(folder: Path) -> Path:
    """Return the only run in a folder."""
    (run,) = (folder / "outputs").iterdir()
    return run


def saved(folder: Path) -> list[int]:
    """Return the steps of the saves that were finished."""
    journal = folder / "journal.txt"
    return [int(line) for line in journal.read_text().splitlines()] if journal.exists() else []


# --- what is true of a run at any moment ---


def check_saves(folder: Path) -> int:
    """Return the step of the latest checkpoint, which must be complete and no older than the last finished save."""
    done, run = saved(folder), run_of(folder)
    pointer = json.loads((run / "checkpoints/latest.json").read_text(encoding="utf-8"))
    content = load_checkpoint(run / "checkpoints" / pointer["file"])
    expect(content["global_step"] == pointer["step"], "latest.json and its file name different steps")
    expect(pointer["step"] >= max(done), f"the save of step {max(done)} is lost: latest is {pointer['step']}")
    return int(pointer["step"])


def check_logs(folder: Path, upto: int) -> None:
    """Check that both logs have every step up to one, once each."""
    run = run_of(folder)
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    steps = [json.loads(line)["step"] for line in lines if line.endswith("\n")]
    expect(len(steps) == len(set(steps)), f"metrics.jsonl has steps twice: {steps}")
    expect(steps == list(range(STEPS, steps[-1] + 1, STEPS)), f"metrics.jsonl has gaps: {steps}")
    expect(steps[-1] >= upto, f"metrics.jsonl ends at {steps[-1]}, the checkpoint is of step {upto}")
    events = EventAccumulator(str(run / "logs"), size_guidance={"scalars": 0}).Reload()
    shown = [event.step for event in events.Scalars("charts/SPS")]
    expect(len(shown) == len(set(shown)), f"TensorBoard has steps twice: {sorted(shown)}")
    expect(set(range(STEPS, upto + 1, STEPS)) <= set(shown), f"TensorBoard lacks steps up to {upto}: {sorted(shown)}")


def check_segments(folder: Path) -> None:
    """Check that all segments of replay buffers are there that a checkpoint names, and no others."""
    checkpoints = run_of(folder) / "checkpoints"
    stores = [load_checkpoint(path)["stores"] for path in checkpoints.glob("*.pt")]
    needed = {entry["file"] for buffers in stores for store in buffers.values() for entry in store["segments"]}
    present = {path.name for path in checkpoints.glob("replay/*")}
    expect(present == needed, f"the segments are {sorted(present)}, needed are {sorted(needed)}")


def check_equals(folder: Path, whole: Path) -> None:
    """Check that two finished runs reached the same policy, bit for bit, with the same metrics."""
    ours, theirs = (CheckpointFolder(run_of(path) / "checkpoints", "").load_latest()[1] for path in (folder, whole))
    expect(ours["global_step"] == theirs["global_step"], "the runs have different lengths")
    counts = [{name: str(store["state"]) for name, store in run["stores"].items()} for run in (ours, theirs)]
    expect(counts[0] == counts[1], f"the replay buffers have {counts[0]}, without faults {counts[1]}")
    same = all(torch.equal(value, theirs["policy"][name]) for name, value in ours["policy"].items())
    expect(same, "the policy differs from that of a run without faults")
    rows = []
    for path in (folder, whole):
        lines = [json.loads(line) for line in (run_of(path) / "metrics.jsonl").read_text().splitlines()]
        times = ("wall_time", "charts/SPS", "time/")
        rows.append([{k: v for k, v in line.items() if not k.startswith(times)} for line in lines])
    expect(rows[0] == rows[1], "the metrics differ from those of a run without faults")


def finish(folder: Path, iterations: int) -> None:
    """Resume a run to its end, and compare it with one of the same config without faults."""
    end = f"trainer.iterations={iterations}"
    training = start(folder, "--resume", "latest", end).wait()
    expect(training.code == 0, f"the resume ended with {training.code}: {training.printed[-300:]}")
    check_logs(folder, check_saves(folder))
    whole = folder / "whole"
    whole.mkdir()
    undisturbed = start(whole, "--config", "../config.json", end).wait()
    expect(undisturbed.code == 0, "the run to compare with failed")
    check_equals(folder, whole)
