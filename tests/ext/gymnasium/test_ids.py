from __future__ import annotations

import importlib
import os
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
    assert message.startswith("id: Gymnasium has no environment 'HalfCheeta-v5'. Near: HalfCheetah-v5, HalfCheetah-v4")
    assert "\n" not in message
    assert "write 'gymnasium:<package>:HalfCheeta-v5'" in message
    assert sys.executable in message


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
    with pytest.raises(ConfigError, match=r"'Mine-v1'\. Near: Mine-v0\..*'my_gym_package' registers none of that name"):
        check_gymnasium_id("gymnasium:my_gym_package:Mine-v1", ["my_gym_package"])


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(ConfigError) as caught:
        check_gymnasium_id("gymnasium:gymnasium_robotiks:Fetch-v1", ["gymnasium_robotiks"])
    assert str(caught.value) == (
        "id: cannot import 'gymnasium_robotiks': No module named 'gymnasium_robotiks' (looked for on Python's path and "
        f"in {os.getcwd()}); to install it: {sys.executable} -m pip install gymnasium-robotiks"
    )


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_images_of_an_environment_that_makes_none_are_one_line() -> None:
    with registered(), pytest.raises(ConfigError) as caught:
        GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Scripted-v0").with_images())
    assert str(caught.value).startswith("gymnasium:Scripted-v0: cannot be built with the kwargs {'render_mode': ")
    assert str(caught.value).endswith("; images need an environment whose constructor takes render_mode")


def test_no_file_of_the_working_directory_runs_for_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    Path("no_such_physics.py").write_text("raise SystemExit('it ran')", encoding="utf-8")

    def needs_a_package() -> None:
        importlib.import_module("no_such_physics")

    with registered("Box-v0", needs_a_package), pytest.raises(ConfigError, match="No module named 'no_such_physics'"):
        GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Box-v0"))
