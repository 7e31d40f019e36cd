"""requirements.lock, requirements/*.txt and what `make setup` does with them; nothing here asks the network."""

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PARTS = {path.stem: path for path in sorted((REPOSITORY / "requirements").glob("*.txt"))}
# Brought by PyTorch alone, and by another build of it in other versions, so requirements.lock names none of them.
CUDA = re.compile(r"nvidia-|cuda-|triton$")


def entries(text: str) -> list[str]:
    """Return the lines of a requirements file, joined where they go on, without comments."""
    return re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()


def pinned(text: str, *, here: bool = False) -> dict[str, str]:
    """Return the version of each package, by its normalised name; ``here``: of those that this machine takes."""
    versions: dict[str, str] = {}
    for entry in entries(text):
        requirement = Requirement(entry.partition(" --hash")[0])
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        name = canonicalize_name(requirement.name)
        assert name not in versions
        if not here or requirement.marker is None or requirement.marker.evaluate():
            versions[name] = specifier.version
    return versions


LOCK = pinned((REPOSITORY / "requirements.lock").read_text(encoding="utf-8"))
VERSIONS = {part: pinned(path.read_text(encoding="utf-8")) for part, path in PARTS.items()}


@pytest.mark.parametrize("part", PARTS)
def test_every_package_has_the_hashes_of_its_files(part: str) -> None:
    for entry in entries(PARTS[part].read_text(encoding="utf-8")):
        assert re.fullmatch(r"[^#]+?( +--hash=sha256:[0-9a-f]{64})+", entry), entry


def test_lock_and_hashes_agree_on_the_versions() -> None:
    installed = VERSIONS["run"] | VERSIONS["dev"] | VERSIONS["docs"] | VERSIONS["extras"]
    assert LOCK.keys() - installed.keys() == {"torch"}
    assert {name for name in VERSIONS["torch"] if not CUDA.match(name)} == {"torch"}
    for part, versions in VERSIONS.items():
        shared = LOCK.keys() & versions.keys()
        assert {name: LOCK[name] for name in shared} == {name: versions[name] for name in shared}, part
    assert installed.keys() <= LOCK.keys()
    assert not VERSIONS["run"].keys() & (VERSIONS["dev"] | VERSIONS["docs"] | VERSIONS["extras"]).keys()


def test_what_pyproject_asks_for_is_locked_in_its_part() -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    groups = {"run": PROJECT["project"]["dependencies"], "dev": optional.pop("dev"), "docs": optional.pop("docs")}
    groups["extras"] = [text for texts in optional.values() for text in texts]
    groups["tools"] = PROJECT["dependency-groups"]["tools"]
    groups["run"] = groups["run"] + PROJECT["build-system"]["requires"]
    for part, texts in groups.items():
        there = VERSIONS["torch"] | VERSIONS["run"] | VERSIONS[part]
        if part == "extras":
            there |= VERSIONS["dev"]
        for requirement in map(Requirement, texts):
            assert requirement.specifier.contains(there[canonicalize_name(requirement.name)], prereleases=True), part


@pytest.mark.parametrize("part", ["run", "dev"])
def test_packages_are_installed_without_their_dependencies_and_lack_none(part: str) -> None:
    # `make setup` installs with --no-deps: whatever an installed package needs here must be in the parts themselves.
    there = VERSIONS["torch"] | VERSIONS["run"] | VERSIONS[part]
    for name in pinned(PARTS[part].read_text(encoding="utf-8"), here=True):
        for text in distribution(name).requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                version = there.get(canonicalize_name(requirement.name))
                assert version is not None, f"{name} needs {requirement}"
                assert requirement.specifier.contains(version, prereleases=True), f"{name} needs {requirement}"


def test_benchmarks_are_locked_as_they_are_listed() -> None:
    listed = (REPOSITORY / "benchmarks/peers/requirements.txt").read_text(encoding="utf-8")
    assert VERSIONS["bench"] == pinned(listed)


# --- what make does ---


def commands(*targets: str) -> list[list[str]]:
    """Return the calls of pip that make would make."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    call = ["make", "--dry-run", "--always-make", "VENV=/nowhere", *targets]
    done = subprocess.run(call, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines() if "pip install" in line]


def test_make_installs_nothing_without_a_hash_but_the_package_itself() -> None:
    lines = commands("setup", "setup-dev", "docs", "bench")
    own = [line for line in lines if "--editable" in line]
    locked = [line for line in lines if "--editable" not in line]
    assert {text for line in locked for text in line if text.endswith(".txt")} == {
        f"requirements/{part}.txt" for part in ("run", "dev", "docs", "bench")
    }
    for line in locked:
        assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(line)
    for line in own:
        assert {"--no-deps", "--no-build-isolation", "--no-index"} <= set(line)


# A pip that says what it was asked for, and how it is configured.
PIP = """#!/bin/sh
if [ "$4" = list ]; then echo "$CONFIGURED"; else echo "$@"; fi
"""


@pytest.mark.parametrize(
    ("index", "configured", "checked"),
    [
        ("", "global.index-url='https://mirror'", True),  # a mirror has the same files
        ("", ":env:.cert='x'", True),
        ("", ":env:.find-links='/wheels'", False),
        ("", "global.extra-index-url='https://name:word@builds'", False),
        ("https://name:word@builds", "", False),
    ],
)
def test_pytorch_alone_may_come_without_a_hash_and_setup_says_so(
    index: str, configured: str, checked: bool, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(PIP, encoding="utf-8")
    python.chmod(0o755)
    call = ["sh", str(REPOSITORY / "scripts/setup_torch.sh"), str(python), index]
    environment = {"PATH": "/usr/bin:/bin", "CONFIGURED": configured}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    if checked:
        assert done.stdout.split()[-4:] == ["--require-hashes", "--no-deps", "--requirement", "requirements/torch.txt"]
        return
    said, asked = done.stdout.splitlines()
    assert said.startswith("setup: ")
    assert said.endswith("not checked by a hash")
    assert "word" not in said  # an index's address may have a password
    assert asked.split()[-3:] == ["--constraint", "requirements.lock", "torch"]
    assert (f"--index-url {index}" in asked) == bool(index)


# --- THIRD_PARTY.md ---


def test_notice_names_every_locked_package_with_its_version_and_licence() -> None:
    text = (REPOSITORY / "THIRD_PARTY.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")][2:]
    versions: dict[str, str] = {}
    for part in VERSIONS.values():
        versions |= part
    assert {row[0]: row[1] for row in rows} == versions
    # cuda-toolkit holds no files of its own; torchrl has its licence as a file alone.
    assert {row[0] for row in rows if row[2] in ("", "not stated", "UNKNOWN")} <= {"cuda-toolkit", "torchrl"}
