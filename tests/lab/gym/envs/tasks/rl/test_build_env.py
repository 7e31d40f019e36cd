"""Every registered environment with every config that comes with the project."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv, PushCubeEnv, build_env
from embodichain.lab.gym.registry import get_registered_env_ids
from embodichain.utils.configclass import replace
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_json
from tests.lab.originals import CART_POLE, PUSH_CUBE
from tests.lab.scenes import actions_for, env_of

REPOSITORY = Path(__file__).resolve().parents[6]
SHIPPED = sorted(REPOSITORY.glob("configs/**/*gym_config*.json"))


def test_every_environment_that_we_ship_has_a_config() -> None:
    assert {"CartPoleRL", "PushCubeRL"} <= {load_json(path)["id"] for path in SHIPPED}
    assert {"CartPoleRL", "PushCubeRL"} <= set(get_registered_env_ids())


@pytest.mark.e2e
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(REPOSITORY / "configs")))
def test_shipped_config_resets_and_steps_finite(path: Path) -> None:
    data = load_json(path)
    env = build_env(data["id"], base_env_cfg=replace(config_to_cfg(data), num_envs=2))
    obs, _ = env.reset(seed=1)
    for action in actions_for(env, 20):
        assert torch.isfinite(flatten_dict_observation(obs)).all()
        obs, reward, _, _, info = env.step(action)
        assert torch.isfinite(reward).all()
        assert all(torch.isfinite(value).all() for value in (*info["rewards"].values(), *info["metrics"].values()))
    assert env.divergences.count == 0
    env.close()


@pytest.mark.e2e
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(REPOSITORY / "configs")))
def test_shipped_config_needs_no_warning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = load_json(path)
    build_env(data["id"], base_env_cfg=replace(config_to_cfg(data), num_envs=1)).close()
    assert capsys.readouterr().err == ""


def test_original_config_loads_with_one_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = env_of(PUSH_CUBE, 2)
    assert isinstance(env, PushCubeEnv)
    lines = [line for line in capsys.readouterr().err.splitlines() if "without counterpart" in line]
    assert lines == [
        "[WARNING] without counterpart in MuJoCo, not used: Manipulator.drive_pros.max_velocity, "
        "cube.attrs.max_angular_velocity, cube.attrs.max_depenetration_velocity, cube.attrs.max_linear_velocity, "
        "cube.attrs.restitution, cube.attrs.static_friction"
    ]
    env.reset(seed=1)
    for action in actions_for(env, 20):
        assert torch.isfinite(env.step(action)[1]).all()


def test_original_cart_pole_loads_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_of(CART_POLE, 2)
    assert isinstance(env, CartPoleEnv)
    assert "without counterpart" not in capsys.readouterr().err
    assert env.cfg.max_episode_steps == 500
