"""The viewer of a training; the one in the browser is an extension."""

import importlib.util
from collections.abc import Callable, Mapping

from embodichain.utils import ConfigError, face, install_extra


def check_viewer_is_installed(place: str = "trainer.viewer") -> None:
    """Raise a ConfigError about ``place`` if the extra ``viewer`` is not installed."""
    if importlib.util.find_spec("viser") is None:
        raise ConfigError(f"{place}: the package viser is not installed: {install_extra('viewer')}")


class Viewer:
    """Shows a training; this one shows nothing, and never pauses."""

    paused_seconds: float = 0.0
    """Total time of the pauses, s."""

    def on_step(self, check_stop: Callable[[], None]) -> None:
        """Show the environments after a step; wait while the training is paused.

        Args:
            check_stop: function called regularly during a pause; raises to end the training.
        """

    def on_iteration(self, iteration: int, iterations: int, step: int, latest: Mapping[str, float]) -> None:
        """Show the last value of each metric, by its tag, after ``iteration`` of ``iterations``."""

    def close(self) -> None:
        """Stop showing."""


__getattr__ = face(__name__, dict.fromkeys(("BrowserViewer", "play_live"), "embodichain.ext.viewer.pages"))
