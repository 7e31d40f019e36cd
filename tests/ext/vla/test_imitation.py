"""Behaviour cloning of VLA policies. Shapes: B batch, H actions of a chunk. Fixture: a SmolVLA that LeRobot wrote."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import BC, BCCfg
from embodichain.agents.rl.buffer import Demonstrations
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.demonstrations import Task
from embodichain.agents.rl.models import VLAPolicy
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.ext.lerobot.dataset import LeRobotWriter
from embodichain.ext.lerobot.demonstrations import read_demonstrations
from embodichain.ext.vla.lerobot.folder import LeRobotFolder
from embodichain.ext.vla.loading import read_model_path
from embodichain.lab.gym.utils.instructions import decode_instruction
from embodichain.utils import ConfigError
from embodichain.utils.state import read_safetensors, write_safetensors
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import read_metrics
from tests.ext.vla.lerobot.conftest import FIXTURE, change_json
from tests.lab.scenes import needs_gl

SMOLVLA = "embodichain.agents.rl.models.SmolVLA"
FEATURES = {
    "observation.images.top": "image/front",
    "observation.images.wrist": None,
    "observation.images.empty_camera_0": None,
}


class Linear(nn.Module):
    """Chunks of two actions, normal around a linear function of the state, with std 1."""

    chunk_length = 2
    observation_keys = ("state",)

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 2)
        nn.init.zeros_(self.net.weight)
        nn.init.zeros_(self.net.bias)

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        mean = self.net(obs["state"]).unsqueeze(2)
        return mean, torch.zeros_like(mean), self.get_value(obs)

    def get_value(self, obs: Any) -> Any:
        return torch.zeros(len(obs["state"]))

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        mean, zeros, value = self(obs)
        return -0.5 * (actions - mean).square(), zeros, value


class Longer(Linear):
    """Imitates three actions where it executes two."""

    imitation_length = 3

    def imitation_loss(self, obs: Any, actions: Any) -> Any:
        return torch.full_like(actions, actions.shape[1])


def episode(state: list[float]) -> TensorDict:
    """Return an episode whose actions are twice the state; slot T is not read."""
    values = torch.tensor([*state, 99.0])[None, :, None]
    return TensorDict({"entries": {"state": values}, "action": 2 * values}, batch_size=[1, len(state) + 1])


def cloning(model: nn.Module, **settings: Any) -> BC:
    bc = BC(BCCfg(**settings), VLAPolicy(model, {}))
    bc.use_demonstrations(Demonstrations([episode([1.0, 3.0]), episode([-1.0, -3.0])], 2))
    return bc


def test_loss_is_the_mean_over_what_is_in_the_episode() -> None:
    bc = cloning(model := Linear())
    # frame 0 is followed by actions 2 and 6, frame 1 by 6 alone; the mean is 0: (4 + 36 + 36) / 2 / 3
    assert bc.loss(torch.tensor([0, 1]))[0].item() == pytest.approx(76 / 6)
    bc.loss(torch.tensor([1, 3]))[0].backward()
    # d/dw of ((6 - 3w)^2 + (-6 + 3w)^2) / 2 / 2 at w = 0: -18; the chunk's second action is in no episode
    assert model.net.weight.grad is not None
    assert model.net.weight.grad.squeeze(1).tolist() == [-18.0, 0.0]


def test_model_may_imitate_more_actions_than_it_executes() -> None:
    assert cloning(Longer()).loss(torch.tensor([0]))[0].item() == 3


# --- datasets ---


def read(root: Path, keys: tuple[str, ...], action_dim: int = 2) -> Demonstrations:
    space = spaces.Dict(
        {
            "state": spaces.Box(-1, 1, (3,)),
            "instruction": spaces.Box(0, 99, (16,)),
            "image": spaces.Dict({"front": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
        }
    )
    task = Task(space, spaces.Box(-1, 1, (action_dim,)), False, None, {}, reads_obs=False, imitates=True)
    return read_demonstrations(str(root), None, task, keys)


def write_dataset(root: Path, task: str = "push the red cube") -> None:
    """Write episodes of 1 and 2 frames, of states, actions and tasks alone."""
    features = {
        "observation.state": {"dtype": "float64", "shape": [3], "names": None},
        "action": {"dtype": "float64", "shape": [2], "names": None},
    }
    writer = LeRobotWriter(root, 25, "robot", features)
    for i in range(2):
        frames = {"observation.state": np.full((i + 1, 3), float(i)), "action": np.full((i + 1, 2), -5.0 * i)}
        writer.add_episode(frames, task, {})


def test_dataset_gives_states_actions_and_the_task_as_tokens(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    write_dataset(tmp_path / "a")
    frames = read(tmp_path / "a", ("state", "instruction")).frames()
    assert frames["left"].tolist() == [1, 2, 1]
    assert frames["entries"]["state"][:, 0].tolist() == [0.0, 1.0, 1.0]
    assert frames["action"][:, 1].tolist() == [0.0, -5.0, -5.0]  # another robot's limits are its own
    assert decode_instruction(frames["entries"]["instruction"][2]) == "push the red cube"
    for keys, dim, message in (
        (("state",), 4, r"action has 2 numbers, this environment's 4"),
        (("image/front",), 2, r"has no feature 'observation\.images\.front'"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(tmp_path / "a", keys, dim)
    write_dataset(tmp_path / "b", "knit a jumper")
    with pytest.raises(ConfigError, match="unknown word 'knit'"):
        read(tmp_path / "b", ("instruction",))


# --- by the commands ---


def write_cloning(vla: dict[str, Any], iterations: int = 2, **algorithm: Any) -> str:
    """Write the config of a cloning from 2 episodes."""
    data = load_json(SHIPPED / "train_config_bc.json")
    data["trainer"] |= {"gym_config": str(SHIPPED / "gym_config.json"), "device": "cpu", "exp_name": "clone"}
    data["trainer"] |= {"iterations": iterations, "num_eval_envs": 2, "num_eval_episodes": 2}
    data["policy"]["vla_config"] = vla
    data["algorithm"]["cfg"] |= {"num_demonstrations": 2, "updates_per_iteration": 2, "batch_size": 4, **algorithm}
    Path("bc.json").write_text(json.dumps(data))
    return "bc.json"


def write_training(vla: dict[str, Any]) -> str:
    """Write the config of a training that continues from the cloning."""
    path = write_config(Path(), iterations=1)
    data = load_json(path)
    data["policy"] |= {"vla_config": vla, "init_from": "outputs/clone"}
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": 6}
    path.write_text(json.dumps(data))
    return str(path)


@needs_gl
@pytest.mark.usefixtures("own_folder")
def test_training_continues_from_a_cloned_vla() -> None:
    vla = {"model_class": "embodichain.agents.rl.models.TinyVLA", "model_config": TINY}
    cloned = train_from_config(write_cloning(vla))
    assert cloned["episodes"] == 2
    state = load_checkpoint(cloned["checkpoint"])["policy"]
    assert state["model.state_std"][-1] != 1.0  # fitted to the demonstrations
    trained = load_checkpoint(train_from_config(write_training(vla))["checkpoint"])["policy"]
    assert torch.equal(trained["model.state_std"], state["model.state_std"])


@needs_gl
@pytest.mark.usefixtures("own_folder")
def test_published_policy_is_cloned_trained_and_exported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="needs the extra vla")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source = Path(shutil.copytree(FIXTURE, tmp_path / "source"))
    for file in source.glob("policy_*.safetensors"):  # as lerobot/smolvla_base: without statistics of this robot
        write_safetensors(file, {"so100.buffer.action.mean": torch.zeros(6)})

    def for_six_joints(config: dict[str, Any]) -> None:
        config["input_features"]["observation.state"]["shape"] = [6]
        config["output_features"]["action"]["shape"] = [6]

    change_json(source / "config.json", for_six_joints)
    vla = {"model_path": str(source), "model_class": SMOLVLA, "model_config": {}, "features": FEATURES}
    run = train_from_config(write_cloning(vla, iterations=10, updates_per_iteration=3, learning_rate=0.01))
    rows = read_metrics(Path(run["run_folder"]))
    assert rows[-1]["train/imitation_loss"] < 0.9 * rows[0]["train/imitation_loss"]

    summary = train_from_config(write_training(vla))
    exported = ["export", summary["run_folder"], "--format", "lerobot", "--observations", "4", "--envs", "2"]
    assert main([*exported, "--out", "exported"]) == 0
    config = load_json("exported/config.json")
    assert list(config["input_features"]) == ["observation.images.top", "observation.state"]
    assert config["input_features"]["observation.state"]["shape"] == [9]
    written, saved = read_model_path("exported"), load_checkpoint(run["checkpoint"])["policy"]
    assert isinstance(written, LeRobotFolder)
    assert (written.processors.state.kind, written.processors.action.kind) == ("MEAN_STD", "MEAN_STD")
    torch.testing.assert_close(written.processors.state.mean, saved["model.state_mean"])
    torch.testing.assert_close(written.processors.action.std, saved["model.action_std"])
    before, after = (read_safetensors(Path(path, "model.safetensors")) for path in (FIXTURE, "exported"))
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert any("lm_expert" in name for name in changed)
    assert not any(".vlm.model." in name for name in changed)


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
    # The first of the only epoch's minibatches holds all: its log-probabilities equal the rollout's.
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": 6, "lr_schedule": "constant"}
    path.write_text(json.dumps(data))
    summary = train_from_config(str(path))
    (figures,) = read_metrics(Path(summary["run_folder"]))
    assert abs(figures["train/approx_kl"]) < 1e-6
    assert figures["train/clip_fraction"] == 0
