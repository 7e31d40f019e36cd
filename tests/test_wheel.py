"""The wheel, built and installed without the checkout around it: it does alone what the documentation says."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = (
    "embodichain",
    "configs",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "THIRD_PARTY.md",
)
TINY = (
    "trainer.num_envs=2",
    "trainer.iterations=1",
    "trainer.buffer_size=4",
    "trainer.enable_eval=false",
    "algorithm.cfg.batch_size=8",
)


def call(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def copy_sources(folder: Path) -> Path:
    folder.mkdir()
    for name in SOURCES:
        path, target = REPOSITORY / name, folder / name
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, target)
    return folder


def build_wheel(source: Path, folder: Path) -> Path:
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    done = call(sys.executable, "-m", "pip", "wheel", *offline, "-w", folder, source, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    return build_wheel(copy_sources(folder / "source"), folder)


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs; the packages that it needs are those of this Python."""
    folder = tmp_path_factory.mktemp("site")
    offline = ("--no-deps", "--no-index", "--disable-pip-version-check")
    done = call(sys.executable, "-m", "pip", "install", *offline, "--target", folder, wheel, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def embodichain(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # As in an installation of its own, the folder comes before the checkout, which this Python may know.
    return call(site / "bin" / "embodichain", *arguments, folder=folder, PYTHONPATH=str(site))


def test_wheel_has_every_file_of_the_package_and_every_shipped_config(wheel: Path) -> None:
    package = {path for path in (REPOSITORY / "embodichain").rglob("*") if path.is_file()}
    wanted = {path.relative_to(REPOSITORY).as_posix() for path in package if "__pycache__" not in path.parts}
    configs = (path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "configs").rglob("*.*"))
    assert files_of(wheel) == wanted | {f"embodichain/{path}" for path in configs}


def test_source_distribution_has_what_the_wheel_is_built_from_and_no_tests(wheel: Path, tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "source")
    (source / "tests").mkdir()
    (source / "tests" / "test_some.py").write_text("")
    build = f"import setuptools.build_meta as build; build.build_sdist({str(tmp_path)!r})"
    done = call(sys.executable, "-c", build, folder=source)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        assert not any("/tests" in name for name in opened.getnames())
    assert files_of(build_wheel(archive, tmp_path)) == files_of(wheel)


def test_description_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    head, _, text = metadata.partition("\n\n")
    assert "\nDescription-Content-Type: text/markdown" in head
    assert text.startswith("# EmbodiChain RL on MuJoCo\n")
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")] == []
    assert "src=" not in text
    assert "Policies of shipped configs" not in text  # the caption of an image


def test_names_of_shipped_configs_train_from_an_empty_folder(site: Path, tmp_path: Path) -> None:
    done = embodichain(site, tmp_path, "train", "push_cube", *TINY)
    assert done.returncode == 0, done.stderr
    (summary,) = tmp_path.glob("outputs/push_cube_quickstart_*/summary.json")
    config = json.loads(summary.with_name("config.json").read_text(encoding="utf-8"))
    shipped = site / "embodichain/configs/agents/rl/push_cube/gym_config_quickstart.json"
    assert config["trainer"]["gym_config"] == str(shipped)
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]


def test_tasks_are_listed_with_their_commands_and_a_new_one_is_written(site: Path, tmp_path: Path) -> None:
    listed = embodichain(site, tmp_path, "list", "envs")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "embodichain train push_cube\n" in listed.stdout
    new = embodichain(site, tmp_path, "new", "task", "tidy_up")
    assert (new.returncode, new.stderr) == (0, "")
    assert "TidyUpRL" in (tmp_path / "tidy_up/train.json").parent.joinpath("task.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "theirs", "command"),
    [
        ("0.2.3", "utils/__init__.py", ("embodichain", "list")),
        ("0.2.3", "agents/__init__.py", ("-m", "embodichain.agents.rl.train", "--help")),
        ("0.3.2", "cli/__init__.py", ("embodichain", "list")),  # a package goes before our module of the same name
        ("0.3.2", "cli/__init__.py", ("-m", "embodichain", "list")),
    ],
)
def test_other_project_in_the_same_folder_is_named_in_one_line(
    site: Path, tmp_path: Path, version: str, theirs: str, command: tuple[str, ...]
) -> None:
    both = tmp_path / "both"
    shutil.copytree(site, both)
    record = both / f"embodichain-{version}.dist-info"
    record.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: embodichain\nVersion: {version}\n"
    (record / "METADATA").write_text(metadata, encoding="utf-8")
    # As the other package leaves it: a package of its own in the place of what ours has.
    file = both / "embodichain" / theirs
    shutil.rmtree(file.parent, ignore_errors=True)
    file.parent.mkdir()
    file.write_text("import langchain_openai\n", encoding="utf-8")
    start = [sys.executable] if command[0] == "-m" else []
    script = [both / "bin" / name if name == "embodichain" and not start else name for name in command]
    done = call(*start, *script, folder=tmp_path, PYTHONPATH=str(both))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: 'embodichain' {version} and 'embodichain-mujoco' are both installed into {both / 'embodichain'} and "
        "have overwritten each other's files: remove both (pip uninstall embodichain embodichain-mujoco), then install "
        "one\n"
    )


@pytest.mark.learning
def test_demo_learns_and_names_what_there_is_to_see(site: Path, tmp_path: Path) -> None:
    done = embodichain(site, tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.glob("outputs/*")
    assert json.loads((folder / "summary.json").read_text(encoding="utf-8"))["success_rate"] > 0.95
    assert f"{(folder / 'report.html').as_uri()}\n" in done.stdout
    assert "embodichain train push_cube" in done.stdout
