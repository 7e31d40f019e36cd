"""Shapes: M frames of all episodes, N environments, H steps of an action chunk."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from embodichain.datasets.lerobot_dataset import LeRobotWriter
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv, PushColoredCubeEnv
from embodichain.tools.cloning.demonstrations import Demonstrations, from_dataset, from_expert
from embodichain.utils import ConfigError
from embodichain.utils.instructions import decode_instruction
from embodichain.utils.utility import load_json
from tests.lab.scenes import cart_cfg, env_of

CONFIG = Path(__file__).resolve().parents[3] / "configs/agents/rl/push_colored_cube/gym_config.json"
KEYS = ("state", "instruction")

needs_parquet = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")


def two_episodes() -> Demonstrations:
    """Of 3 and 2 frames; frame m's action is m."""
    entries = TensorDict({"state": torch.arange(5.0)[:, None]}, batch_size=[5])
    return Demonstrations(entries, torch.arange(5.0)[:, None], torch.tensor([3, 2, 1, 2, 1]), 2)


def test_chunk_is_what_followed_and_ends_with_the_episode() -> None:
    action, is_there = two_episodes().chunks(torch.tensor([0, 1, 4]), 3)
    assert action.squeeze(2).tolist() == [[0, 1, 2], [1, 2, 2], [4, 4, 4]]
    assert is_there.tolist() == [[True, True, True], [True, True, False], [True, False, False]]


def cubes(num_envs: int) -> PushColoredCubeEnv:
    env = env_of(load_json(CONFIG) | {"sensor": []}, num_envs)
    assert isinstance(env, PushColoredCubeEnv)
    return env


def test_experts_episodes_are_the_same_whatever_the_number_of_environments() -> None:
    one, two = (from_expert(cubes(n), 5, KEYS, seed=7) for n in (2, 5))
    assert one.num_episodes == two.num_episodes == 5
    assert torch.equal(one.left, two.left)
    torch.testing.assert_close(one.entries["state"], two.entries["state"])
    assert torch.equal(one.entries["instruction"], two.entries["instruction"])
    torch.testing.assert_close(one.action, two.action)
    assert one.left[0] == (one.left[1] + 1)  # an episode's first frame has the most left
    assert int((one.left == 1).sum()) == 5


def test_failed_episodes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    env = cubes(4)
    lazy = PushColoredCubeEnv.expert_action

    def half_lazy(self: PushColoredCubeEnv) -> torch.Tensor:
        action = lazy(self)
        action[2:] = 0.0  # of environments 2 and 3
        return action

    monkeypatch.setattr(PushColoredCubeEnv, "expert_action", half_lazy)
    assert from_expert(env, 4, KEYS, seed=1).num_episodes == 2
    monkeypatch.setattr(PushColoredCubeEnv, "expert_action", lambda self: torch.zeros(4, 2))
    with pytest.raises(ConfigError, match="failed in all 4 episodes"):
        from_expert(env, 4, KEYS, seed=1)


def test_environment_without_an_expert_is_told() -> None:
    with pytest.raises(ConfigError, match=r"CartPoleEnv has no scripted expert \(a method expert_action\)"):
        from_expert(CartPoleEnv(cart_cfg(2)), 4, KEYS, seed=1)


def write_dataset(
    root: Path,
    action_dim: int = 2,
    task: str = "push the red cube",
    bad: tuple[str, float] | None = None,
    num_episodes: int = 3,
) -> None:
    """Of 1, 2, 3, ... frames; ``bad`` is the last number of a feature in the second frame of the third episode."""
    features = {
        "observation.state": {"dtype": "float64", "shape": [3], "names": None},
        "action": {"dtype": "float64", "shape": [action_dim], "names": None},
    }
    writer = LeRobotWriter(root, 25, "robot", features)
    for i in range(num_episodes):
        frames = {
            "observation.state": np.full((i + 1, 3), i, dtype=np.float64),
            "action": np.full((i + 1, action_dim), -i, dtype=np.float64),
        }
        if bad is not None and i == 2:
            frames[bad[0]][1, -1] = bad[1]
        with np.errstate(invalid="ignore"):  # the statistics of what is infinite
            writer.add_episode(frames, task, {})


