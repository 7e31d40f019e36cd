"""Behaviour cloning of policies for vectors and images, and of recurrent ones. Shapes: M frames, A action size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.models.distributions import TanhSquash
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.tools.cloning.cloning import Cloning, check_can_be_cloned, cloning_loss
from embodichain.tools.cloning.config import BCCfg
from embodichain.tools.cloning.demonstrations import Demonstrations
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CONFIGS, write_config

MLP = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
CNN = {"type": "cnn", "keys": ["image/cam"], "network_cfg": {"hidden_sizes": [16], "activation": "tanh"}}
BLOCKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "actor_critic", "actor": MLP, "critic": MLP},
    "normalised, without a critic": {"name": "actor_only", "actor": MLP, "normalize_obs": True},
    "squashed": {"name": "actor_critic", "actor": MLP, "critic": MLP, "squash": True},
    "soft": {"name": "soft_actor_critic", "actor": MLP, "critic": MLP},
    "two actions at once": {"name": "actor_critic", "actor": MLP, "critic": MLP, "chunk_length": 2},
}
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float32)
PICK = CONFIGS / "agents/rl/pick_cube"


def build(block: dict[str, Any], **entries: spaces.Space[Any]) -> Policy:
    torch.manual_seed(0)
    flat = spaces.Box(-np.inf, np.inf, (1, 1), np.float32)
    structured = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (1,), np.float32), **entries})
    return build_policy(block, flat, ACTIONS, torch.device("cpu"), observation_space=structured)


def demonstrations(
    obs: torch.Tensor, action: torch.Tensor, lengths: list[int], **entries: torch.Tensor
) -> Demonstrations:
    left = torch.cat([torch.arange(length, 0, -1) for length in lengths])
    given = TensorDict({name.replace("_", "/"): value for name, value in entries.items()}, batch_size=[len(left)])
    return Demonstrations(given, action, left, len(lengths), obs)


def clone(policy: Policy, data: Demonstrations, steps: int = 300) -> Cloning:
    cloning = Cloning(policy, data, BCCfg("train_config.json", steps=steps, batch_size=32, learning_rate=0.02))
    cloning.run(lambda step, loss: None)
    return cloning


def test_loss_is_the_negative_log_likelihood_of_each_number_of_the_action() -> None:
    policy = build(BLOCKS["mlp"] | {"init_log_std": 0.0})
    data = demonstrations(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]), [2])
    mean = policy.get_action(TensorDict({"obs": torch.zeros(1, 1)}, [1]), deterministic=True)["action"].item()
    # the std is 1: 1/2 log 2 pi + (a - mean)^2 / 2, of both frames
    expected = 0.5 * math.log(2 * math.pi) + ((1 - mean) ** 2 + (3 - mean) ** 2) / 4
    assert cloning_loss(policy, data, torch.tensor([0, 1])).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", BLOCKS)
def test_policy_comes_to_do_what_was_shown(name: str) -> None:
    policy = build(BLOCKS[name])
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    cloning = clone(policy, demonstrations(x, 0.5 * x, [32, 32]))
    action = policy.get_action(TensorDict({"obs": x}, [64]), deterministic=True)["action"]
    torch.testing.assert_close(action.reshape(64, -1)[:, :1], 0.5 * x, atol=0.06, rtol=0)
    assert cloning.loss < -0.5


def test_image_decides_what_a_cnn_does() -> None:
    policy = build(
        BLOCKS["mlp"] | {"actor": CNN, "critic": CNN}, **{"image/cam": spaces.Box(0, 255, (36, 36, 3), np.uint8)}
    )
    bright = torch.arange(8) % 2
    image = (255 * bright.view(8, 1, 1, 1).expand(8, 36, 36, 3)).to(torch.uint8)
    data = demonstrations(torch.zeros(8, 1), bright.view(8, 1) - 0.5, [8], image_cam=image)
    clone(policy, data, steps=60)
    given = TensorDict({"obs": torch.zeros(8, 1), "entries": {"image/cam": image}}, [8])
    action = policy.get_action(given, deterministic=True)["action"].squeeze(1)
    assert ((action > 0) == (bright == 1)).all()


def test_recurrent_policy_learns_what_only_the_first_observation_tells() -> None:
    policy = build({"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 8})
    cues = torch.tensor([0.5, -0.5, 0.5, -0.5])
    lengths = [3, 3, 2, 3]  # the shorter one is masked at its end
    obs = torch.cat([torch.tensor([cue, *[0.0] * (length - 1)]) for cue, length in zip(cues, lengths, strict=True)])
    action = torch.cat([cue.repeat(length) for cue, length in zip(cues, lengths, strict=True)])
    clone(policy, demonstrations(obs.unsqueeze(1), action.unsqueeze(1), lengths))

    state = torch.zeros(2, 8)
    for seen in ([0.5, -0.5], [0.0, 0.0], [0.0, 0.0]):
        step = policy.get_action(TensorDict({"obs": torch.tensor(seen).unsqueeze(1), "state": state}, [2]), True)
        state = step["next_state"]
        torch.testing.assert_close(step["action"].squeeze(1), cues[:2], atol=0.1, rtol=0)


def test_what_is_beyond_an_episodes_end_changes_no_recurrent_loss() -> None:
    policy = build({"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP, "hidden_size": 4})
    obs, action = torch.tensor([[0.1], [0.2], [0.3]]), torch.tensor([[1.0], [2.0], [3.0]])
    short = demonstrations(obs[:1], action[:1], [1])
    both = demonstrations(obs, action, [1, 2])
    one, two = (cloning_loss(policy, data, data.starts[[k]]) for data, k in ((short, 0), (both, 1)))
    mixed = cloning_loss(policy, both, both.starts)  # one frame of the first episode, two of the second
    torch.testing.assert_close(mixed, (one + 2 * two) / 3)


def test_squashing_is_inverted_and_a_bound_stays_finite() -> None:
    squash = TanhSquash(spaces.Box(-2.0, 4.0, (1,), np.float32))
    raw = torch.tensor([[-1.0], [0.0], [2.0]])
    torch.testing.assert_close(squash.inverse(squash(raw)), raw, atol=1e-5, rtol=0)
    assert squash.inverse(torch.tensor([[4.0]])).item() == pytest.approx(math.atanh(0.999), rel=1e-4)


def test_policies_whose_likelihood_needs_more_than_the_action_are_refused() -> None:
    policy = build(BLOCKS["mlp"])
    policy.extra_fields = (("noise", 3),)
    with pytest.raises(ConfigError, match=r"ActorCritic cannot be cloned: its likelihoods need its own noise"):
        check_can_be_cloned(policy)


def train_config(folder: Path, **policy: Any) -> dict[str, Any]:
    config = load_json(PICK / "train_config_quickstart.json")
    config["trainer"] |= {"gym_config": str(PICK / "gym_config.json"), "events": {}, "exp_name": "pick"}
    config["trainer"] |= {"num_envs": 2, "buffer_size": 4, "iterations": 1, "enable_eval": False, "device": "cpu"}
    config["algorithm"]["cfg"] |= {"batch_size": 8, "n_epochs": 1}
    config["policy"] |= policy
    write_config(folder, config, "train.json")
    return config


def test_training_continues_from_a_clone_and_its_recorded_dataset_gives_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    monkeypatch.chdir(tmp_path)
    train_config(tmp_path)
    bc = {"train_config": "train.json", "num_episodes": 2, "num_envs": 2, "steps": 3, "batch_size": 4}
    path = write_config(tmp_path, bc | {"num_eval_episodes": 2, "record": "outputs/shown"}, "bc.json")

    assert main(["bc", path]) == 0
    assert "model           outputs/pick_bc" in capsys.readouterr().out
    summary = train_from_config(train_config(tmp_path, init_from="outputs/pick_bc"))
    assert summary["env_steps"] == 8
    again = ["bc", path, "record=null", "dataset=outputs/shown", "out=outputs/again", "num_eval_episodes=0"]
    assert main(again) == 0
    frames = [load_json(Path(f"outputs/{name}/bc.json"))["frames"] for name in ("pick_bc", "again")]
    # an episode's last frame is the observation after its last step but one, unless success ended it
    assert frames[1] in (frames[0], frames[0] - 1, frames[0] - 2)


def test_clone_of_other_networks_is_refused_by_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train_config(tmp_path)
    bc = {"train_config": "train.json", "num_episodes": 1, "num_envs": 1, "steps": 1, "num_eval_episodes": 0}
    assert main(["bc", write_config(tmp_path, bc, "bc.json")]) == 0
    with pytest.raises(ConfigError, match=r"policy\.init_from: outputs/pick_bc/checkpoints/bc_step_1\.pt"):
        train_from_config(train_config(tmp_path, init_from="outputs/pick_bc", actor=MLP))
