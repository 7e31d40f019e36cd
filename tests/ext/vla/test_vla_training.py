"""Training of a vision-language-action policy from its config, with a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.train import train_from_config
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import read_metrics
from tests.lab.scenes import needs_gl

SHIPPED = Path(__file__).resolve().parents[3] / "configs/agents/rl/push_colored_cube"
TINY = {"channels": [4, 4, 4], "width": 8, "depth": 1, "heads": 2, "chunk_length": 4}
_LAYERS = {"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
_LANGUAGE = {**_LAYERS, "vocab_size": 64, "num_key_value_heads": 2}
_SMOLVLA: dict[str, Any] = {
    **{"vision": {**_LAYERS, "image_size": 32, "patch_size": 8}, "scale_factor": 2, "denoising_steps": 3},
    **{"gradient_checkpointing": True, "cache_vision": True, "language": _LANGUAGE, "chunk_length": 4},
}


def write_config(folder: Path, **trainer: Any) -> Path:
    data = load_json(SHIPPED / "train_config.json")
    sizes = {"num_envs": 2, "buffer_size": 12, "iterations": 2, "enable_eval": False, "device": "cpu"}
    data["trainer"] |= {"gym_config": str(SHIPPED / "gym_config.json"), **sizes, **trainer}
    data["policy"] |= {"init_from": None}
    data["policy"]["vla_config"] |= {"model_config": TINY}
    data["algorithm"]["cfg"]["batch_size"] = 4
    path = folder / "train.json"
    path.write_text(json.dumps(data))
    return path


@needs_gl
def test_policy_is_trained_asynchronously(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = train_from_config(str(write_config(tmp_path, model_type="vla")))
    lines = read_metrics(Path(summary["run_folder"]))
    assert len(lines) == 2
    # 3 decisions of up to 4 steps in 2 environments, twice
    assert 12 <= summary["env_steps"] <= 48
    weights = torch.load(summary["checkpoint"], weights_only=True)["policy"]
    assert all(torch.isfinite(value).all() for value in weights.values())


@needs_gl
def test_smolvla_is_trained_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="needs the extra vla")
    monkeypatch.chdir(tmp_path)
    path = write_config(tmp_path, model_type="standard", iterations=1)
    data = json.loads(path.read_text())
    data["policy"]["vla_config"] |= {"model_class": "embodichain.agents.rl.models.SmolVLA", "model_config": _SMOLVLA}
    # The first of the only epoch's minibatches holds all: its log-probabilities are those of the rollout.
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": 6, "lr_schedule": "constant"}
    path.write_text(json.dumps(data))
    summary = train_from_config(str(path))
    (figures,) = read_metrics(Path(summary["run_folder"]))
    assert abs(figures["train/approx_kl"]) < 1e-6
    assert figures["train/clip_fraction"] == 0
