from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.gym.envs.tasks.rl.defaults import CONFIG_FOLDER
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids, make, register_env
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.scenes import cart_cfg


@pytest.fixture(autouse=True)
def _registries_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registration, "_REGISTRY", dict(registration._REGISTRY))
    known = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(known)


def test_decorated_class_is_known_to_us_and_to_gymnasium() -> None:
    @register_env("MyTask", max_episode_steps=7)
    class MyTask(EmbodiedEnv):
        pass

    spec = get_env_spec("MyTask")
    assert (spec.env_id, spec.cls, spec.max_episode_steps) == ("MyTask", MyTask, 7)
    assert "MyTask" in get_registered_env_ids()
    assert isinstance(gym.make("MyTask", cfg=cart_cfg(1)).unwrapped, MyTask)


def test_name_is_taken_unless_overridden() -> None:
    register_env("MyTask")(EmbodiedEnv)
    with pytest.raises(ValueError, match="'MyTask' is registered already; pass override=True"):
        register_env("MyTask")(CartPoleEnv)
    register_env("MyTask", override=True)(CartPoleEnv)
    assert get_env_spec("MyTask").cls is CartPoleEnv


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown environment id 'x'\. Known: .*CartPoleRL, .*PushCubeRL"):
        make("x")


def test_made_environment_has_the_registered_time_limit_unless_its_config_says_another() -> None:
    builders: list[Callable[..., Any]] = [make, gym.make]
    for build in builders:
        assert build("CartPoleRL", cfg=cart_cfg(1)).unwrapped.cfg.max_episode_steps == 500
        assert build("CartPoleRL", cfg=cart_cfg(1, max_episode_steps=7)).unwrapped.cfg.max_episode_steps == 7


def test_environment_made_by_gymnasium_steps_in_batches_and_resets_itself() -> None:
    env = gym.make("CartPoleRL", cfg=cart_cfg(3, max_episode_steps=2))
    obs, _ = env.reset(seed=1)
    assert obs["robot", "qpos"].shape == (3, 2)
    for expected in (False, True, False):
        obs, reward, terminated, truncated, _ = env.step(torch.zeros(3, 1))
        assert torch.as_tensor(truncated).tolist() == [expected] * 3
    assert torch.as_tensor(reward).shape == torch.as_tensor(terminated).shape == (3,)


@pytest.mark.parametrize(("env_id", "config"), [("CartPoleRL", "basic/cart_pole"), ("PushCubeRL", "push_cube")])
def test_packaged_config_is_the_one_that_users_copy(env_id: str, config: str) -> None:
    folder = Path(__file__).parents[3] / "configs" / "agents" / "rl" / config
    shown, packaged = load_json(folder / "gym_config.json"), load_json(CONFIG_FOLDER / f"{Path(config).name}.json")
    assert packaged == {key: value for key, value in shown.items() if key != "$schema"}, "copy it into the package"


def test_task_without_a_config_of_its_own_says_so() -> None:
    register_env("MyTask")(EmbodiedEnv)
    with pytest.raises(ConfigError, match="'MyTask' has no config of its own: pass cfg="):
        make("MyTask")
