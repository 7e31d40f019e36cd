import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import pytest
import torch

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv, PushCubeEnv
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids, make, register_env
from embodichain.utils import ConfigError
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import actions_for, cart_cfg, env_of

TASKS = "embodichain.lab.gym.envs.tasks.rl."


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


def test_name_of_gymnasiums_environment_is_taken_too() -> None:
    with pytest.raises(ValueError, match="'CartPole-v1' is registered already"):
        register_env("CartPole-v1")(CartPoleEnv)
    assert "gymnasium" in str(gym.spec("CartPole-v1").entry_point)


def test_shipped_task_is_found_before_it_is_imported() -> None:
    code = "from embodichain.lab.gym.registry import get_env_spec; print(get_env_spec('ReachRL').env_id)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "ReachRL"


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown environment id 'x'\. Known: .*CartPoleRL, .*PushCubeRL"):
        make("x")


def test_time_limit_is_the_registered_one_by_default() -> None:
    builders: list[Callable[..., Any]] = [make, gym.make]
    for build in builders:
        assert build("CartPoleRL", cfg=cart_cfg(1)).unwrapped.cfg.max_episode_steps == 500
        assert build("CartPoleRL", cfg=cart_cfg(1, max_episode_steps=7)).unwrapped.cfg.max_episode_steps == 7


def test_gymnasium_makes_a_batch_that_resets_itself() -> None:
    env = gym.make("CartPoleRL", cfg=cart_cfg(3, max_episode_steps=2))
    obs, _ = env.reset(seed=1)
    assert obs["robot", "qpos"].shape == (3, 2)
    for expected in (False, True, False):
        obs, reward, terminated, truncated, _ = env.step(torch.zeros(3, 1))
        assert torch.as_tensor(truncated).tolist() == [expected] * 3
    assert torch.as_tensor(reward).shape == torch.as_tensor(terminated).shape == (3,)


def test_every_shipped_task_has_a_config_of_its_own() -> None:
    shipped = [env_id for env_id in get_registered_env_ids() if get_env_spec(env_id).cls.__module__.startswith(TASKS)]
    assert {"ReachRL", "OpenDrawerRL", "PickCubeRL", "PushColoredCubeRL"} < set(shipped)
    for env_id in {*shipped} - {"RobotRL"}:  # which is nothing but its config
        cfg = get_env_spec(env_id).default_cfg
        assert cfg is not None, env_id
        assert cfg().num_envs > 0


def test_task_without_a_config_of_its_own_says_so() -> None:
    register_env("MyTask")(EmbodiedEnv)
    with pytest.raises(ConfigError, match="'MyTask' has no config of its own: pass cfg="):
        make("MyTask")


def test_original_config_loads_with_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_of(PUSH_CUBE, 2)
    assert isinstance(env, PushCubeEnv)
    lines = [line for line in capsys.readouterr().err.splitlines() if "without counterpart" in line]
    assert lines == [
        "[WARNING] without counterpart in MuJoCo, not used: Manipulator.drive_pros.max_velocity (by physics), "
        "cube.attrs.max_angular_velocity, cube.attrs.max_depenetration_velocity, cube.attrs.max_linear_velocity, "
        "cube.attrs.restitution, cube.attrs.static_friction"
    ]
    env.reset(seed=1)
    for action in actions_for(env, 20):
        assert torch.isfinite(env.step(action)[1]).all()
