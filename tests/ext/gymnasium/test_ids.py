from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers ours)
from embodichain.ext.gymnasium.cfg import GymnasiumEnvCfg, check_gymnasium_id, find_spec
from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv
from embodichain.ext.gymnasium.sources import ENVPOOL, GYMNASIUM
from embodichain.lab.gym.env_sources import find_source
from embodichain.utils import ConfigError
from tests.ext.gymnasium.scripted import registered


def test_an_id_with_the_prefix_is_gymnasiums() -> None:
    assert find_source("gymnasium:Pendulum-v1") is GYMNASIUM
    assert find_source("envpool:HopperHop-v1") is ENVPOOL
    assert find_source("PushCubeRL") is find_source(3) is None
    assert find_spec("gymnasium:Pendulum-v1").max_episode_steps == 200


def test_an_unknown_name_has_its_near_ones_and_what_to_install() -> None:
    with pytest.raises(ConfigError) as caught:
        check_gymnasium_id("gymnasium:HalfCheeta-v5", [])
    message = str(caught.value)
    assert message.startswith("id: Gymnasium has no environment 'HalfCheeta-v5'. Did you mean 'HalfCheetah-v")
    assert "write 'gymnasium:<package>:HalfCheeta-v5'" in message


def test_one_of_ours_is_named_without_the_prefix() -> None:
    with pytest.raises(ConfigError, match='\'PushCubeRL\' is EmbodiChain\'s own environment: write "id": "PushCubeRL"'):
        check_gymnasium_id("gymnasium:PushCubeRL", [])


PACKAGE = """
import gymnasium
gymnasium.register("Mine-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv")
"""


def test_a_package_is_imported_if_that_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_gym_package.py").write_text(PACKAGE, encoding="utf-8")
    with pytest.raises(ConfigError, match="id: 'my_gym_package' is not allowed to be imported"):
        check_gymnasium_id("gymnasium:my_gym_package:Mine-v0", [])
    assert "my_gym_package" not in sys.modules
    assert check_gymnasium_id("gymnasium:my_gym_package:Mine-v0", ["my_gym_package"]).id == "Mine-v0"
    with pytest.raises(ConfigError, match=r"'Mine-v1'\. Did you mean 'Mine-v0'"):
        check_gymnasium_id("gymnasium:my_gym_package:Mine-v1", ["my_gym_package"])


def test_no_file_runs_for_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    Path("no_such_physics.py").write_text("raise SystemExit('it ran')", encoding="utf-8")

    def needs_a_package() -> None:
        importlib.import_module("no_such_physics")

    with registered("Box-v0", needs_a_package), pytest.raises(ImportError, match="No module named 'no_such_physics'"):
        GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Box-v0"))
