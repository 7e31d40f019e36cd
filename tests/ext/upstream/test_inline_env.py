"""The environment's config inside a training config: what it says, what the task's packaged one adds."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.ext.upstream.training import convert_training
from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.registry import register_env
from embodichain.utils import ConfigError
from tests.lab.scenes import CART

MOVE = {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.3}}}


@pytest.fixture
def own_task() -> Iterator[None]:
    @register_env("OwnTaskRL", max_episode_steps=9, override=True)
    class OwnTask(EmbodiedEnv):
        def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            none = torch.zeros(self.num_envs, dtype=torch.bool)
            return none, none, {}

    yield
    del registration._REGISTRY["OwnTaskRL"]


def read(cfg: Any, env_id: str = "PushCubeRL") -> dict[str, Any]:
    found: dict[str, Any] = convert_training({"env": {"id": env_id, "cfg": cfg}})["trainer"]["gym_config"]
    config_to_cfg(found)
    return found


def problem_of(cfg: Any, env_id: str = "PushCubeRL") -> str:
    with pytest.raises(ConfigError) as caught:
        read(cfg, env_id)
    return str(caught.value)


def test_blocks_stand_flat_or_under_env() -> None:
    packaged = read({})
    assert list(packaged["env"]["rewards"]) == ["reach", "progress", "smooth", "success"]
    reward = {"goal": {"func": "success_reward", "weight": 3.0}}
    for cfg in ({"num_envs": 4, "rewards": reward}, {"num_envs": 4, "env": {"rewards": reward}}):
        data = read(cfg)
        assert data == packaged | {"num_envs": 4, "env": packaged["env"] | {"rewards": reward}}


def test_block_replaces_the_packaged_one() -> None:
    data = read({"actions": MOVE, "extensions": {"own": 7}, "sim_steps_per_control": 2})
    assert data["env"]["actions"] == MOVE
    assert data["env"]["extensions"] == {"success_threshold": 0.05, "own": 7}
    assert data["env"]["sim_steps_per_control"] == 2
    assert read({"extensions": {"success_threshold": 0.2}})["env"]["extensions"] == {"success_threshold": 0.2}


def test_own_time_limit_counts_before_the_packaged_one() -> None:
    for cfg in ({"max_episode_steps": 7}, {"env": {"max_episode_steps": 7}}, {"episode_length": 7}):
        assert config_to_cfg(read(cfg)).max_episode_steps == 7


def test_oldest_form_is_translated_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    data = read({"obs_mode": "state", "episode_length": 60, "action_scale": 0.2, "success_threshold": 0.1})
    assert data["max_episode_steps"] == 60
    assert data["env"]["actions"] == {"delta_qpos": {"func": "DeltaQposTerm", "params": {"scale": 0.2}}}
    assert data["env"]["extensions"] == {"success_threshold": 0.1}
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] training config in another layout (deprecated), read as: env.cfg.episode_length -> "
        "env.cfg.max_episode_steps, env.cfg.success_threshold -> env.cfg.extensions.success_threshold, "
        "env.cfg.action_scale -> env.actions.delta_qpos.params.scale, env -> trainer.gym_config"
    ]


def test_scale_goes_to_the_only_action() -> None:
    own = {"mine": {"func": "DeltaQposTerm"}}
    assert read({"actions": own, "action_scale": 0.4})["env"]["actions"]["mine"]["params"] == {"scale": 0.4}
    two = MOVE | {"other": MOVE["move"]}
    line = "env.cfg.action_scale: write 'env.actions.<name>.params.scale' of one of: move, other"
    assert problem_of({"actions": two, "action_scale": 0.4}) == line


@pytest.mark.parametrize(
    ("cfg", "start"),
    [
        ({"acions": MOVE}, "env.acions: unknown key. Did you mean 'actions'?"),
        ({"actions": MOVE, "env": {"actions": MOVE}}, "env.cfg.actions: is given as 'env.cfg.env.actions', too"),
        ({"num_envs": 4, "env": {"num_envs": 8}}, "env.cfg.num_envs: is given as 'env.cfg.env.num_envs', too"),
        ({"episode_length": 3, "max_episode_steps": 3}, "env.cfg.episode_length: is another form of"),
        (
            {"success_threshold": 0.1, "extensions": {"success_threshold": 0.1}},
            "env.cfg.success_threshold: is another form of 'env.cfg.extensions.success_threshold'",
        ),
        ({"obs_mode": "rgb"}, "env.cfg.obs_mode: must be 'state', got 'rgb': images are observed where"),
        (3, "env: must be an object with 'id' and 'cfg', an object, got"),
        ({"env": 3}, "env.cfg.env: must be an object, got 3"),
        ({"action_scale": "a"}, "env.actions.delta_qpos.params.scale: Input should be a valid number, got 'a'"),
    ],
)
def test_mistake_has_its_path(cfg: Any, start: str) -> None:
    assert problem_of(cfg).startswith(start)


def test_task_without_a_packaged_config_lacks_what_is_not_given(own_task: None) -> None:
    found = problem_of({"num_envs": 2}, "OwnTaskRL").splitlines()
    assert found == ["robot: required, but missing", "env.actions: at least one action term is needed"]
    assert read({"robot": CART, "actions": MOVE}, "OwnTaskRL")["env"] == {"actions": MOVE}
