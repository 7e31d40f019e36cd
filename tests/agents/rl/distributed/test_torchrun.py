"""Trainings in processes that are really started, also by torchrun: each imports everything anew, for seconds."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import main, train_from_config
from tests.agents.rl.distributed.processes import run_ranks
from tests.agents.rl.fakes import assert_same, only_run, tiny_config, write_config

ROOT = Path(__file__).resolve().parents[4]
MODULE = "tests.agents.rl.distributed.faults"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TRAIN = ["-m", "embodichain.agents.rl.train", "--config", "train_config.json", "--distributed"]
PATIENCE = 300.0  # s; far more than they need on an idle machine


def environment(**others: str) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "EMBODICHAIN_ALLOW_IMPORT": "tests", "OMP_NUM_THREADS": "1"}
    return dict(os.environ) | own | others


def write(folder: Path, algorithm: str, iterations: int, **changes: Any) -> None:
    config = tiny_config(
        trainer__iterations=iterations,
        trainer__enable_eval=False,
        trainer__save_freq="1 it",
        trainer__import_modules=[MODULE],
        algorithm__name=algorithm,
        **changes,
    )
    write_config(folder, config)


def steps(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def train_undisturbed(rank: int, folder: Path) -> str:
    os.chdir(folder)
    return str(train_from_config("train_config.json", True, ["trainer.import_modules=[]"])["checkpoint"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Return the policy that two processes, which met by network, have after five iterations of PPO."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write(folder, "ppo", 5)
    checkpoint = run_ranks(2, train_undisturbed, folder, joined=False)[0]
    policy: dict[str, torch.Tensor] = load_checkpoint(folder / checkpoint)["policy"]
    return policy


@pytest.mark.e2e
def test_training_goes_on_by_itself_after_a_kill(tmp_path: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    write(tmp_path, "ppo_killed", 5)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=2", *TRAIN]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    run = only_run(tmp_path)
    assert steps(run) == [16 * i for i in range(1, 6)]
    assert done.stderr.count("continuing from") == 1
    assert "exitcode: -9" in done.stderr
    assert_same(load_checkpoint(run / "checkpoints/tiny_step_80.pt")["policy"], undisturbed)


@pytest.mark.e2e
def test_local_processes_train_as_those_that_met_by_network(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    undisturbed: dict[str, torch.Tensor],
) -> None:
    write(tmp_path, "ppo", 5)
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    assert main(["--config", "train_config.json", "--processes", "2"]) == 0
    assert steps(only_run(tmp_path)) == [16 * i for i in range(1, 6)]
    assert capfd.readouterr().out.count("peak memory") == 1
    assert_same(load_checkpoint(only_run(tmp_path) / "checkpoints/tiny_step_80.pt")["policy"], undisturbed)


# --- two machines: network namespaces, joined by a cable ---


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Machines:
    """Two network namespaces; machine i has the address 10.231.77.<i + 1>."""

    def __init__(self) -> None:
        self.names = [f"embodichain{os.getpid()}{letter}" for letter in "ab"]
        self.cables = [f"ec{os.getpid()}{letter}"[:15] for letter in "ab"]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.cables[0], "type", "veth", "peer", "name", self.cables[1])
        for i, (name, cable) in enumerate(zip(self.names, self.cables, strict=True)):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def address(self, i: int) -> str:
        return f"10.231.77.{i + 1}"

    def start(self, i: int, command: list[str], folder: Path) -> subprocess.Popen[str]:
        with (folder / f"machine_{i}.log").open("w") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.names[i], *command],
                cwd=folder,
                env=environment(GLOO_SOCKET_IFNAME=self.cables[i]),
                stdout=log,
                stderr=log,
                text=True,
            )

    def cut(self, i: int) -> None:
        ip("-n", self.names[i], "link", "set", self.cables[i], "down")

    def remove(self) -> None:
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)


@pytest.fixture
def machines() -> Iterator[Machines]:
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip (Debian: iproute2)")
    try:
        made = Machines()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.decode().strip()}")
    yield made
    made.remove()


def wait_for(what: Callable[[], bool], processes: list[subprocess.Popen[str]], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        ended = any(process.poll() not in (None, 0) for process in processes)
        if ended or time.monotonic() > deadline:
            logs = "\n".join(path.read_text() for path in sorted(folder.glob("machine_*.log")))
            pytest.fail(f"{'a process has ended' if ended else 'nothing in time'}\n{logs}")
        time.sleep(0.05)


@pytest.mark.e2e
def test_one_of_two_machines_continues_without_the_other(machines: Machines, tmp_path: Path) -> None:
    write(tmp_path, "ppo_waiting", 6, trainer__hang_seconds=3)
    processes = []
    for i in (0, 1):
        command = [
            *TORCHRUN,
            "--nnodes=1:2",
            "--nproc-per-node=1",
            "--max-restarts=3",
            "--rdzv-backend=c10d",
            "--rdzv-id=two_machines",
            f"--rdzv-endpoint={machines.address(0)}:29400",
            f"--rdzv-conf=is_host={1 - i},last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=6",
            f"--local-addr={machines.address(i)}",
            *TRAIN,
        ]
        processes.append(machines.start(i, command, tmp_path))
    try:
        wait_for(lambda: all((tmp_path / f"waiting_{rank}").exists() for rank in (0, 1)), processes, tmp_path)
        # Two iterations of 2 x 2 environments, 4 steps each.
        assert steps(only_run(tmp_path)) == [16, 32]
        machines.cut(1)
        (tmp_path / "machine_lost").touch()
        wait_for(lambda: processes[0].poll() == 0, processes[:1], tmp_path)
    finally:
        for process in processes:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
    run = only_run(tmp_path)
    # Four more of 2 environments alone.
    assert steps(run) == [16, 32, 40, 48, 56, 64]
    log = (tmp_path / "machine_0.log").read_text()
    assert "has lost the connection to another process" in log
    assert "the run had 2 processes and now has 1" in log
    content = load_checkpoint(run / "checkpoints/tiny_step_64.pt")
    assert content["world_size"] == 1
