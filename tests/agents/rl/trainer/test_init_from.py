"""Trainings of CartPole that begin with the policy of another: 2 environments, 4 steps an iteration."""

import shutil
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from embodichain.agents.rl.build import init_policy
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.models import build_policy
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.agents.rl.models.soft_actor_critic import SoftActorCriticCfg
from embodichain.agents.rl.train import main
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import assert_same, last_checkpoint, only_run, read_metrics, tiny_config, write_config

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]

GRPO = {"name": "grpo", "cfg": {"n_epochs": 1, "batch_size": 8, "group_size": 2, "kl_coef": 0.1}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an actor-critic's run of one iteration."""
    with chdir(tmp_path_factory.mktemp("teacher")):
        return run_of(write_config(Path(), tiny_config()), "trainer.iterations=1").absolute()


def pupil(init_from: Any, **changes: Any) -> str:
    """Write the config of a GRPO run without a critic that begins with another's policy and learns nothing."""
    settings = {"policy__name": "actor_only", "policy__critic": None, "algorithm": GRPO, **changes}
    return write_config(Path(), tiny_config(policy__init_from=str(init_from), **settings))


def error_of(config: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line with which a run is refused; it leaves no folder."""
    capsys.readouterr()
    assert main(["--config", config]) == 2
    assert not Path("outputs").exists()
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    return line.removeprefix("error: ")


def run_of(config: str, *overrides: str) -> Path:
    assert main(["--config", config, *overrides]) == 0
    return only_run()


def test_grpo_begins_with_a_runs_actor_and_is_held_to_it(teacher: Path) -> None:
    (file,) = (teacher / "checkpoints").glob("*.pt")
    config = pupil(teacher / "best")
    run = run_of(config, "algorithm.cfg.learning_rate=1e-30", "trainer.iterations=2", "trainer.save_freq=1 it")
    taught, content = load_checkpoint(file)["policy"], last_checkpoint(run)
    names = [name for name in content["policy"] if not name.startswith("normalizer")]
    assert names == ["log_std", *(f"actor.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias"))]
    for name in names:
        assert torch.equal(content["policy"][name], taught[name])
        assert torch.equal(content["algorithm"]["reference"][name], taught[name])
    # Its own 17 observations of the first steps and 2 rollouts of 4, in each of 2 environments, come on top.
    assert content["policy"]["normalizer.count"] == taught["normalizer.count"] + 2 * (17 + 2 * 4)
    rows = read_metrics(run)
    assert [row["train/reference_kl"] for row in rows] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert not any(row.get("charts/episode_length_avg_100", 0) > 4 for row in rows)  # of the first steps' episodes


def test_actor_critic_takes_both(teacher: Path) -> None:
    config = write_config(Path(), tiny_config(policy__init_from=str(teacher)))
    run = run_of(config, "algorithm.cfg.learning_rate=1e-30")
    (file,) = (teacher / "checkpoints").glob("*.pt")
    taught, learned = load_checkpoint(file)["policy"], last_checkpoint(run)["policy"]
    assert any(name.startswith("critic.") for name in taught)
    names = [name for name in taught if not name.startswith("normalizer")]
    assert_same({name: learned[name] for name in names}, {name: taught[name] for name in names})


def test_resumed_run_does_not_begin_again(teacher: Path) -> None:
    copy = Path("copy")
    shutil.copytree(teacher, copy)
    config = pupil(copy)
    run = run_of(config, "trainer.iterations=2")
    before = last_checkpoint(run)
    shutil.rmtree(copy)
    assert main(["--resume", str(run), "trainer.iterations=3"]) == 0
    after = last_checkpoint(run)
    assert_same(after["algorithm"]["reference"], before["algorithm"]["reference"])
    assert after["policy"]["normalizer.count"] == before["policy"]["normalizer.count"] + 8


def test_parameters_that_do_not_fit_are_named_each(teacher: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"type": "mlp", "network_cfg": {"hidden_sizes": [5], "activation": "tanh"}}
    line = error_of(pupil(teacher, policy__actor=wide, policy__normalize_obs=False), capsys)
    (file,) = (teacher / "checkpoints").glob("*.pt")
    assert line.startswith(f"policy.init_from: {file}: does not fit")
    for part in ("normalizer.mean", "actor.0.weight", "actor.2.weight"):
        assert part in line
    assert "critic" not in line


def test_parameters_that_were_used_in_another_way_are_refused(
    teacher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relu = {"type": "mlp", "network_cfg": {"hidden_sizes": [4], "activation": "relu"}}
    line = error_of(pupil(teacher, policy__actor=relu, policy__squash=True), capsys)
    assert line.endswith(
        "its policy uses the same parameters in another way: squash False there, True here; "
        "actor.network_cfg.activation 'tanh' there, 'relu' here"
    )


def test_what_decides_the_first_parameters_alone_may_differ(teacher: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grpo = shutil.copytree(run_of(pupil(teacher, policy__init_log_std=-1.0), "trainer.iterations=1"), "grpo")
    shutil.rmtree("outputs")
    assert "policy.init_log_std: -1.0 has no effect: " in capsys.readouterr().err
    network = {"hidden_sizes": [4], "activation": "tanh"}
    changes = {
        "policy__actor": {"type": "mlp", "network_cfg": network | {"orthogonal_init": True}},
        "policy__obs_groups": {"critic": ["robot/qpos"]},  # the run has no critic
    }
    config = write_config(Path(), tiny_config(policy__init_from=str(grpo), **changes))
    run_of(config, "trainer.iterations=1")


def test_other_observations_and_actions_are_a_warning(teacher: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(policy__init_from=str(teacher), trainer__iterations=1))
    assert main(["--config", config]) == 0
    assert "was trained with" not in capsys.readouterr().err
    assert main(["--config", config, "env.actions.delta_qpos.params.scale=0.5"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "was trained with" in line]
    assert "env.actions" in line


def test_another_activation_of_an_encoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = {"channels": [2], "kernel_sizes": [2], "strides": [2]}
    block: dict[str, Any] = {
        "name": "soft_actor_critic",
        "actor": {"network_cfg": {"hidden_sizes": [2]}},
        "critic": {"network_cfg": {"hidden_sizes": [2]}},
        "encoder": {"keys": ["camera"], "network_cfg": network},
    }
    space = spaces.Dict({"camera": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
    policy = build_policy(block, 0, spaces.Box(-1, 1, (1,)), "cpu", observation_space=space)
    saved = SimpleNamespace(checkpoint="there.pt", content={"policy": policy.state_dict(), "config": {"policy": block}})
    monkeypatch.setattr("embodichain.agents.rl.build.find_run", lambda target: saved)
    cfg = parse_policy_block({**block, "init_from": "there"})
    init_policy(policy, cfg, {})
    assert isinstance(cfg, SoftActorCriticCfg)
    assert cfg.encoder is not None
    cfg.encoder.network_cfg.activation = "tanh"
    with pytest.raises(ConfigError, match=r"another way: encoder\.network_cfg\.activation 'relu' there, 'tanh' here$"):
        init_policy(policy, cfg, {})


def test_another_range_of_the_critics_bins_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = {"network_cfg": {"hidden_sizes": [2]}}
    block: dict[str, Any] = {"name": "soft_actor_critic", "actor": network, "critic": network, "value_range": [0, 4]}
    policy = build_policy(block, 3, spaces.Box(-1, 1, (1,)), "cpu")
    saved = SimpleNamespace(checkpoint="there.pt", content={"policy": policy.state_dict(), "config": {"policy": block}})
    monkeypatch.setattr("embodichain.agents.rl.build.find_run", lambda target: saved)
    init_policy(policy, parse_policy_block({**block, "init_from": "there"}), {})
    assert "has no critic" not in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"another way: value_range \(0.0, 4.0\) there, \(0.0, 9.0\) here$"):
        init_policy(policy, parse_policy_block({**block, "value_range": [0, 9], "init_from": "there"}), {})
    # SAC's first std is no parameter: another one would change the loaded policy.
    with pytest.raises(ConfigError, match=r"another way: init_log_std 0.0 there, -1.5 here$"):
        init_policy(policy, parse_policy_block({**block, "init_log_std": -1.5, "init_from": "there"}), {})
