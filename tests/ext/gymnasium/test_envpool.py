"""EnvPool's environments, where it is installed. Legend: N envs."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main as command
from embodichain.ext.gymnasium.envpool_env import EnvPoolCfg, EnvPoolEnv
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import tiny_config, write_config

pytestmark = pytest.mark.usefixtures("own_folder")


def config(task: dict[str, Any], **changes: Any) -> str:
    return write_config(Path(), tiny_config(trainer__gym_config=task, **changes))


def test_without_envpool_an_id_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"id: EnvPool cannot be imported \(No module named 'envpool'\); .*install"):
        load_run_config(config({"id": "envpool:HopperHop-v1"}))


@pytest.fixture
def _envpool() -> None:
    pytest.importorskip("envpool")


def make(name: str, num_envs: int, **settings: Any) -> EnvPoolEnv:
    return EnvPoolEnv(EnvPoolCfg(f"envpool:{name}", num_envs=num_envs, **settings))


@pytest.mark.usefixtures("_envpool")
def test_done_environments_reset_in_the_same_step() -> None:
    env = make("Pendulum-v1", 3, max_episode_steps=2)
    first, _ = env.reset(seed=1)
    env.reset(options={"reset_ids": [1]})  # one step out of time with the others
    env.step(torch.zeros(3, 1))
    env.reset(options={"reset_ids": [1]})
    obs, _, terminated, truncated, info = env.step(torch.zeros(3, 1))
    assert truncated.tolist() == [True, False, True]
    assert not terminated.any()
    assert info["elapsed_steps"].tolist() == [2, 1, 2]
    assert env.elapsed_steps.tolist() == [0, 1, 0]
    same = (obs["observation"] == info["final_obs"]["observation"]).all(1)
    assert same.tolist() == [False, True, False]
    *_, truncated, info = env.step(torch.zeros(3, 1))
    assert truncated.tolist() == [False, True, False]
    assert torch.equal(env.reset(seed=1)[0]["observation"], first["observation"])
    env.close()


@pytest.mark.usefixtures("_envpool")
def test_members_of_a_group_begin_equal_episodes() -> None:
    env = make("Pendulum-v1", 4, group_size=2)
    rows = env.reset(seed=5)[0]["observation"]
    env.close()
    assert torch.equal(rows[::2], rows[1::2])
    assert not torch.equal(rows[0], rows[2])


@pytest.mark.usefixtures("_envpool")
def test_numbers_in_its_info_are_metrics() -> None:
    env = make("HalfCheetah-v4", 2)
    env.reset(seed=1)
    info = env.step(torch.zeros(2, 6))[4]
    env.close()
    assert sorted(info["metrics"]) == ["reward_ctrl", "reward_run", "x_position", "x_velocity"]
    assert info["metrics"]["reward_ctrl"].tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("_envpool")
def test_a_task_of_envpool_is_trained_evaluated_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    path = config({"id": "envpool:HopperHop-v1", "max_episode_steps": 6}, trainer__iterations=2)
    summary = train_from_config(path)
    assert summary["success_rate"] is None
    assert np.isfinite(summary["avg_reward"])
    capsys.readouterr()
    train_from_config(None, overrides=["trainer.iterations=3"], resume="latest")
    assert capsys.readouterr().err.count("envpool:HopperHop-v1: new episodes begin") == 1
    assert command(["eval", "latest", "--episodes", "3", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert command(["eval", "latest", "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first


@pytest.mark.usefixtures("_envpool")
def test_an_unknown_name_has_its_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"EnvPool has no environment 'HopperHop-v0'\. Did you mean 'HopperHop-v1'"):
        load_run_config(config({"id": "envpool:HopperHop-v0"}))
