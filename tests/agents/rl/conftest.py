"""Fixtures of the learner's tests."""

from tests.fixtures import own_folder, two_threads  # noqa: F401
