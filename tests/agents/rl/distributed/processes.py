"""Runs functions in several processes that have joined, for the tests of what they share."""

import io
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.distributed.process_group import RENDEZVOUS, join_process_group

# A server that has imported everything once, and forks the processes: seconds less for each.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["embodichain.agents.rl.train", "tests.agents.rl.fakes"])


class RankError(Exception):
    """A process has raised; the text is its traceback."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    values = (rank, rank, world_size, world_size, "127.0.0.1", port)
    return dict(zip(names, map(str, values), strict=True))


def start_ranks(
    world_size: int, function: Callable[..., Any], *args: Any, joined: bool = True, folder: Path | None = None
) -> list[tuple[Any, Connection]]:
    """Start ``function(ranks, *args)`` in each process; return the processes and where their results arrive.

    Args:
        world_size: how many.
        function: at the top of a module.
        args: for all alike.
        joined: False: the function joins by itself; its first argument is then the rank.
        folder: they meet in it, as those of ``start_local_processes``; None: by network.
    """
    port, started = free_port(), []
    for rank in range(world_size):
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        variables = environment(rank, world_size, port)
        if folder is not None:
            variables |= {RENDEZVOUS: str(folder), "GLOO_SOCKET_IFNAME": "lo"}
        target = (variables, joined, sender, function, args)
        process = _CONTEXT.Process(target=_work, args=target, daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    return started


def run_ranks(
    world_size: int, function: Callable[..., Any], *args: Any, joined: bool = True, folder: Path | None = None
) -> list[Any]:
    """Run a function in each process, and return the results by rank.

    Raises:
        RankError: one has raised, or taken more than two minutes.
    """
    started = start_ranks(world_size, function, *args, joined=joined, folder=folder)
    try:
        results = [receive(receiver) for _, receiver in started]
    finally:
        for process, _ in started:
            process.join(5)
            process.kill()
    for result in results:
        if isinstance(result, RankError):
            raise result
    return results


def receive(receiver: Connection, seconds: float = 120.0) -> Any:
    """Return a process's result, a RankError, or None where it ended without any."""
    if not wait([receiver], seconds):
        return RankError("no result in time")
    try:
        return torch.load(io.BytesIO(receiver.recv_bytes()), weights_only=False)
    except EOFError:
        return None


def _work(
    variables: dict[str, str], joined: bool, sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ |= variables
    torch.set_num_threads(1)
    torch.manual_seed(int(variables["RANK"]))
    try:
        if joined:
            with join_process_group() as process_group:
                process_group.use(torch.device("cpu"), 30.0)
                result = function(process_group, *args)
        else:
            result = function(int(variables["RANK"]), *args)
    except BaseException:  # noqa: BLE001 (whatever it is, the test is told)
        result = RankError(traceback.format_exc())
    # Tensors that multiprocessing itself sends are lost with their process.
    buffer = io.BytesIO()
    torch.save(result, buffer)
    sender.send_bytes(buffer.getvalue())
    sender.close()
