"""The command line as a whole: help, examples, exit codes."""

import gc
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embodichain.cli import COMMANDS, main, make_parser

pytestmark = pytest.mark.usefixtures("own_folder")

REPOSITORY = Path(__file__).resolve().parents[2]
# What is wrong, the exit code, and what the message names. A command that argparse refuses ends by SystemExit.
BAD_INPUT: dict[str, tuple[list[str], int, str]] = {
    "demo": (["trainer.sed=1"], 2, "trainer.sed: unknown key. Did you mean 'seed'?"),
    "train": (["absent.json"], 2, "absent.json: no such file"),
    "resume": (["absent"], 2, "absent: no such run"),
    "bc": (["absent.json"], 2, "absent.json: no such file"),
    "eval": (["absent"], 2, "absent: no such run: must be a run's folder"),
    "play": (["absent"], 2, "absent: no such run"),
    "export": (["absent"], 2, "absent: no such run"),
    "report": (["absent"], 2, "absent: no such run: must be a run's folder"),
    "compare": (["absent"], 2, "absent: no such run: must be a run's folder"),
    "diff": (["absent", "latest"], 2, "absent: no such run: must be a run's folder"),
    "push": (["absent", "user/name"], 2, "absent: no such run"),
    "show": (["absent.json"], 2, "absent.json: no such file"),
    "rewards": (["absent"], 2, "absent: no such run"),
    "new": (["task", "New Task"], 2, "small letters, digits and underscores are needed"),
    "trust": (["absent"], 2, "absent: is no folder"),
    "sweep": (["absent.json", "--param", "a"], 2, "--param 'a': must be of the form path=low:high"),
    "list": (["robots"], 2, "invalid choice: 'robots'"),
    "validate": (["absent.json"], 2, "absent.json: no such file"),
    "view": (["absent.json"], 2, "absent.json: no such file"),
    "schema": (["--kind", "robot"], 2, "invalid choice: 'robot'"),
    "doctor": (["--import", "json"], 2, "--import: needs --algo"),
    "completion": (["cmd"], 2, "invalid choice: 'cmd'"),
}


def run(*argv: str) -> int:
    try:
        return main(argv)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert " ".join(COMMANDS[name].help.split()) in " ".join(out.split())
    assert "exit codes: 0" in out
    for example in COMMANDS[name].load().EXAMPLES:
        assert f"embodichain {name} {example}\n" in out
        arguments = example.partition(" > ")[0].split()
        make_parser().parse_args([name, *arguments])


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_input_gives_2_and_names_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, code, message = BAD_INPUT[name]
    assert run(name, *argv) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(Path().iterdir()) == []  # nothing is left behind


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"    {name}" in out
        assert " ".join(command.help.split()[:4]) in " ".join(out.split())


@pytest.mark.ext
def test_no_command_and_an_unknown_one_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert re.search(r"    train +Train a policy", capsys.readouterr().err)
    assert run("train") == 2
    assert "the following arguments are required: CONFIG\n" in capsys.readouterr().err
    assert run("trane") == 2
    assert "unknown command 'trane'. Did you mean 'train'? Known: bc, compare" in capsys.readouterr().err


@pytest.mark.e2e
def test_help_and_wrong_usage_do_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom embodichain.cli import main\nfor words in (['--help'], ['--version'], ['trane']):\n"
        "    try: code = main(words)\n    except SystemExit as end: code = end.code\n    print('code', code or 0)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert re.findall("^code (.)$", done.stdout, re.MULTILINE) == ["0", "0", "2"]


def test_terminal_says_that_modules_are_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "absent.json") == 2
    assert "loading" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("train", "absent.json") == 2
    assert capsys.readouterr().err.startswith("loading PyTorch and MuJoCo ...\r\x1b[Kerror: absent.json: no such file")
    assert gc.isenabled()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("program", "exit_code"),
    [
        (["embodichain.cli", "train", "absent.json"], 130),
        (["embodichain.agents.rl.train", "--config", "absent.json"], -signal.SIGINT),  # which a shell shows as 130
    ],
    ids=["command", "module"],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(program: list[str], exit_code: int, tmp_path: Path) -> None:
    slow = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "torch.py").write_text(slow, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    process = subprocess.Popen(
        [sys.executable, "-m", *program],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (exit_code, "interrupted\n")


@pytest.mark.parametrize("command", ["eval latest", "play latest", "train push_cube", "resume latest", "bc push_cube"])
def test_device_that_is_not_here_is_named_as_it_was_given(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run(*command.split(), "--device", "cuda:0") == 2
    err = capsys.readouterr().err
    assert "argument --device: 'cuda:0' cannot be used: CUDA is not available here" in err
    assert "For the processor, add --device cpu to the command line" in err


def test_overrides_may_stand_on_both_sides_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    # Both overrides are reported, and so both arrived.
    assert run("train", "absent.json", "trainer.seed", "--no-distributed", "trainer.x=1") == 2
    assert "absent.json: no such file" in capsys.readouterr().err
    assert run("train", "absent.json", "--no-distributed", "trainer.seed=1", "--sed=2") == 2
    assert "unrecognized arguments: --sed=2" in capsys.readouterr().err
    assert run("train", "absent.json", "--num_envs", "4") == 2
    assert "--num_envs 4; values of the config are given as key=value" in capsys.readouterr().err


@pytest.mark.ext
@pytest.mark.parametrize("command", ["export x", "play x", "view x", "compare x", "schema"])
def test_folder_where_a_file_is_to_be_written_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path, f"{tmp_path}/new/"):
        assert run(*command.split(), "--out", str(folder)) == 2
        assert f"argument --out: must be a file, but '{folder}' is a folder" in capsys.readouterr().err