@needs_parquet
def test_dataset_gives_states_actions_and_the_task_as_tokens(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    data = from_dataset(tmp_path, 2, KEYS, 2)
    # of three episodes the first two, with 1 and 2 frames
    assert (data.num_episodes, data.num_frames, data.left.tolist()) == (2, 3, [1, 2, 1])
    assert data.entries["state"][:, 0].tolist() == [0.0, 1.0, 1.0]
    assert data.action[:, 1].tolist() == [0.0, -1.0, -1.0]
    assert decode_instruction(data.entries["instruction"][2]) == "push the red cube"


@needs_parquet
def test_dataset_that_does_not_fit_says_why(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", action_dim=4)
    with pytest.raises(ConfigError, match="has actions of size 4, the environment's have 2"):
        from_dataset(tmp_path / "a", 5, KEYS, 2)
    with pytest.raises(ConfigError, match=r"unknown feature 'observation\.images\.front'"):
        from_dataset(tmp_path / "a", 5, ("image/front",), 4)
    write_dataset(tmp_path / "b", task="knit a jumper")
    with pytest.raises(ConfigError, match="unknown word 'knit'"):
        from_dataset(tmp_path / "b", 5, KEYS, 2)


@needs_parquet
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("observation.state", float("nan"), r"episode 2, frame 1: observation\.state\[2\] is nan"),
        ("action", float("-inf"), r"episode 2, frame 1: action\[2\] is -inf"),
        ("observation.state", 1e150, r"episode 2, frame 1: observation\.state\[2\] is inf"),  # in float32
    ],
)
def test_number_that_is_not_finite_is_refused_with_episode_and_frame(
    tmp_path: Path, name: str, value: float, told: str
) -> None:
    write_dataset(tmp_path, action_dim=3, bad=(name, value))
    assert from_dataset(tmp_path, 2, KEYS, 3).num_episodes == 2  # the first two are whole
    with pytest.raises(ConfigError, match=told):
        from_dataset(tmp_path, 3, KEYS, 3)


@needs_parquet
def test_absurd_number_is_told_with_episode_and_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path, bad=("observation.state", 1e9), num_episodes=6)
    from_dataset(tmp_path, 6, KEYS, 2)
    assert "demonstration 2, frame 1: state[2] is 1e+09, where" in capsys.readouterr().err


def test_number_of_the_expert_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    env = cubes(2)
    whole = env.get_obs

    def with_nan() -> TensorDict:
        obs = whole()
        obs["state"][1, 0] = float("nan")
        return obs

    monkeypatch.setattr(env, "get_obs", with_nan)
    with pytest.raises(
        ConfigError, match=r"scripted expert of PushColoredCubeEnv: episode 1, frame 0: state\[0\] is nan"
    ):
        from_expert(env, 2, KEYS, seed=7)


@needs_parquet
@needs_gl
def test_recorded_expert_is_read_as_the_demonstrations_that_it_gave(tmp_path: Path) -> None:
    data = load_json(CONFIG)
    data["env"]["dataset"] = {"lerobot": {"func": "LeRobotRecorder", "params": {"save_path": "set"}}}
    env = env_of(data, 1)
    env.write_into(tmp_path)
    keys = ("image/front", *KEYS)
    given = from_expert(env, 2, keys, seed=3)
    read = from_dataset(tmp_path / "set", 2, keys, 2)
    assert torch.equal(read.left, given.left)
    assert torch.equal(read.action, given.action)
    assert torch.equal(read.entries["state"], given.entries["state"])
    assert torch.equal(read.entries["instruction"], given.entries["instruction"])
    # the video's colours are near: it stores them at half the resolution
    error = (read.entries["image/front"].float() - given.entries["image/front"].float()).abs().mean()
    assert error < 3.0
