"""The commands on a run in a Gymnasium environment."""

import json
import shutil
from pathlib import Path

import pytest

from embodichain.cli import main
from embodichain.lab.sim.rendering.renderer import opengl_problem
from embodichain.utils.video import VideoReader
from tests.agents.rl.fakes import tiny_config, write_config

needs_gl = pytest.mark.skipif(opengl_problem() is not None, reason="no OpenGL")
# Its images are 64 x 48, and its episodes 6 steps.
REACHER = {"id": "gymnasium:Reacher-v5", "kwargs": {"width": 64, "height": 48}, "max_episode_steps": 6}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reacher")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", write_config(folder, tiny_config(trainer__gym_config=REACHER))]) == 0
    return folder


@pytest.fixture(autouse=True)
def run_folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")
    (run,) = Path("outputs").iterdir()
    return run


@pytest.mark.e2e
@needs_gl
def test_video_that_cannot_be_written_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    assert main(["play", "latest", "--episodes", "1", "--out", "file/play.mp4"]) == 1
    assert "error: no video was written: file/play.mp4" in capsys.readouterr().err


@pytest.mark.e2e
def test_evaluation_says_nothing_of_success(capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for envs in ("1", "3"):
        assert main(["eval", "latest", "--episodes", "3", "--envs", envs, "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    ours, theirs = (result["figures"]["return"] for result in results)
    assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-5)
    assert results[0]["success_rate"] is results[0]["success_interval_95"] is None
    assert results[0]["figures"]["length"]["mean"] == 6
    assert main(["eval", "latest", "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    assert "success" not in out
    assert "\nreturn " in out


@needs_gl
def test_run_is_played_into_a_video_of_its_own_size(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "latest", "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "length    6\n" in out
    assert [path.name for path in (run_folder / "videos").iterdir()] == ["play_step_16.mp4"]
    with VideoReader(run_folder / "videos/play_step_16.mp4", 48, 64) as video:
        images = video.read(100)
    assert len(images) == 2 * (7 + 25)  # two episodes of 6 steps, from the first state to the last, which is held
    assert images[0].std() > 10


@needs_gl
def test_evaluations_record_a_video(run_folder: Path) -> None:
    kwargs = json.dumps(REACHER["kwargs"] | {"render_mode": "rgb_array"})  # type: ignore[operator]
    assert main(["resume", str(run_folder), f"trainer.gym_config.kwargs={kwargs}", "trainer.iterations=3"]) == 0
    assert [path.name for path in (run_folder / "videos").iterdir()] == ["render_step_24.mp4"]
    summary = json.loads((run_folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["video"] == str(run_folder / "videos/render_step_24.mp4")


def test_the_report_has_the_return_in_place_of_success(run_folder: Path) -> None:
    assert main(["report", str(run_folder)]) == 0
    page = (run_folder / "report.html").read_text(encoding="utf-8")
    assert "return, mean of 3 episodes" in page
    assert "return over time" in page
    assert "success rate" not in page


def test_a_config_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reacher.json").write_text(json.dumps(REACHER | {"num_envs": 4}), encoding="utf-8")
    assert main(["validate", "reacher.json"]) == 0
    assert "gymnasium:Reacher-v5: 4 environments; not built" in capsys.readouterr().out
    assert main(["validate", "train_config.json"]) == 0
    assert "on gymnasium:Reacher-v5: 2 iterations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["view", "train_config.json"], "view: needs an environment with a scene of EmbodiChain's"),
        (["play", "latest", "--viewer"], "--viewer: needs an environment with a scene of EmbodiChain's"),
        (["rewards", "latest", "--episodes", "2"], "its environment does not say what a success is"),
        (["compare", "outputs/*"], "'eval/success_rate' was never logged: the task has no success"),
    ],
)
def test_what_needs_more_says_so_in_one_line(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(next(Path().glob(part))) if "*" in part else part for part in command]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
