import importlib.util
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from embodichain.utils import doors, install_extra


@pytest.fixture(autouse=True)
def own_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2.6", 'viser<2,>=1.1; extra == "viewer"', "a>=1; extra == 'two'", 'b; extra == "two"']
    monkeypatch.setattr(doors, "requires", lambda name: lines)
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")


def test_command_installs_what_the_extra_requires_by_this_python() -> None:
    assert install_extra("viewer") == "'/my env/bin/python' -m pip install 'viser<2,>=1.1'"
    assert install_extra("two") == "'/my env/bin/python' -m pip install 'a>=1' b"


def test_without_metadata_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doors, "requires", missing)
    assert install_extra("viewer") == "'/my env/bin/python' -m pip install 'embodichain-mujoco[viewer]'"


def test_environment_without_pip_is_installed_into_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert doors.install_command("pytest") == "uv pip install --python '/my env/bin/python' pytest"
