"""docs/extending.md: its files and commands, word for word, from a package outside ours."""

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


def test_every_row_of_the_tables_of_mistakes_is_read() -> None:
    assert len(MISTAKES) == PAGE.count("\n| the command |") + PAGE.count("\n| `my_lab/") + PAGE.count("\n| `reach_")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, int, str]]:
    """Return folder, exit code and output of the commands, and then of the mistakes."""
    folder = tmp_path_factory.mktemp("extending")
    runs = []
    for i, (command, _) in enumerate(COMMANDS):
        write_project(folder / f"right_{i}")
        runs.append((str(folder / f"right_{i}"), f"{command} {FEW}" if "rl.train" in command else command))
    for i, mistake in enumerate(MISTAKES):
        runs.append((str(folder / f"wrong_{i}"), altered(mistake, folder / f"wrong_{i}")))
    done = run_all(runs, shell_variables(folder), folder)
    return [(Path(place), *result) for (place, _), result in zip(runs, done, strict=True)]


@pytest.mark.e2e
@pytest.mark.learning
@pytest.mark.parametrize("number", range(5), ids=["environment", "network", "algorithm", "doctor", "off-policy"])
def test_documented_command_runs(number: int, results: list[tuple[Path, int, str]]) -> None:
    command, expected = COMMANDS[number]
    folder, code, output = results[number]
    assert code == 0, output
    for line in expected.splitlines():
        assert line in output
    if "rl.train" in command:
        (summary,) = folder.glob("outputs/*/summary.json")
        assert json.loads(summary.read_text(encoding="utf-8"))["env_steps"] == 1024  # 16 environments x 64 steps


@pytest.mark.e2e
@pytest.mark.learning
def test_documented_mistakes_give_the_documented_messages(results: list[tuple[Path, int, str]]) -> None:
    for mistake, (folder, code, output) in zip(MISTAKES, results[len(COMMANDS) :], strict=True):
        assert (code, mistake.message in output) == (1 if "doctor" in mistake.command else 2, True), output
        assert not (folder / "outputs").exists()
