"""A SmolVLA in LeRobot's format is trained and exported again. Shapes: H = 4 actions of a chunk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from embodichain.agents.rl.models import SmolVLA, VLAPolicy, VLAPolicyCfg, load_vla_model
from embodichain.agents.rl.models.actor_critic import ActorCriticCfg
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.ext.vla.lerobot import writing as lerobot
from embodichain.ext.vla.lerobot.writing import write_lerobot_folder
from embodichain.ext.vla.policy import LoRACfg, add_lora, without_adapters
from embodichain.tools.policy import ParityError
from embodichain.utils import ConfigError
from tests.ext.vla.lerobot.conftest import FIXTURE
from tests.ext.vla.test_imitation import SMOLVLA, write_config
from tests.lab.scenes import needs_gl

pytest.importorskip("transformers", reason="needs the extra vla")

FEATURES = {
    "observation.images.top": "image/front",
    "observation.images.wrist": "image/front",
    "observation.images.empty_camera_0": None,
}


def train(folder: Path) -> Path:
    """Train for an iteration on one core; return the run's folder."""
    path = write_config(folder, iterations=1)
    data = json.loads(path.read_text())
    vla = {"model_path": str(FIXTURE), "model_class": SMOLVLA, "model_config": {}, "features": FEATURES}
    data["policy"]["vla_config"] |= vla
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": 6, "learning_rate": 0.01, "lr_schedule": "constant"}
    data["algorithm"]["cfg"]["critic_warmup"] = 0  # the only update is to change the actions
    path.write_text(json.dumps(data))
    return Path(train_from_config(str(path))["run_folder"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("training")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield train(folder)


def export(run: Path, out: Path) -> int:
    given = ["export", str(run), "--format", "lerobot", "--observations", "4", "--envs", "2", "--out", str(out)]
    return main(given)


@needs_gl
def test_folder_with_other_actions_is_deleted(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def spoil(out: Path, *args: Any) -> list[Path]:
        files = write_lerobot_folder(out, *args)
        shutil.copy(FIXTURE / "model.safetensors", out / "model.safetensors")
        return files

    monkeypatch.setattr(lerobot, "write_lerobot_folder", spoil)
    with pytest.raises(ParityError, match="step 0 of 2: the exported policy's action differs"):
        lerobot.export_lerobot(str(run), tmp_path / "out", 4, 2, [])
    assert not (tmp_path / "out").exists()


def test_adapters_are_merged_into_the_weights() -> None:
    pytest.importorskip("peft", reason="needs the extra vla")
    model = load_vla_model(FIXTURE, SMOLVLA)
    expected = load_file(FIXTURE / "expected.safetensors")
    given = {**expected, **{f"image/{name}": expected["image/hand"] for name in ("wrist", "empty_camera_0")}}
    policy = VLAPolicy(add_lora(model, LoRACfg(rank=2)), {})
    for name, value in policy.named_parameters():
        if "lora_B" in name:
            value.data.normal_(std=0.1)
    merged = without_adapters(policy)
    assert isinstance(merged, SmolVLA)
    with torch.no_grad():
        results = [each.predict(given, expected["noise"]) for each in (policy.model, merged)]
    torch.testing.assert_close(*results, atol=1e-5, rtol=0)
    assert list(merged.state_dict()) == list(load_vla_model(FIXTURE, SMOLVLA).state_dict())


def test_only_a_policy_that_came_from_lerobot_is_exported() -> None:
    for block in (VLAPolicyCfg("vla"), ActorCriticCfg("actor_critic")):
        opened: Any = SimpleNamespace(config=SimpleNamespace(policy=block))
        saved: Any = SimpleNamespace(folder="run")
        with pytest.raises(ConfigError, match=r"--format lerobot: run: only for a policy that began from LeRobot's"):
            lerobot._source(saved, opened)
