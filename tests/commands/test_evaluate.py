"""``embodichain eval`` on a run whose policy balances the pole."""

import json
from pathlib import Path

import numpy as np
import pytest

from embodichain.agents.rl.checkpoint.files import load_checkpoint, save_checkpoint
from embodichain.cli import main
from embodichain.tools.evaluate import describe, format_evaluation
from embodichain.utils import write_json
from tests.trained_run import STEP_LIMIT

pytestmark = pytest.mark.e2e


def test_results_do_not_depend_on_the_number_of_environments(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []
    for target, envs in (("latest", "4"), (str(run_folder), "2")):
        assert main(["eval", target, "--episodes", "4", "--envs", envs, "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    first, second = results
    assert first["figures"].keys() == second["figures"].keys()
    for name in first["figures"]:
        assert first["figures"][name]["mean"] == pytest.approx(second["figures"][name]["mean"], rel=1e-5)
    assert (first["success_rate"], first["episodes"], first["env_steps"]) == (1.0, 4, 16)
    # Wilson's lower end for 4 of 4: 4 / (4 + 1.96^2)
    assert first["success_interval_95"] == pytest.approx([4 / (4 + 1.96**2), 1.0])
    assert first["figures"]["length"]["mean"] == STEP_LIMIT
    assert {"return", "rewards/upright", "metrics/pole_angle", "metrics/pole_angle at the end"} <= set(first["figures"])
    assert first["metrics"] == pytest.approx(second["metrics"], rel=1e-5)
    assert first["metrics"]["pole_angle"] == first["figures"]["metrics/pole_angle"]["mean"]
    assert not (run_folder / "videos").exists()


def test_table_and_another_set_of_episodes(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run_folder), "--episodes", "2", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "success rate  100.0% of 2 episodes (95 % interval 34.2% to 100.0%)" in out
    assert "rewards/upright" in out
    assert "\npole_angle  " in out


def test_best_checkpoint_is_the_one_that_is_pointed_to(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_folder / "checkpoints" / "best.json").unlink()
    assert main(["eval", f"{run_folder}/best"]) == 2
    assert "there is no best checkpoint: none was evaluated" in capsys.readouterr().err
    write_json(run_folder / "checkpoints" / "best.json", {"file": "tiny_step_16.pt", "step": 16})
    assert main(["eval", "best", "--episodes", "1"]) == 0
    assert capsys.readouterr().out.startswith("tiny_step_16.pt")


def test_policy_that_is_not_finite_is_an_error_and_no_result(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_folder / "checkpoints" / "tiny_step_16.pt"
    content = load_checkpoint(file)
    content["policy"]["actor.0.weight"][0, 0] = float("nan")
    save_checkpoint(run_folder / "checkpoints" / "broken.pt", content)
    assert main(["eval", str(run_folder / "checkpoints" / "broken.pt")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() == f"error: {run_folder}/checkpoints/broken.pt: not finite in the policy: actor.0.weight"


@pytest.mark.parametrize(
    "argv", [["--episodes", "0"], ["--episodes", "99999999999"], ["--episodes", "many"], ["--seed", "-1"]]
)
def test_impossible_numbers_are_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["eval", "latest", *argv])
    assert caught.value.code == 2
    assert "must be a whole number from" in capsys.readouterr().err


def test_statistics_of_a_figure() -> None:
    # mean 2, s = sqrt((1 + 0 + 1) / 2) = 1, half = 1.96 / sqrt(3)
    stats = describe(np.array([1.0, 2.0, 3.0]))
    assert (stats["mean"], stats["std"], stats["lowest"], stats["highest"]) == (2.0, 1.0, 1.0, 3.0)
    assert stats["interval_95"] == pytest.approx((2 - 1.96 / 3**0.5, 2 + 1.96 / 3**0.5))
    assert describe(np.array([5.0]))["interval_95"] == (5.0, 5.0)
    assert describe(np.array([1.0, np.nan, 2.0, 3.0])) == stats


def test_overrides_change_what_is_evaluated_and_are_named(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "latest", "max_episode_steps=5", "--episodes", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["overrides"] == ["max_episode_steps=5"]
    # Other columns of the same number would be read in silence.
    assert main(["eval", str(run_folder), 'policy.obs_groups={"actor": ["robot/qvel"]}']) == 2
    assert "the policy is the run's as it was trained" in capsys.readouterr().err
    assert main(["eval", str(run_folder), "trainer.iterations=7"]) == 2
    assert "override 'trainer.iterations=7': has no place here" in capsys.readouterr().err
    assert result["figures"]["length"]["mean"] == 5
    assert "environment steps, with max_episode_steps=5" in format_evaluation(result)
    assert main(["eval", "latest", "env.rewards.clam.weight=2"]) == 2
    assert "env.rewards.clam.func: required, but missing" in capsys.readouterr().err


@pytest.mark.ext
def test_episodes_are_recorded_as_a_dataset_to_learn_from(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from embodichain.ext.lerobot.dataset import read_lerobot  # noqa: PLC0415 (an extension)

    pytest.importorskip("pyarrow", reason="needs pyarrow")
    out = tmp_path / "shown"
    command = ["eval", str(run_folder), "--episodes", "3", "--envs", "2", "--record", str(out)]
    assert main(command) == 0
    episodes = list(read_lerobot(out))
    assert len(episodes) == 3  # and not the fourth
    assert len(list(out.glob("**/file-*.parquet"))) == 2  # of data and of descriptions
    assert {len(episode.frames["observation.environment_state"]) for episode in episodes} == {STEP_LIMIT}
    assert all(episode.frames["next.success"][-1] for episode in episodes)
    assert capsys.readouterr().out.endswith(f"dataset    {out}: 3 episodes\n")
    assert main(command) == 2
    assert capsys.readouterr().err == f"error: --record {out}: is there already: name another folder, or remove it\n"
