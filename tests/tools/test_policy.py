"""A trained policy that acts: with what its evaluation sees, it does what its evaluation did."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import build_policy, policy_input
from embodichain.agents.rl.train import train_from_config
from embodichain.lab.gym.utils.gym_utils import config_to_cfg
from embodichain.tools.policy import TrainedPolicy, load_policy
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, NETWORK, tiny_config

pytestmark = pytest.mark.e2e

RECURRENT = {"name": "actor_critic_recurrent", "actor": NETWORK, "critic": NETWORK, "hidden_size": 3}


def train_in(folder: Path, **changes: Any) -> str:
    with chdir(folder):
        run = train_from_config(tiny_config(trainer__enable_eval=False, **changes))["run_folder"]
    return str(folder / run)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_in(tmp_path_factory.mktemp("run"))


@pytest.mark.ext
def test_it_acts_as_the_policy_of_the_run(run: str) -> None:
    policy = load_policy(run)
    assert isinstance(policy, TrainedPolicy)
    assert not policy.policy.training
    assert any(parameter.requires_grad for parameter in policy.policy.parameters())
    with open_run(find_run(run), 3) as opened:
        obs, _ = opened.env.reset(seed=5)
        expected = opened.policy.get_action(policy_input(opened.policy, obs, None, opened.device), deterministic=True)

        given = TensorDict(obs.to_dict(), batch_size=[])
        assert torch.equal(policy.act(given), expected["action"])
        assert not given.batch_size  # it is the caller's
        assert not torch.equal(policy.act(obs, deterministic=False), expected["action"])
        torch.testing.assert_close(policy.act(obs[1]), policy.act(obs[1:2])[0])  # one environment: [A]
    cfg = config_to_cfg(load_json(CART_POLE_ENV))
    envs = gym.make_vec("embodichain.lab.gym.envs.tasks.rl:CartPoleRL", num_envs=2, cfg=cfg)
    try:
        arrays, _ = envs.reset(seed=5)
        assert policy.act(arrays).shape == (2, 1)
        one = {"robot": {name: value[0] for name, value in arrays["robot"].items()}}
        torch.testing.assert_close(policy.act(one), policy.act(arrays)[0])
    finally:
        envs.close()


def test_shell_may_allow_the_modules_of_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EMBODICHAIN_ALLOW_IMPORT", "own_module")
    assert isinstance(load_policy(train_in(tmp_path, trainer__import_modules=["own_module"])), TrainedPolicy)


@pytest.mark.ext
def test_array_is_the_only_entry_of_an_observation(tmp_path: Path) -> None:
    policy = load_policy(train_in(tmp_path, trainer__gym_config={"id": "gymnasium:Pendulum-v1"}))
    obs = np.arange(6, dtype=np.float32).reshape(2, 3) / 6

    assert policy.act(obs).shape == (2, 1)
    assert torch.equal(policy.act(obs), policy.act({"observation": obs}))
    torch.testing.assert_close(policy.act(obs[1]), policy.act(obs)[1])  # [O] -> [A], as in Stable-Baselines3
    with pytest.raises(ConfigError, match=r"^obs: 'observation' must be of shape \[N, 3\], got \[N, 2\]"):
        policy.act(obs[:, :2])


def test_actions_are_clipped_and_images_are_uint8_as_in_training() -> None:
    space = gym.spaces.Dict({"image": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
    bounds = gym.spaces.Box(-0.1, 0.1, (2,))
    cnn = {"channels": [4], "kernel_sizes": [3], "strides": [2], "hidden_sizes": [4]}
    seeing = {"type": "cnn", "keys": ["image"], "network_cfg": cnn}
    block = {"name": "actor_critic", "actor": seeing, "critic": seeing, "init_log_std": 0.0}
    flat = gym.spaces.Box(-1, 1, (0,))
    inner = build_policy(block, flat, bounds, "cpu", observation_space=space)
    policy = TrainedPolicy(inner, torch.device("cpu"), space, bounds)
    image = np.full((3, 8, 8, 3), 255, np.uint8)
    assert (policy.act({"image": image}, deterministic=False).abs() <= 0.1).all()
    with pytest.raises(ConfigError, match=r"^obs: 'image' is an image of uint8, got float32$"):
        policy.act({"image": image.astype(np.float32)})


def test_array_in_place_of_several_entries_is_refused(run: str) -> None:
    """The flat order is the learner's own: an array of the right width may hold the entries in another."""
    with pytest.raises(ConfigError, match=r"^obs: an array .*pass a dictionary of robot/qf, robot/qpos, robot/qvel"):
        load_policy(run).act(np.zeros((2, 6), np.float32))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda obs: obs["robot"].pop("qf"), "lacks 'robot/qf'; the policy reads robot/qf, robot/qpos, robot/qvel"),
        (lambda obs: obs["robot"].update(qacc=np.zeros((2, 2))), r"unknown entry 'robot/qacc'\. Did you mean"),
        (
            lambda obs: obs["robot"].update(qpos=np.zeros((2, 3))),
            r"'robot/qpos' must be of shape \[N, 2\], got \[N, 3\]",
        ),
    ],
)
def test_entries_that_are_not_the_environments_are_one_line(change: Any, problem: str, run: str) -> None:
    policy = load_policy(run)
    obs = {"robot": {name: np.zeros((2, 2), np.float32) for name in ("qf", "qpos", "qvel")}}
    assert policy.act(obs).shape == (2, 1)
    change(obs)
    with pytest.raises(ConfigError, match=rf"^obs: {problem}"):
        policy.act(obs)


def test_recurrent_policy_remembers_until_its_rows_are_reset(tmp_path: Path) -> None:
    run = train_in(tmp_path, policy=RECURRENT)
    policy = load_policy(run)
    with open_run(find_run(run), 2) as opened:
        obs, _ = opened.env.reset(seed=5)

    first, second = policy.act(obs), policy.act(obs)
    policy.reset(np.array([True, False]))
    third = policy.act(obs)
    policy.reset()

    assert (first != second).all()
    assert torch.equal(third[0], first[0])
    assert third[1] != first[1]
    assert torch.equal(policy.act(obs), first)
