"""The process group of a training: collective operations of its processes.

``get_process_group()`` returns the group of all processes of the training; with one process nothing is shared, and the
same calls return what they were given. Results are the same on every rank to the last bit.

Legend: W processes; n samples of size O; ... any shape.
"""

import atexit
import hashlib
import io
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.utils import CommandFailedError, ConfigError
from embodichain.utils.border import discard_unwritten_output
from embodichain.utils.system import let_others_run

T = TypeVar("T")

RENDEZVOUS = "EMBODICHAIN_RENDEZVOUS"
"""The environment variable with the folder in which the processes of one machine meet; unset: they meet by network."""

BUCKET_BYTES = 4 * 2**20  # of a bucket of gradients, about
_JOIN_SECONDS = 300.0  # for processes that have not started yet
_ADOPTED_LIMIT = 1800.0  # s, torch's own limit
# s; a process polls for so long before it sleeps until it is woken. Minibatches keep the processes within some
# milliseconds of each other, and waking 64 times an update cost 6 % of two processes' time.
_AWAKE = 0.01


class LostProcessError(CommandFailedError):
    """Another process of the training has ended, or cannot be reached."""


class ProcessGroup:
    """One process: nothing is shared. Several are :class:`TorchProcessGroup`."""

    rank = 0  # number of this process
    world_size = 1  # W

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which logs and saves."""
        return self.rank == 0

    def use(self, device: torch.device, hang_seconds: float) -> None:
        """Set up for work on all ranks; a process waits ``hang_seconds`` for the others."""

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the ranks' tensors, of one shape and type."""
        return x

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of the ranks' tensors, of one shape and type."""
        return self.sum(x) / self.world_size

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """Return the ranks' tensors, of one shape and type, stacked: [W, ...]."""
        return x.unsqueeze(0)

    def gather_data(self, data: T, only_to_main: bool = False) -> list[T]:
        """Return each rank's tensors, numbers, texts and containers of them; ``only_to_main``: on rank 0 alone."""
        return [data]

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy rank 0's tensors to all ranks."""

    def broadcast_data(self, data: T) -> T:
        """Return what rank 0 has: tensors, numbers, texts and containers of them."""
        return data

    def run_on_main(self, function: Callable[[], T]) -> T:
        """Run a function on rank 0 alone, and return its result (or raise its ConfigError) on all."""
        result: T | None = None
        error: ConfigError | None = None
        if self.is_main:
            try:
                result = function()
            except ConfigError as caught:
                error = caught
        message, result = self.broadcast_data((None if error is None else str(error), result))
        if message is not None:
            raise error or ConfigError(message)
        return result  # type: ignore[return-value]

    def average_gradients(self, parameters: Iterable[nn.Parameter], samples: torch.Tensor | None = None) -> None:
        """Average the gradients over all ranks; a missing one counts as 0, or stays None where all ranks lack it.

        Args:
            parameters: the same on all ranks, in the same order.
            samples: number of samples that this rank's loss is a mean of, a scalar; where it is 0, the gradients do
                not count, whatever they are. None: all ranks have the same number.
        """
        if self.world_size == 1:
            return
        for bucket in _buckets(p for p in dict.fromkeys(parameters) if p.requires_grad):
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            has_gradient = torch.tensor([p.grad is not None for p in bucket]).to(gradients[0])
            flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), has_gradient])
            if samples is None:
                mean = self.mean(flat)
            else:
                weight = samples.detach().reshape(1).to(flat)
                total = self.sum(torch.cat((torch.where(weight > 0, flat * weight, 0.0), weight)))
                mean = total[:-1] / total[-1].clamp(min=1)
            *pieces, shares = mean.split([*(gradient.numel() for gradient in gradients), len(bucket)])
            torch._foreach_copy_(gradients, [new.view_as(old) for new, old in zip(pieces, gradients, strict=True)])
            if any(p.grad is None for p in bucket):
                for p, gradient, share in zip(bucket, gradients, shares.tolist(), strict=True):
                    p.grad = gradient if share else None  # a zero would let weight decay shrink the parameter

    def differing(self, tensors: Mapping[str, torch.Tensor]) -> list[str]:
        """Return the names of those tensors that are not the same on all ranks, by checksums of their bits."""
        if self.world_size == 1:
            return []
        sums = self.gather(torch.stack([_checksum(tensor) for tensor in tensors.values()]))
        return [name for name, differs in zip(tensors, (sums != sums[0]).any(0).tolist(), strict=True) if differs]


