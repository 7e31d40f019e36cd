"""Environments in a separate process, for steps that hold the interpreter's lock.

Legend: N envs, T rollout steps.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor
from torch.multiprocessing import get_context

from embodichain.agents.rl.collector.asynchronous.shared_slots import SlotReader, SlotWriter
from embodichain.agents.rl.vec_env import VecEnv, knows_success
from embodichain.utils import ConfigError
from embodichain.utils.mirror import MirrorMap
from embodichain.utils.module_search import folders_on_path, import_folders
from embodichain.utils.state import freeze, thaw
from embodichain.utils.system import stop_signals, worker_start_method

MakeEnv = Callable[[], VecEnv]
_Results = tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]

_FACTS = (
    "num_envs",
    "device",
    "flattened_observation_space",
    "action_space",
    "single_action_space",
    "single_observation_space",
)
_CLOSE_SECONDS = 10.0
_PRELOAD = "embodichain.agents.rl.build"


class EnvProcessError(RuntimeError):
    """The process of the environments ended unexpectedly."""


class _RemoteError(Exception):
    """The traceback of an error in the other process, as the cause of its copy here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ProcessEnv:
    """N environments that are built and stepped in another process.

    Results of a step go through shared memory. The waiting thread does not hold the interpreter's lock. An exception in
    the other process is raised here, with its traceback as the cause.

    Args:
        make: builds the environments (``VecEnv``, ``SavesState``, ``StepsChunks`` and ``DeclaresSymmetry``) in the
            other process; picklable.
        modules: names of modules to import there first, such as those that register environments.

    Raises:
        BaseException: what ``make`` raised.
        ConfigError: the environments are not on the CPU.
    """

    num_envs: int
    device: torch.device
    flattened_observation_space: spaces.Box
    action_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    single_observation_space: spaces.Dict

    def __init__(self, make: MakeEnv, modules: Sequence[str] = ()) -> None:
        context: Any = get_context(worker_start_method([_PRELOAD]))
        self._pipe, theirs = context.Pipe()
        self._writer, self._reader = SlotWriter(), SlotReader()
        self._process = context.Process(
            target=_serve,
            args=(theirs, import_folders(modules), tuple(modules), pickle.dumps(make)),
            name="environments",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._in_use = threading.Lock()  # between a question and its answer
        self._rollout: list[tuple[Tensor, ...]] | None = None
        self._slot = 0
        try:
            vars(self).update(self._receive())
            if self.device.type != "cpu":
                raise ConfigError(
                    "trainer.asynchronous.backend: 'process' is for environments on the CPU, these are on "
                    f"{self.device}"
                )
        except BaseException:
            self.close()
            raise

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Begin new episodes; see ``VecEnv.reset``."""
        result: tuple[TensorDict, dict[str, Any]] = self._call("reset", seed=seed, options=options)
        return result

    def step(self, action: Tensor) -> _Results:
        """Make a control step; see ``VecEnv.step``."""
        return self._take_step("step", action)

    def step_chunk(self, action: Tensor) -> _Results:
        """Make the control steps of a chunk; see ``StepsChunks.step_chunk``."""
        return self._take_step("step_chunk", action)

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Write into a rollout from now on; see ``VecEnv.set_rollout_buffer``."""
        names = ["reward", "done", "terminated", "truncated"]
        if "executed" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            names.append("executed")
        self._rollout = list(zip(*(rollout[name].unbind(1) for name in names), strict=True))
        self._slot = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the environments' state; see ``SavesState.state_dict``."""
        state: dict[str, Any] = thaw(self._call("state_dict"))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> bool | None:
        """Load what ``state_dict`` returned; see ``SavesState.load_state_dict``."""
        continues: bool | None = self._call("load_state_dict", freeze(state))
        return continues

    def knows_success(self) -> bool:
        """Return whether success means anything; see ``MayLackSuccess``."""
        answer: bool = self._call("knows_success")
        return answer

    def mirror_map(self) -> MirrorMap:
        """Return the environments' mirror map; see ``DeclaresSymmetry``."""
        return MirrorMap.from_state(self._call("mirror_map"))

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Let terms write their files below a folder from now on."""
        self._call("write_into", folder.absolute(), tuple(allowed))

    def start_recording(self, folder: Path, label: str) -> None:
        """Write videos named after ``label`` into a folder from now on."""
        self._call("start_recording", folder.absolute(), label)

    def stop_recording(self) -> list[Path]:
        """Finish the videos and return their paths."""
        paths: list[Path] = self._call("stop_recording")
        return paths

    def close(self) -> None:
        """Close the environments and end their process; kill it if it is busy and does not end."""
        if self._process.is_alive() and self._in_use.acquire(timeout=_CLOSE_SECONDS):
            self._in_use.release()
            with suppress(EnvProcessError):  # it has ended all the same
                self._call("close")
            self._process.join(_CLOSE_SECONDS)
        self._process.kill()
        self._process.join()

    def _take_step(self, name: str, action: Tensor) -> _Results:
        results: _Results = self._call(name, action)
        _, reward, terminated, truncated, info = results
        if self._rollout is not None:
            values = [reward, terminated | truncated, terminated, truncated]
            if name == "step_chunk":
                values.append(info["executed"])
            for slot, value in zip(self._rollout[self._slot], values, strict=True):
                slot.copy_(value)
            self._slot += 1
        return results

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self._in_use:
            try:
                self._pipe.send((name, self._writer.write((args, kwargs))))
            except OSError as error:
                raise self._ended() from error
            return self._receive()

    def _receive(self) -> Any:
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if kind == "error":
            remote, trace = content
            raise remote from _RemoteError(trace)
        return self._reader.read(content)

    def _ended(self) -> EnvProcessError:
        self._process.join(_CLOSE_SECONDS)
        code = self._process.exitcode
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        return EnvProcessError(f"the process of the environments has ended {how}")


def _serve(pipe: Connection, folders: Sequence[str], modules: Sequence[str], pickled: bytes) -> None:
    """Answer the calls of the other process, until it closes the environments or ends.

    Args:
        folders: where modules are looked for, too.
        pickled: ``make``, which may name functions in these modules.
    """
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)  # the other side ends the work
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    torch.set_num_threads(1)  # idle workers would take the physics' cores
    writer, reader = SlotWriter(), SlotReader()
    try:
        with folders_on_path(folders):
            for module in modules:
                import_module(module)
            env = pickle.loads(pickled)()
        pipe.send(("result", writer.write({name: getattr(env, name) for name in _FACTS if hasattr(env, name)})))
    except BaseException as error:  # noqa: BLE001 (raised again on the other side)
        pipe.send(("error", _portable(error)))
        return
    name = ""
    while name != "close":
        try:
            name, message = pipe.recv()
        except (EOFError, OSError):  # the other side is gone
            env.close()
            return
        try:
            args, kwargs = reader.read(message)
            reply: tuple[str, Any] = ("result", writer.write(_do(env, name, args, kwargs)))
        except Exception as error:  # noqa: BLE001 (raised again on the other side)
            reply = ("error", _portable(error))
        pipe.send(reply)


def _end_with_parent() -> None:
    """End this process after its parent has ended, even if a step hangs."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    time.sleep(_CLOSE_SECONDS)
    os._exit(1)


def _do(env: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    # Frozen, the state is tensors and simple values: these go through shared memory.
    if name == "state_dict":
        return freeze(env.state_dict())
    if name == "load_state_dict":
        return env.load_state_dict(thaw(args[0]))
    if name == "knows_success":
        return knows_success(env)
    if name == "mirror_map":
        return env.mirror_map().state_dict()
    return getattr(env, name)(*args, **kwargs)


def _portable(error: BaseException) -> tuple[BaseException, str]:
    """Return an error that can be sent, and its traceback as text."""
    trace = "".join(traceback.format_exception(error))
    try:
        return pickle.loads(pickle.dumps(error)), trace
    except Exception:  # noqa: BLE001 (an exception class that cannot be sent)
        return EnvProcessError(f"{type(error).__name__}: {error}"), trace
