"""docs/extending.md: its files and commands, word for word, from a package outside ours."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pages import REPOSITORY, commands_of, files_of, run_all, shell_variables, write_files

PAGE = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")
FILES = files_of(PAGE)
COMMANDS = commands_of(PAGE)
# Added to the training commands: seconds instead of half a minute, and no pictures.
FEW = (
    "trainer.iterations=1 trainer.num_envs=16 trainer.buffer_size=64 "
    "trainer.num_eval_envs=2 trainer.num_eval_episodes=2 trainer.events='{}'"
)


@dataclass(frozen=True)
class Mistake:
    """A row of a table of mistakes: `wrong` stands for `right` in a file or in the command before the table."""

    command: str
    place: str
    right: str
    wrong: str
    message: str


def read_mistakes() -> list[Mistake]:
    found = []
    for match in re.finditer(r"^\| in \|.*\n\| -.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        commands = [command for command, _ in COMMANDS if PAGE.index(command) < match.start()]
        for row in match[1].splitlines():
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            place, right, wrong, message = ("" if cell == "nothing" else cell.strip("`") for cell in cells)
            # Mistakes in the algorithm's file are for the doctor, all others for the training.
            command = next(c for c in reversed(commands) if (" doctor " in c) == (place == "my_lab/a2c.py"))
            found.append(Mistake(command, place, right, wrong, message))
    return found


MISTAKES = read_mistakes()


def write_project(folder: Path) -> None:
    write_files({**FILES, "my_lab/__init__.py": ""}, folder)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return shell_variables(tmp_path)


def test_page_has_the_files_and_commands_of_three_walk_throughs() -> None:
    assert sorted(FILES) == [
        "my_lab/a2c.py",
        "my_lab/reach.py",
        "my_lab/residual.py",
        "reach_env.json",
        "reach_train.json",
    ]
    assert len(COMMANDS) == 4
    assert len(MISTAKES) == PAGE.count("\n| the command |") + PAGE.count("\n| `my_lab/") + PAGE.count("\n| `reach_")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_configs_are_json(name: str) -> None:
    assert isinstance(json.loads(FILES[name]), dict)


@pytest.mark.e2e
@pytest.mark.learning
@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=["environment", "network", "algorithm", "doctor"])
def test_documented_command_runs(command: str, output: str, tmp_path: Path, environment: dict[str, str]) -> None:
    write_project(tmp_path)
    if "rl.train" in command:
        command += f" {FEW}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for line in output.splitlines():
        assert line in done.stdout
    if "rl.train" in command:
        (summary,) = tmp_path.glob("outputs/reach_*/summary.json")
        assert json.loads(summary.read_text(encoding="utf-8"))["env_steps"] == 1024  # 16 environments x 64 steps


@pytest.mark.e2e
@pytest.mark.learning
def test_documented_mistakes_give_the_documented_messages(tmp_path: Path, environment: dict[str, str]) -> None:
    runs = []
    for i, mistake in enumerate(MISTAKES):
        folder = tmp_path / str(i)
        write_project(folder)
        command = mistake.command
        if mistake.place == "the command":
            assert mistake.right in command
            command = command.replace(mistake.right, mistake.wrong)
        else:
            path = folder / mistake.place
            text = path.read_text(encoding="utf-8")
            assert mistake.right in text
            path.write_text(text.replace(mistake.right, mistake.wrong), encoding="utf-8")
        runs.append((str(folder), command))
    for mistake, (code, output) in zip(MISTAKES, run_all(runs, environment, tmp_path), strict=True):
        assert (code, mistake.message in output) == (1 if "doctor" in mistake.command else 2, True), output
        assert not Path(tmp_path / "outputs").exists()
