"""A run's names on the command line, in each command's examples and beyond."""

import os
import shutil
from pathlib import Path

import pytest

from embodichain.agents.rl.checkpoint.saved_run import find_run, find_run_folder, names_run, settled
from embodichain.cli import COMMANDS, main, make_parser
from embodichain.utils import write_json

EXAMPLES = [  # without a pattern of runs, a bundle and an exported folder
    (name, words)
    for name in COMMANDS
    for example in COMMANDS[name].load().EXAMPLES
    if name not in ("compare", "diff")
    and (words := example.partition(" > ")[0].split())
    and words[0].startswith(("latest", "best", "outputs/"))
    and "/export/" not in words[0]
]


@pytest.fixture
def two_runs(run_folder: Path) -> tuple[Path, Path]:
    """Return an older run, and one that saved last, whose best checkpoint is not its latest."""
    older = run_folder.with_name("push_cube_ppo_20260101_120000")
    shutil.copytree(run_folder, older)
    for folder in (older, run_folder):
        (latest,) = folder.glob("checkpoints/*_16.pt")
        shutil.copy(latest, latest.with_name("tiny_step_8.pt"))
        write_json(folder / "checkpoints/best.json", {"file": "tiny_step_8.pt", "step": 8})
    for path in older.glob("checkpoints/*.pt"):
        os.utime(path, (1, 1))
    return older.relative_to(Path.cwd()), run_folder.relative_to(Path.cwd())


@pytest.mark.parametrize(
    ("command", "words"), EXAMPLES, ids=lambda given: given if isinstance(given, str) else " ".join(given)
)
def test_run_of_an_example_is_found(command: str, words: list[str], two_runs: tuple[Path, Path]) -> None:
    args = make_parser((command,)).parse_args([command, *words])
    older, folder = two_runs
    target = args.resume if command == "resume" else args.target
    if target.startswith("outputs/"):
        folder = older.rename(Path(*Path(target).parts[:2]))
    assert names_run(target)
    assert find_run_folder(target) == folder
    assert find_run(target).folder == folder


@pytest.mark.parametrize("target", ["best", "latest/best", "latest/best/", "{last}/best"])
def test_best_is_the_best_checkpoint_of_the_last_run(target: str, two_runs: tuple[Path, Path]) -> None:
    _, last = two_runs
    target = target.format(last=last)
    best = last / "checkpoints/tiny_step_8.pt"
    assert find_run(target).checkpoint == best
    assert names_run(target)


def test_run_in_a_folder_of_that_name_is_meant_first(two_runs: tuple[Path, Path]) -> None:
    older, _ = two_runs
    older.rename("latest")
    for target, name in (("latest", "tiny_step_16.pt"), ("latest/best", "tiny_step_8.pt")):
        assert find_run(target).checkpoint == Path("latest/checkpoints") / name
        assert names_run(target)


def test_settled_name_has_the_date(two_runs: tuple[Path, Path]) -> None:
    _, last = two_runs
    undated = str(last)[: -len("_20260101_120000")]
    for name in ("latest", undated, str(last)):
        assert names_run(name)
        assert names_run(f"{name}/best")
        assert settled(name) == str(last)
        assert settled(f"{name}/best") == f"{last}/best"
    for name in (f"{last}/checkpoints/tiny_step_8.pt", "hf:user/name", "outputs/missing"):
        assert settled(name) == name


@pytest.mark.e2e
@pytest.mark.parametrize("target", ["best", "{last}/checkpoints/tiny_step_8.pt"])
def test_commands_that_read_logs_take_the_same_words(
    target: str, two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, last = two_runs
    assert main(["compare", "--metric", "charts/SPS", target.format(last=last)]) == 0
    assert "charts/SPS, last value" in capsys.readouterr().out
