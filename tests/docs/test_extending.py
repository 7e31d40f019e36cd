"""docs/extending.md: its files and commands, word for word, from a package outside ours."""

from __future__ import annotations

import json
import re
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


def altered(mistake: Mistake, folder: Path) -> str:
    """Write the project with a mistake into a folder; return the command."""
    write_project(folder)
    if mistake.place == "the command":
        assert mistake.right in mistake.command
        return mistake.command.replace(mistake.right, mistake.wrong)
    path = folder / mistake.place
    text = path.read_text(encoding="utf-8")
    assert mistake.right in text
    path.write_text(text.replace(mistake.right, mistake.wrong), encoding="utf-8")
    return mistake.command


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
def test_documented_commands_run_and_mistakes_give_the_documented_messages(tmp_path: Path) -> None:
    runs = []
    for i, (command, _) in enumerate(COMMANDS):
        write_project(tmp_path / f"right_{i}")
        runs.append((str(tmp_path / f"right_{i}"), f"{command} {FEW}" if "rl.train" in command else command))
    for i, mistake in enumerate(MISTAKES):
        runs.append((str(tmp_path / str(i)), altered(mistake, tmp_path / str(i))))
    results = run_all(runs, shell_variables(tmp_path), tmp_path)
    right = results[: len(COMMANDS)]
    for (folder, command), (_, printed), (code, output) in zip(runs, COMMANDS, right, strict=False):
        assert code == 0, output
        assert all(line in output for line in printed.splitlines())
        if "rl.train" in command:
            (summary,) = Path(folder).glob("outputs/reach_*/summary.json")
            assert json.loads(summary.read_text(encoding="utf-8"))["env_steps"] == 1024  # 16 environments x 64 steps
    for mistake, (code, output) in zip(MISTAKES, results[len(COMMANDS) :], strict=True):
        assert (code, mistake.message in output) == (1 if "doctor" in mistake.command else 2, True), output
