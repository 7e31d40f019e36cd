"""Work of MuJoCo Warp, captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import warp
from torch import Tensor


class Graphs:
    """Replays work as graphs, on torch's present stream: on a GPU each is a single launch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[str, Any] = {}
        self._stream: Any = None

    def clear(self) -> None:
        """Delete all graphs, before the memory that they work on is replaced."""
        self.wait()  # for a graph that is still running
        self._graphs.clear()

    def run(self, name: str, work: Callable[[], None], state: Iterable[Tensor]) -> None:
        """Run work that calls the engine; the first call of a name captures it.

        Args:
            state: tensors that the work reads and changes.
        """
        graph = self._graphs.get(name)
        if graph is None:
            graph = self._graphs[name] = self._capture(work, list(state))
        if self._device.type == "cuda":
            warp.capture_launch(graph, stream=self._present_stream())
        else:
            warp.capture_launch(graph)

    def wait(self) -> None:
        """Wait for the device: torch and Warp allocate and free memory on different streams."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _capture(self, work: Callable[[], None], state: list[Tensor]) -> Any:
        """Return the graph of some work, and restore the state."""
        saved = [values.clone() for values in state]
        with warp.ScopedDevice(str(self._device)):
            self.wait()
            # A first call compiles and loads the kernels, which must not be captured.
            work()
            self.wait()
            for values, copy in zip(state, saved, strict=True):
                values.copy_(copy)
            self.wait()
            with warp.ScopedCapture() as capture:
                work()
        return capture.graph

    def _present_stream(self) -> Any:
        stream = torch.cuda.current_stream(self._device)
        if self._stream is None or self._stream.cuda_stream != stream.cuda_stream:
            self._stream = warp.stream_from_torch(stream)
        return self._stream
