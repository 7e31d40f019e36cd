"""Which tests are the core's unit tests."""

from pathlib import Path

import pytest

ROOMS = ("agents", "commands", "lab", "tools", "utils", "test_configs.py", "test_import_paths.py")
_TESTS = Path(__file__).parent


def is_core(item: pytest.Item) -> bool:
    """Return whether a test is in the core's rooms, and needs no extension, no process and no long training."""
    room = item.path.relative_to(_TESTS).parts[0]
    return room in ROOMS and not any(map(item.get_closest_marker, ("e2e", "ext", "learning")))
