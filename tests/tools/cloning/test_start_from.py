"""Cloning that begins from given weights. Fixture: a SmolVLA that LeRobot wrote, with states of 9 and actions of 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.ext.vla.lerobot.folder import LeRobotFolder
from embodichain.ext.vla.loading import read_model_path
from embodichain.utils.safetensors_file import read_safetensors, write_safetensors
from embodichain.utils.utility import load_json
from tests.ext.vla.lerobot.conftest import FIXTURE, change_json
from tests.ext.vla.test_vla_training import needs_gl
from tests.ext.vla.test_vla_training import write_config as write_train_config

pytest.importorskip("transformers", reason="needs the extra vla")

SMOLVLA = "embodichain.agents.rl.models.SmolVLA"
TINY = {"channels": [4, 4, 4], "width": 8, "depth": 1, "heads": 2, "chunk_length": 4}
FEATURES = {
    "observation.images.top": "image/front",
    "observation.images.wrist": None,
    "observation.images.empty_camera_0": None,
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def configs(start: str | Path, vla: dict[str, Any] | None = None, **bc: Any) -> str:
    """Write the configs of a training and of a cloning that begins from ``start``; return the latter's path."""
    train = write_train_config(Path())
    data = load_json(train)
    given = {"model_class": SMOLVLA, "model_config": {}, "features": FEATURES}
    data["policy"]["vla_config"] = (given if vla is None else vla) | {"model_path": "outputs/clone"}
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": 6}
    data["trainer"]["iterations"] = 1
    train.write_text(json.dumps(data))
    cfg = {"train_config": str(train), "start_from": str(start), "num_episodes": 2, "num_envs": 2, "batch_size": 16}
    cfg |= {"steps": 60, "learning_rate": 0.01, "num_eval_episodes": 2}
    Path("bc.json").write_text(json.dumps(cfg | bc))
    return "bc.json"