class TorchProcessGroup(ProcessGroup):
    """The processes of a ``torch.distributed`` group.

    Tensors on the CPU are sent by gloo, those on a GPU by NCCL.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._gloo: dist.ProcessGroup | None = None  # the default one
        self._nccl: dist.ProcessGroup | None = None  # for tensors on GPUs

    def use(self, device: torch.device, hang_seconds: float) -> None:
        """See ``ProcessGroup``."""
        timeout = timedelta(seconds=hang_seconds)
        self._gloo = dist.new_group(backend="gloo", timeout=timeout)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            self._nccl = dist.new_group(backend="nccl", timeout=timeout)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """See ``ProcessGroup``."""
        total = x.detach().clone()
        self._finish(dist.all_reduce(total, group=self._group(total), async_op=True), "sum", total)
        return total

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """See ``ProcessGroup``."""
        parts = x.new_empty((self.world_size, *x.shape))
        own = x.detach().contiguous()
        self._finish(dist.all_gather(list(parts), own, group=self._group(own), async_op=True), "gather", own)
        return parts

    def gather_data(self, data: T, only_to_main: bool = False) -> list[T]:
        """See ``ProcessGroup``."""
        own = _packed(data)
        sizes = self.gather(torch.tensor(len(own))).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(own)] = own
        if not only_to_main:
            parts = self.gather(padded)
        else:
            parts = padded.new_empty((self.world_size if self.is_main else 0, len(padded)))
            pieces = list(parts) if self.is_main else None
            work = dist.gather(padded, pieces, dst=0, group=self._gloo, async_op=True)
            self._finish(work, "gather_data", padded)
        return [_unpacked(part[:size]) for part, size in zip(parts, sizes, strict=False)]

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """See ``ProcessGroup``."""
        for tensor in tensors:
            contiguous = tensor.detach().contiguous()
            work = dist.broadcast(contiguous, src=0, group=self._group(contiguous), async_op=True)
            self._finish(work, "broadcast", contiguous)
            tensor.detach().copy_(contiguous)

    def broadcast_data(self, data: T) -> T:
        """See ``ProcessGroup``."""
        own = _packed(data if self.is_main else None)
        size = torch.tensor(len(own))
        self.broadcast([size])
        content = own if self.is_main else torch.empty(int(size), dtype=torch.uint8)
        self.broadcast([content])
        received: T = _unpacked(content)
        return received

    def _group(self, x: torch.Tensor) -> dist.ProcessGroup | None:
        return self._gloo if x.device.type == "cpu" else self._nccl

    def _finish(self, work: Any, what: str, x: torch.Tensor) -> None:
        """Wait for an operation; raise a LostProcessError if it cannot succeed."""
        if x.device.type != "cpu":
            work.wait()  # on the device; the host continues
            return
        since = time.monotonic()
        while not work.is_completed() and time.monotonic() - since < _AWAKE:
            let_others_run()
        try:
            work.wait()
        except RuntimeError as error:
            raise LostProcessError(
                f"rank {self.rank} has lost the connection to another process during '{what}' (that process says why; "
                f"{str(error).splitlines()[0]})"
            ) from error


_PROCESS_GROUP = ProcessGroup()


def get_process_group() -> ProcessGroup:
    """Return the processes that share this training: this one alone, unless several have joined or been adopted."""
    return _PROCESS_GROUP


def adopt_process_group(device: torch.device) -> ProcessGroup:
    """Return the processes of the group that the program itself has initialized; on all ranks.

    Only that group's own time limits apply. Inside ``join_process_group``, return its group instead.
    """
    global _PROCESS_GROUP
    if isinstance(_PROCESS_GROUP, TorchProcessGroup):
        return _PROCESS_GROUP
    if not (dist.is_available() and dist.is_initialized()):
        raise ConfigError(
            "distributed=True: the processes have not met: call torch.distributed.init_process_group() first, or enter "
            "join_process_group()"
        )
    process_group = TorchProcessGroup()
    process_group.use(device, _ADOPTED_LIMIT)  # the program's own group may be of one kind alone
    _PROCESS_GROUP = process_group
    return process_group


def forget_process_group() -> None:
    """Return to a single process after an adopted process group; inside ``join_process_group`` nothing changes."""
    global _PROCESS_GROUP
    if isinstance(_PROCESS_GROUP, TorchProcessGroup) and not dist.is_initialized():
        _PROCESS_GROUP = ProcessGroup()


@contextmanager
def stopping_together(process_group: ProcessGroup) -> Iterator[None]:
    """Run a block without collective operations; a signal to one rank raises InterruptedTraining on all at its end."""
    number = 0
    try:
        yield
    except InterruptedTraining as stop:
        number = stop.number
    number = int(process_group.gather(torch.tensor(number)).max())
    if number:
        raise InterruptedTraining(number)


@contextmanager
def join_process_group() -> Iterator[TorchProcessGroup]:
    """Meet the other processes, as ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` say (see torchrun).

    With ``RENDEZVOUS`` in the environment they meet in that folder instead, and no store listens on the network.

    An exception in the block ends all processes, and is reported to torchrun if that started them.
    """
    global _PROCESS_GROUP
    store: Store
    if (folder := os.environ.get(RENDEZVOUS)) is None:
        store, rank, world_size = next(rendezvous("env://"))
    else:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = FileStore(f"{folder}/store", world_size)
    store = PrefixStore(_agree_on_name(store, rank, world_size), store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    _PROCESS_GROUP = process_group = TorchProcessGroup()
    try:
        yield process_group
        # Rank 0 may have the store, which all need until the end.
        process_group.sum(torch.zeros(()))
        dist.destroy_process_group()
    except LostProcessError:
        # The operation that has failed cannot be taken back, and the interpreter would wait for it.
        atexit.register(_exit_at_once)
        raise
    except Exception as error:
        get_error_handler().record_exception(error)
        raise
    finally:
        _PROCESS_GROUP = ProcessGroup()


def _agree_on_name(store: Store, rank: int, world_size: int) -> str:
    """Return a name that only the processes of this start share: torchrun's store outlives a restart, with its keys."""
    greetings = [f"embodichain/greeting/{r}" for r in range(world_size)]
    store.set(greetings[rank], uuid.uuid4().hex)
    deadline = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline:
        if store.check(greetings):
            # A process that reads an old greeting gets another name, to which the restarted process never agrees.
            name = hashlib.sha256(b"".join(store.multi_get(greetings))).hexdigest()
            store.set(f"embodichain/agreed/{name}/{rank}", "")
            if store.check([f"embodichain/agreed/{name}/{r}" for r in range(world_size)]):
                return name
        time.sleep(0.05)
    raise LostProcessError(f"not all of the {world_size} processes have come within {_JOIN_SECONDS:g} s")


def _exit_at_once() -> None:
    discard_unwritten_output()
    os._exit(1)


def _buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Divide parameters into buckets of one type and about ``BUCKET_BYTES`` each, in order."""
    bucket: list[nn.Parameter] = []
    size = 0
    for p in parameters:
        if bucket and (size >= BUCKET_BYTES or (bucket[0].dtype, bucket[0].device) != (p.dtype, p.device)):
            yield bucket
            bucket, size = [], 0
        bucket.append(p)
        size += p.numel() * p.element_size()
    if bucket:
        yield bucket


def _packed(data: object) -> torch.Tensor:
    """Return tensors, numbers, texts and containers of them as bytes: uint8 [n]."""
    buffer = io.BytesIO()
    torch.save(data, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def _unpacked(content: torch.Tensor) -> Any:
    """Return what :func:`_packed` was given."""
    return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def _checksum(x: torch.Tensor) -> torch.Tensor:
    """Return a checksum of a tensor's bits: int64 [], on the CPU."""
    data = x.detach().contiguous().reshape(-1).view(torch.uint8)
    words = nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    # Weights by place, so that swapped values are detected.
    places = torch.arange(1, 2 * len(words), 2, device=x.device)
    return (words * places).sum().cpu()


def moments(x: torch.Tensor) -> torch.Tensor:
    """Return the number of samples [n, O], their mean, and their sum of squared deviations from it: a row [1 + 2 O]."""
    mean = x.mean(0) if len(x) else x.new_zeros(x.shape[1])
    return torch.cat((x.new_full((1,), x.shape[0]), mean, (x - mean).square().sum(0)))


def merged_moments(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the number, mean and sum of squared deviations of all samples together: [], [O], [O].

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979. Parts
    are taken in their order, so that the same parts give the same bits. Parts may be empty.

    Args:
        parts: rows of :func:`moments`, float64 [W, 1 + 2 O].
    """
    size = (parts.shape[1] - 1) // 2
    count, mean, m2 = parts[0].split((1, size, size))
    for part in parts[1:]:
        n, part_mean, part_m2 = part.split((1, size, size))
        total = (count + n).clamp(min=1)
        delta = torch.where(n > 0, part_mean - mean, 0.0)
        m2 = m2 + torch.where(n > 0, part_m2, 0.0) + delta.square() * (count * n / total)
        mean = mean + delta * (n / total)
        count = count + n
    return count.squeeze(0), mean, m2
