"""SAC from its config to the results: 2 environments of CartPole, 4 steps and 4 gradient steps an iteration."""

import math
import shutil
from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import main as train
from embodichain.cli import main as cli
from tests.agents.rl.fakes import read_metrics, tiny_config, tiny_sac_config, write_config
from tests.agents.rl.test_run_config import errors

pytestmark = pytest.mark.e2e

SAC_METRICS = {
    "clipped_actions",
    "replay_steps",
    "critic_loss",
    "action_value",
    "grad_norm",
    "actor_loss",
    "actor_grad_norm",
    "entropy",
    "temperature",
    "skipped_steps",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of SAC and of PPO, which later ones leave as they are."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, config in {"sac": tiny_sac_config(), "ppo": tiny_config()}.items():
            assert train(["--config", write_config(folder, config, f"{name}.json")]) == 0
            (run,) = (folder / "outputs").iterdir()
            run.rename(folder / name)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of ``trained``, in which the test is."""
    monkeypatch.chdir(tmp_path)
    for name in ("sac", "ppo"):
        shutil.copytree(trained / name, tmp_path / name)
    return tmp_path


def test_metrics_of_every_iteration_are_finite(trained: Path) -> None:
    found = read_metrics(trained / "sac")
    assert len(found) == 2
    for row in found:
        metrics = {name.removeprefix("train/"): row[name] for name in row if name.startswith("train/")}
        assert set(metrics) == SAC_METRICS
        assert all(math.isfinite(value) for value in metrics.values())
    assert [row["train/replay_steps"] for row in found] == [8, 16]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["eval", "sac", "--episodes", "3"], "success"),
        (["report", "sac"], "report.html"),
        (["compare", "sac", "ppo"], "name sac, "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_take_a_run_of_sac(
    argv: list[str], words: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(argv) == 0
    assert words in capsys.readouterr().out


def test_run_of_sac_begins_with_another_ones_policy(runs: Path) -> None:
    config = write_config(runs, tiny_sac_config(policy__init_from="sac", trainer__save_freq="1 it"))
    assert train(["--config", config, "algorithm.cfg.learning_rate=1e-30", "algorithm.cfg.tau=1e-12"]) == 0
    (run,) = (runs / "outputs").iterdir()
    taught = load_checkpoint(runs / "sac/checkpoints/tiny_step_16.pt")["policy"]
    content = load_checkpoint(run / "checkpoints/tiny_step_16.pt")
    for name, value in taught.items():
        if not name.startswith("normalizer"):
            assert torch.equal(content["policy"][name], value)
        if name.startswith("critics."):  # the targets begin there too, not with the first random weights
            torch.testing.assert_close(content["algorithm"]["target_critics"][name.removeprefix("critics.")], value)


@pytest.mark.parametrize("pair", [("sac", "ppo"), ("ppo", "sac")])
def test_policies_of_ppo_and_sac_do_not_begin_with_each_other(
    pair: tuple[str, str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, teacher = pair
    build = tiny_sac_config if name == "sac" else tiny_config
    assert train(["--config", write_config(runs, build(policy__init_from=teacher))]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert line.startswith("error: policy.init_from: ")
    assert "critics.0.weight" in line


def test_settings_without_effect_are_said(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = {"learning_starts": 17, "num_demonstrations": 5, "imitation_coef": 1.0, "replay_capacity": 7}
    cfg |= {"demonstration_share": 0.9, "n_steps": 3}
    groups = {"env_groups": 2}
    config = write_config(own_folder, tiny_sac_config(algorithm__cfg=cfg, trainer__asynchronous=groups))
    assert cli(["validate", config]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] algorithm.cfg.replay_capacity: 7 is less than a rollout has: of its 8 steps (trainer.num_envs x "
        "trainer.buffer_size) the first are never sampled",
        "[WARNING] algorithm.cfg.learning_starts: nothing is learned before 17 environment steps, and the training has "
        "16",
        "[WARNING] algorithm.cfg.num_demonstrations: not used without algorithm.cfg.demonstrations",
        "[WARNING] algorithm.cfg.demonstration_share: not used without algorithm.cfg.demonstrations",
        "[WARNING] algorithm.cfg.imitation_coef: not used without algorithm.cfg.demonstrations",
        "[WARNING] algorithm.cfg.n_steps: with 2 trainer.asynchronous.env_groups, whose rollouts alternate, returns "
        "also end where a rollout does, after 4 steps",
    ]
    shown = write_config(own_folder, tiny_sac_config(algorithm__cfg={"learning_starts": 0, "demonstrations": "data"}))
    assert cli(["validate", shown]) == 0
    assert "with the other defaults little is learned from them; the recipe pick_cube" in capsys.readouterr().err
    used = write_config(own_folder, tiny_sac_config(algorithm__cfg={"learning_starts": 16, "replay_capacity": 8}))
    assert cli(["validate", used]) == 0
    assert not capsys.readouterr().err


@pytest.mark.ext
def test_rollouts_may_be_collected_asynchronously(own_folder: Path) -> None:
    asynchronous = {"env_groups": 2, "max_staleness": 2}
    config = tiny_sac_config(trainer__asynchronous=asynchronous, trainer__iterations=6, trainer__enable_eval=False)
    assert train(["--config", write_config(own_folder, config)]) == 0
    (run,) = Path("outputs").iterdir()
    assert all(math.isfinite(row["train/critic_loss"]) for row in read_metrics(run))


@pytest.mark.usefixtures("own_folder")
def test_sac_with_another_policy_is_one_line() -> None:
    (found,) = errors(tiny_sac_config(policy=tiny_config()["policy"]))
    assert found.startswith("policy.name: 'actor_critic' with algorithm.name 'sac': SAC improves policies of class S")


@pytest.mark.usefixtures("own_folder")
def test_ppo_with_the_policy_of_sac_is_one_line() -> None:
    assert errors(tiny_sac_config(algorithm=tiny_config()["algorithm"])) == [
        "policy.name: 'soft_actor_critic' with algorithm.name 'ppo': PPO reads value from evaluate_actions, and "
        "SoftActorCritic returns log_prob, entropy"
    ]
