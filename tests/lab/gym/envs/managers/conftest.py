"""A quadruped for the tests of legs; other tests have an ``env`` of their own."""

import pytest

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.legs import legs_env


@pytest.fixture(scope="module")
def built() -> LocomotionEnv:
    return legs_env(2)


@pytest.fixture
def env(built: LocomotionEnv) -> LocomotionEnv:
    built.reset(seed=1)
    return built
