"""The fixtures of a small trained run."""

from tests.trained_run import run_folder, trained  # noqa: F401
