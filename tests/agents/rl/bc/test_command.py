from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.bc.command import clone_from_config
from embodichain.agents.rl.bc.config import load_bc_config
from embodichain.agents.rl.models import TinyVLA, load_vla_model
from embodichain.agents.rl.utils.run_access import RunLock
from embodichain.cli import main
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json

REPOSITORY = Path(__file__).resolve().parents[4]
SHIPPED = REPOSITORY / "configs/agents/rl/push_colored_cube"
TINY = {"channels": [4, 4, 4], "width": 8, "depth": 1, "heads": 2, "chunk_length": 4}

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def configs(folder: Path, **bc: Any) -> Path:
    """Write a tiny model's configs into a folder, and return the path of the cloning's."""
    train = load_json(SHIPPED / "train_config.json")
    train["trainer"]["gym_config"] = str(SHIPPED / "gym_config.json")
    train["policy"]["vla_config"] |= {"model_path": str(folder / "model"), "model_config": TINY}
    write(folder, "train.json", train)
    cfg = {"train_config": "train.json", "num_episodes": 2, "num_envs": 2, "steps": 3, "batch_size": 4}
    return write(folder, "bc.json", cfg | {"num_eval_episodes": 2} | bc)


@needs_gl
def test_expert_is_cloned_recorded_and_the_model_is_where_the_training_looks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = configs(tmp_path, record=str(tmp_path / "data/set"))
    assert main(["bc", str(path), "learning_rate=0.001"]) == 0
    out = capsys.readouterr().out
    assert "2 episodes" in out
    assert "success rate" in out
    model = load_vla_model(tmp_path / "model", "embodichain.agents.rl.models.TinyVLA")
    assert isinstance(model, TinyVLA)
    assert model.state_std[-1] != 1.0  # fitted to the demonstrations
    summary = json.loads((tmp_path / "model/bc.json").read_text())
    assert (summary["episodes"], summary["steps"], summary["config"]["learning_rate"]) == (2, 3, 0.001)
    again = configs(tmp_path, dataset=str(tmp_path / "data/set"), out=str(tmp_path / "second"), num_eval_episodes=0)
    assert clone_from_config(again)["episodes"] == 2


@needs_gl
def test_one_seed_gives_one_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        clone_from_config(configs(tmp_path, out=str(tmp_path / name), num_eval_episodes=0, num_episodes=1, num_envs=1))
    states = [load_vla_model(tmp_path / n, "embodichain.agents.rl.models.TinyVLA").state_dict() for n in ("a", "b")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_shipped_config_names_the_training_that_goes_on_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load_bc_config(SHIPPED / "bc_config.json")
    assert (REPOSITORY / cfg.train_config).is_file()
    assert load_json(REPOSITORY / cfg.train_config)["policy"]["vla_config"]["model_path"]


@pytest.mark.parametrize(
    ("bc", "message"),
    [
        ({"train_config": "none.json"}, r"train_config: no such file: .*none\.json"),
        ({"stesp": 3}, r"stesp: unknown key\. Did you mean 'steps'"),
        ({"steps": 0}, r"steps: .*greater than 0"),
        ({"learning_rate": "fast"}, r"learning_rate"),
        ({"device": "cuda:99"}, r"'cuda:99' cannot be used"),
    ],
)
def test_wrong_configs_are_refused_before_anything_is_built(tmp_path: Path, bc: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone_from_config(configs(tmp_path, **bc))


def test_model_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = configs(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"out: .*model: there is a model already"):
        clone_from_config(path)


def test_only_a_vla_is_cloned(tmp_path: Path) -> None:
    train = str(REPOSITORY / "configs/agents/rl/basic/cart_pole/train_config.json")
    with pytest.raises(ConfigError, match=r"policy\.name: only 'vla' is cloned, got 'actor_critic'"):
        clone_from_config(configs(tmp_path, train_config=train), allowed_imports=())


@needs_gl
def test_recording_of_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="record: only what the expert does is recorded"):
        clone_from_config(configs(tmp_path, record="x", dataset="y"))


def test_wrong_override_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"steps: .* \(set by the override 'steps=-1'\)"):
        clone_from_config(configs(tmp_path), ["steps=-1"])


@needs_gl
def test_two_clonings_do_not_write_into_one_folder(tmp_path: Path) -> None:
    path = configs(tmp_path, num_eval_episodes=0)
    (tmp_path / "model").mkdir()
    with RunLock() as lock:
        lock.take(tmp_path / "model")
        with pytest.raises(ConfigError, match=f"{tmp_path}/model: process {os.getpid()} on .* trains in this folder"):
            clone_from_config(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"out: {tmp_path}/file/model: cannot be made: Not a directory"):
        clone_from_config(path, [f"out={tmp_path}/file/model"])
