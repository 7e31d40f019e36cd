"""An empty folder, and the fixtures of a small trained run."""

from tests.fixtures import own_folder  # noqa: F401
from tests.trained_run import run_folder, trained  # noqa: F401