def losses(out: str) -> list[float]:
    """Return the losses that a cloning printed."""
    return [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step ")]


@needs_gl
def test_published_policy_is_cloned_trained_and_exported_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bc", configs(FIXTURE)]) == 0
    found = losses(capsys.readouterr().out)
    assert found[-1] < 0.8 * found[0]
    before, after = (read_safetensors(folder / "model.safetensors") for folder in (FIXTURE, Path("outputs/clone")))
    assert before.keys() == after.keys()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert any("lm_expert" in name for name in changed)
    assert not any(".vlm.model." in name for name in changed)

    summary = train_from_config("train.json")
    assert summary["env_steps"] > 0
    exported = ["export", summary["run_folder"], "--format", "lerobot", "--observations", "4", "--envs", "2"]
    assert main([*exported, "--out", "exported"]) == 0
    assert list(load_json("exported/config.json")["input_features"]) == ["observation.images.top", "observation.state"]
    statistics = "policy_preprocessor_step_5_normalizer_processor.safetensors"
    assert Path("exported", statistics).read_bytes() == Path("outputs/clone", statistics).read_bytes()


@needs_gl
def test_statistics_become_those_of_the_demonstrations(tmp_path: Path) -> None:
    """Also where the folder has none, as lerobot/smolvla_base, and was made for another robot."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "source"))
    for file in folder.glob("policy_*.safetensors"):
        write_safetensors(file, {"so100.buffer.action.mean": torch.zeros(6)})

    def for_six_joints(config: dict[str, Any]) -> None:
        config["input_features"]["observation.state"]["shape"] = [6]
        config["output_features"]["action"]["shape"] = [6]

    change_json(folder / "config.json", for_six_joints)
    assert main(["bc", configs(folder, steps=2, num_eval_episodes=0, record="shown")]) == 0
    stats = load_json("outputs/shown/meta/stats.json")
    written = read_model_path("outputs/clone")
    assert isinstance(written, LeRobotFolder)
    assert (written.processors.state.kind, written.processors.action.kind) == ("MEAN_STD", "MEAN_STD")
    for name, found in (("observation.state", written.processors.state), ("action", written.processors.action)):
        torch.testing.assert_close(found.mean, torch.tensor(stats[name]["mean"]).float(), atol=1e-5, rtol=1e-5)
    deviation = torch.tensor(stats["action"]["std"]).float()
    torch.testing.assert_close(written.processors.action.std, deviation, atol=1e-5, rtol=1e-3)
    config = load_json("outputs/clone/config.json")
    assert config["input_features"]["observation.state"]["shape"] == [9]
    for processor in ("policy_preprocessor.json", "policy_postprocessor.json"):
        steps = load_json(f"outputs/clone/{processor}")["steps"]
        (features,) = [step["config"]["features"] for step in steps if "normalizer" in step["registry_name"]]
        assert features["action"]["shape"] == [2]


@needs_gl
def test_resumed_cloning_writes_the_same_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = configs(FIXTURE, steps=4, num_eval_episodes=0)
    assert main(["bc", path]) == 0
    assert main(["bc", path, "out=outputs/cut", "save_freq=2"]) == 0
    Path("outputs/cut/checkpoints/bc_step_4.pt").unlink()
    assert main(["bc", "--resume", "outputs/cut"]) == 0
    assert "resuming from outputs/cut/checkpoints/bc_step_2.pt" in capsys.readouterr().err
    one, two = (read_safetensors(Path("outputs", name, "model.safetensors")) for name in ("clone", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@needs_gl
def test_adapters_are_merged_into_what_the_training_reads() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    vla = {"model_class": SMOLVLA, "features": FEATURES, "lora": {"rank": 2}}
    assert main(["bc", configs(FIXTURE, vla, steps=2, num_eval_episodes=0)]) == 0
    assert train_from_config("train.json")["env_steps"] > 0


@needs_gl
def test_clone_of_ours_is_cloned_further(capsys: pytest.CaptureFixture[str]) -> None:
    vla = {"model_class": "embodichain.agents.rl.models.TinyVLA", "model_config": TINY}
    path = configs("outputs/first", vla, num_eval_episodes=0)
    assert main(["bc", path, "start_from=null", "out=outputs/first"]) == 0
    first = losses(capsys.readouterr().out)
    assert main(["bc", path]) == 0
    assert losses(capsys.readouterr().out)[0] < first[0]


def spoil(change: Callable[[Path], object]) -> Path:
    folder = Path(shutil.copytree(FIXTURE, "source"))
    change(folder)
    return folder


@needs_gl
@pytest.mark.parametrize(
    ("make", "vla", "message"),
    [
        (lambda: Path("none"), None, "start_from: no such folder or file: "),
        (lambda: "owner/name", None, "start_from: no such folder: "),
        (lambda: "owner/name@main", None, "start_from: 'owner/name@main' cannot be downloaded and is not in the hub's"),
        (
            lambda: spoil(lambda f: (f / "model.safetensors").unlink()),
            None,
            "start_from: source/model.safetensors: is missing",
        ),
        (
            lambda: spoil(lambda f: change_json(f / "config.json", lambda c: c.update(max_action_dim=1))),
            None,
            "start_from: source: action has up to 1 numbers (max_action_dim), the environment's has 2",
        ),
        (
            lambda: FIXTURE,
            {"model_class": "embodichain.agents.rl.models.TinyVLA", "model_config": {}},
            "must be embodichain.agents.rl.models.SmolVLA, got TinyVLA",
        ),
        (
            lambda: FIXTURE,
            {"model_class": SMOLVLA},
            "observation.images.top needs an image 'image/top'; observation.images.wrist needs an image 'image/wrist'",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], make: Callable[[], Any], vla: dict[str, Any] | None, message: str
) -> None:
    assert main(["bc", configs(make(), vla)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "WARNING" not in line]
    assert len(errors) == 1
    assert message in errors[0]
    assert not Path("outputs/clone").exists()


def test_other_policies_begin_from_random_weights(capsys: pytest.CaptureFixture[str]) -> None:
    train = Path(__file__).resolve().parents[3] / "configs/agents/rl/push_cube/train_config_quickstart.json"
    assert main(["bc", configs(FIXTURE, train_config=str(train))]) == 2
    assert "start_from: only for a policy named 'vla', train_config has 'actor_critic'" in capsys.readouterr().err
