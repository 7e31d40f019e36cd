"""One tiny run of CartPole for all tests of the commands, whose policy balances the pole by fixed gains."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint, save_checkpoint
from embodichain.agents.rl.train import main
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config

LINEAR: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [], "activation": "tanh"}}
# Of qf (cart, pole), qpos and qvel: found by hand. Two powers of two, whose products are exact: their sum is the same
# in any order, and so for any number of environments on any processor.
GAINS = [0.0, 0.0, 0.0, -32.0, 0.0, -4.0]
STEP_LIMIT = 60  # an episode in which nothing is done falls within 20


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run in ``outputs``; not to be written into."""
    folder = tmp_path_factory.mktemp("trained")
    env = load_json(CART_POLE_ENV) | {"max_episode_steps": STEP_LIMIT}
    (folder / "env.json").write_text(json.dumps(env), encoding="utf-8")
    config = tiny_config(
        trainer__gym_config=str(folder / "env.json"),
        policy__actor=LINEAR,
        policy__critic=LINEAR,
        policy__normalize_obs=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["--config", write_config(folder, config)]) == 0
        (path,) = folder.glob("outputs/*/checkpoints/*_16.pt")
        content = load_checkpoint(path)
        content["policy"]["actor.0.weight"] = torch.tensor([GAINS])
        content["policy"]["actor.0.bias"] = torch.zeros(1)
        del content["format_version"]
        save_checkpoint(path, content)
    return folder


@pytest.fixture
def run_folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the run's folder, in the working directory's ``outputs``."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "outputs", tmp_path / "outputs")
    shutil.copy(trained / "train_config.json", tmp_path)
    (folder,) = (tmp_path / "outputs").iterdir()
    return folder
