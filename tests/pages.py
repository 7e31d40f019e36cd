"""The files and commands of a docs page, run word for word as a reader would."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

# Runs commands in processes forked from one that has imported everything: an import takes seconds, a mistake none.
_RUN_ALL = """
import contextlib, io, json, multiprocessing, os, runpy, shlex, sys
from embodichain import cli
from embodichain.agents.rl import train

def run(folder, command):
    os.chdir(folder)
    sys.path.insert(0, folder)
    name, *arguments = shlex.split(command.replace("\\\\\\n", " "))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            if name == "embodichain":
                code = cli.main(arguments)
            elif arguments[:2] == ["-m", "embodichain.agents.rl.train"]:
                code = train.main(arguments[2:])
            else:  # a script
                sys.argv = arguments
                runpy.run_path(arguments[0], run_name="__main__")
                code = 0
        except SystemExit as end:  # it would end the pool's process, and the pool wait for ever
            code = end.code
    return code, out.getvalue()

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.starmap(run, json.loads(sys.argv[1]), chunksize=1)))
"""


def files_of(page: str) -> dict[str, str]:
    """Return what a page has as files: code blocks after a line with their name alone."""
    return dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?\n)```$", page, re.MULTILINE | re.DOTALL))


def commands_of(page: str) -> list[tuple[str, str]]:
    """Return a page's commands, blocks of sh, each with what it prints after it."""
    block = r"^```sh\n(.*?)\n```$(?:\n\n```text\n(.*?\n)```$)?"
    return re.findall(block, page, re.MULTILINE | re.DOTALL)


def write_files(files: dict[str, str], folder: Path) -> None:
    """Write files into a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def shell_variables(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that has our package, and this Python and `embodichain` first on its path.

    Args:
        folder: where these two go.
    """
    bin_ = folder / "bin"
    bin_.mkdir()
    # -P: as an installed command, it does not look for modules in the working directory.
    for name, arguments in (("python", ""), ("embodichain", "-P -m embodichain.cli ")):
        (bin_ / name).write_text(
            f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{REPOSITORY}"\nexec "{sys.executable}" {arguments}"$@"\n',
            encoding="utf-8",
        )
        (bin_ / name).chmod(0o755)
    return {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": ""}


def run_all(runs: list[tuple[str, str]], environment: dict[str, str], folder: Path) -> list[tuple[int, str]]:
    """Run commands one after the other; return their exit codes, and what they print.

    Args:
        runs: (working directory, command) each.
        environment: from ``shell_variables``.
        folder: for the script that does it.
    """
    script = folder / "run_all.py"
    script.write_text(_RUN_ALL, encoding="utf-8")
    done = subprocess.run(
        [shutil.which("python", path=environment["PATH"]) or "", str(script), json.dumps(runs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(code, output) for code, output in json.loads(done.stdout)]
