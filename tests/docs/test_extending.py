"""docs/extending.md: its files and commands, word for word, from a package outside ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")
# A file is a code block after a line with its name alone; a command is a block of sh, with what it prints after it.
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?\n)```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS: list[tuple[str, str]] = re.findall(
    r"^```sh\n(.*?)\n```$(?:\n\n```text\n(.*?\n)```$)?", PAGE, re.MULTILINE | re.DOTALL
)
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

# Runs commands in processes forked from one that has imported everything: an import takes seconds, a mistake none.
RUN_ALL = """
import contextlib, io, json, multiprocessing, os, shlex, sys
from embodichain import cli
from embodichain.agents.rl import train

def run(folder, command):
    os.chdir(folder)
    sys.path.insert(0, folder)
    arguments = shlex.split(command.replace("\\\\\\n", " "))
    main, first = (train.main, 3) if arguments[0] == "python" else (cli.main, 1)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            code = main(arguments[first:])
        except SystemExit as end:  # it would end the pool's process, and the pool wait for ever
            code = end.code
    return code, out.getvalue()

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.starmap(run, json.loads(sys.argv[1]), chunksize=1)))
"""


def write_project(folder: Path) -> None:
    for name, text in {**FILES, "my_lab/__init__.py": ""}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a shell that has our package, and this Python and `embodichain` first on its path."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    # -P: as an installed command, it does not look for modules in the working directory.
    for name, arguments in (("python", ""), ("embodichain", "-P -m embodichain.cli ")):
        (bin_ / name).write_text(
            f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{REPOSITORY}"\nexec "{sys.executable}" {arguments}"$@"\n',
            encoding="utf-8",
        )
        (bin_ / name).chmod(0o755)
    return {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": ""}


def test_page_has_the_files_and_commands_of_three_walk_throughs() -> None:
    assert sorted(FILES) == [
        "my_lab/a2c.py",
        "my_lab/reach.py",
        "my_lab/shared_trunk.py",
        "reach_env.json",
        "reach_train.json",
    ]
    assert len(COMMANDS) == 4
    assert len(MISTAKES) == PAGE.count("\n| the command |") + PAGE.count("\n| `my_lab/") + PAGE.count("\n| `reach_")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_configs_are_json(name: str) -> None:
    assert isinstance(json.loads(FILES[name]), dict)


@pytest.mark.learning
@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=["environment", "policy", "algorithm", "doctor"])
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
    script = tmp_path / "run_all.py"
    script.write_text(RUN_ALL, encoding="utf-8")
    done = subprocess.run(
        [shutil.which("python", path=environment["PATH"]) or "", str(script), json.dumps(runs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for mistake, (code, output) in zip(MISTAKES, json.loads(done.stdout), strict=True):
        assert (code, mistake.message in output) == (1 if "doctor" in mistake.command else 2, True), output
        assert not Path(tmp_path / "outputs").exists()
