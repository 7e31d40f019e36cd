"""``embodichain trust``: whose code a config may name, told once; from the outside, with a user's own config folder."""

import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embodichain.cli import main
from embodichain.lab.gym import registry
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "trusts_lab"
TASK = """
from pathlib import Path
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.gym.registry import register_env
from os import getcwd

@register_env("TrustsRL", 50, override=True)
class TrustsEnv(CartPoleEnv):
    pass

def calm(env, obs, action, info):
    return -action.square().sum(1)
"""
MARK = "from pathlib import Path\nPath({path!r}).write_text('this ran')\n"  # a module that tells that it was imported


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home, a list of trusted folders and a working directory of the test's own, which is not on Python's path."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    here = {"", str(REPOSITORY / "elsewhere")}
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in here])
    before = set(sys.modules)
    yield
    for name in [name for name in sys.modules if name not in before and name.startswith("trusts_")]:
        del sys.modules[name]
    registry._REGISTRY.pop("TrustsRL", None)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package with a task, and a training config beside it."""
    folder = tmp_path / "project"
    write_package(folder)
    write_training(folder)
    return folder


def write_package(folder: Path, source: str = TASK) -> Path:
    (folder / PACKAGE).mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").write_text("")
    (folder / PACKAGE / "task.py").write_text(source)
    return folder / PACKAGE


def write_training(folder: Path, *modules: str) -> str:
    env = load_json(CART_POLE_ENV) | {"id": "TrustsRL", "max_episode_steps": 20}
    env["env"]["rewards"]["calm"] = {"func": f"{PACKAGE}.task.calm"}
    if modules:
        env = load_json(CART_POLE_ENV)
    names = list(modules) or [f"{PACKAGE}.task"]
    return write_config(folder, tiny_config(trainer__gym_config=env, trainer__import_modules=names))


def error_of(*argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def listed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["trust"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.e2e
def test_trusted_task_trains_and_plays_without_an_option(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(project / "train_config.json")
    line = error_of("train", config, capsys=capsys)
    package = project / PACKAGE
    assert f"trainer.import_modules: '{PACKAGE}.task' is not allowed to be imported (allowed: nothing)" in line
    assert f"trust its folder once by 'embodichain trust {package}', pass --allow-import {PACKAGE}.task, or" in line
    assert f"{PACKAGE}.task" not in sys.modules
    assert listed(capsys) == ["no folder is trusted"]  # without a terminal nobody is asked
    assert main(["trust", str(package)]) == 0
    assert main(["train", config]) == 0
    assert main(["eval", "latest", "--episodes", "2"]) == 0
    assert main(["resume", "latest", "trainer.iterations=3"]) == 0


def test_config_inside_the_package_finds_it(tmp_path: Path) -> None:
    package = write_package(tmp_path / "project")
    config = write_training(package)
    (package / "trusts_lone.py").write_text("import trusts_neighbour\n")
    (package / "trusts_neighbour.py").write_text("")
    assert main(["trust", str(package)]) == 0
    assert main(["validate", config]) == 0
    assert main(["validate", write_training(package, "trusts_lone")]) == 0


def test_folders_are_listed_in_a_file_of_this_user_alone(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys) == ["no folder is trusted"]
    for folder in (project, project / PACKAGE, project):
        assert main(["trust", str(folder)]) == 0
    assert listed(capsys) == [str(project), str(project / PACKAGE)]
    file = tmp_path / "settings/embodichain/trusted.json"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    shutil.rmtree(project)
    assert main(["trust", "--remove", str(project)]) == 0
    assert listed(capsys) == [str(project / PACKAGE)]
    assert f"{project}: is not trusted. Trusted: {project / PACKAGE}" in error_of(
        "trust", "--remove", str(project), capsys=capsys
    )


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("absent", "absent: is no folder"),
        ("file", "file: is no folder"),
        ("/", "/: is too wide"),
        ("../home", "home: is too wide"),
        ("..", "is too wide"),
    ],
)
def test_folder_that_cannot_be_trusted_is_an_error(
    folder: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    assert message in error_of("trust", folder, capsys=capsys)
    assert listed(capsys) == ["no folder is trusted"]


def write_as_link(project: Path, secret: Path) -> None:
    write_package(secret)
    (project / PACKAGE).symlink_to(secret / PACKAGE)


def write_as_linked_file(project: Path, secret: Path) -> None:
    package = write_package(secret)
    write_package(project)
    (project / PACKAGE / "task.py").unlink()
    (project / PACKAGE / "task.py").symlink_to(package / "task.py")


@pytest.mark.parametrize("write", [write_as_link, write_as_linked_file])
def test_link_out_of_a_trusted_folder_is_not_trusted(
    write: Callable[[Path, Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project").mkdir()
    write(tmp_path / "project", tmp_path / "secret")
    assert main(["trust", str(tmp_path / "project")]) == 0
    line = error_of("validate", write_training(tmp_path / "project"), capsys=capsys)
    assert f"'{PACKAGE}.task' is not allowed to be imported" in line


def test_trusted_folder_replaced_by_a_link_is_not_trusted(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trust", str(project)]) == 0
    shutil.copytree(project, tmp_path / "other")
    shutil.rmtree(project)
    project.symlink_to(tmp_path / "other")
    assert "is not allowed" in error_of("validate", str(project / "train_config.json"), capsys=capsys)


@pytest.mark.parametrize("place", ["downloads", "project"])
def test_code_counts_and_not_the_config_that_names_it(
    place: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    (downloads / "trusts_evil.py").write_text(MARK.format(path=str(tmp_path / "ran")))
    assert main(["trust", str(project)]) == 0
    monkeypatch.chdir(downloads)
    config = write_training(tmp_path / place, "trusts_evil")
    assert "'trusts_evil' is not allowed" in error_of("validate", config, capsys=capsys)
    # None of several is imported if one is not allowed.
    config = write_training(tmp_path / place, f"{PACKAGE}.task", "trusts_evil")
    assert "'trusts_evil' is not allowed" in error_of("validate", config, capsys=capsys)
    assert f"{PACKAGE}.task" not in sys.modules
    assert not (tmp_path / "ran").exists()
    assert main(["validate", write_training(downloads)]) == 0


@pytest.mark.parametrize("name", ["outputs/theirs", "mine/of_yesterday"])
@pytest.mark.parametrize("is_there", [False, True])
def test_code_in_a_run_in_a_trusted_folder_is_not_trusted(
    name: str,
    is_there: bool,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = project / name
    (run / "checkpoints").mkdir(parents=True)
    (run / "trusts_evil.py").write_text(MARK.format(path=str(tmp_path / "ran")))
    config = write_training(run, "trusts_evil")
    assert main(["trust", str(project)]) == 0
    if is_there:
        monkeypatch.chdir(run)
    line = error_of("validate", config, capsys=capsys)
    assert "'trusts_evil' is not allowed" in line
    assert f"embodichain trust {run}" not in line
    assert not (tmp_path / "ran").exists()


def test_packages_installed_in_a_trusted_folder_are_not_trusted(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = project / ".venv/lib/python3/site-packages"
    site.mkdir(parents=True)
    (site / "trusts_installed.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    assert main(["trust", str(project)]) == 0
    line = error_of("validate", write_training(project, "trusts_installed"), capsys=capsys)
    assert "pass --allow-import trusts_installed" in line
    assert "embodichain trust" not in line


@pytest.mark.parametrize("name", ["json", "sys", "torch", "embodichain.utils.files"])
def test_file_beside_the_config_replaces_no_installed_module(
    name: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / (name.replace(".", "/") + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MARK.format(path=str(tmp_path / "ran")))
    assert main(["trust", str(project)]) == 0
    line = error_of("validate", write_training(project, name), capsys=capsys)
    assert f"'{name}' is not allowed to be imported" in line
    assert "embodichain trust" not in line
    config = write_training(project, name)
    assert main(["validate", config, "--allow-import", name]) == 0
    assert not (tmp_path / "ran").exists()


def test_function_that_a_trusted_module_imports_is_unknown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", str(project)]) == 0
    for name in (f"{PACKAGE}.task.getcwd", "os.getcwd", "embodichain.utils.files.read_text"):
        config = load_json(project / "train_config.json")
        config["trainer"]["gym_config"]["env"]["rewards"]["calm"] = {"func": name}
        line = error_of("validate", write_config(project, config, "changed.json"), capsys=capsys)
        assert f"env.rewards.calm.func: unknown function '{name}'" in line or f"'{name}' is in a module that is" in line
