"""``import embodichain as ec``: the names that a user types, imported when they are first used."""

import subprocess
import sys
from pathlib import Path

import pytest

import embodichain as ec
from tests.agents.rl.fakes import tiny_config, write_config


def test_import_loads_no_torch_and_make_knows_the_shipped_tasks() -> None:
    code = "import sys, embodichain as ec; assert 'torch' not in sys.modules; ec.make('CartPoleRL', num_envs=2)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_those_that_a_user_types() -> None:
    assert dir(ec) == ec.__all__
    for name in ec.__all__:
        assert callable(getattr(ec, name))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        ec.trian  # noqa: B018


def test_training_loading_and_acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, tiny_config(trainer__enable_eval=False))
    summary = ec.train(config, **{"trainer.iterations": 1})
    assert summary["env_steps"] == 8
    env = ec.make("CartPoleRL", num_envs=3)
    obs, _ = env.reset(seed=1)
    assert ec.load_policy(summary["run_folder"]).act(obs).shape == (3, 1)
