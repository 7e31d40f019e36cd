"""The environment's config inside a training config: what it says, what the task's packaged one adds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.ext.upstream.inline_env import read_inline_env
from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import ConfigFile, config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.registry import get_env_spec, register_env
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


def read(cfg: dict[str, Any], env_id: str = "PushCubeRL") -> dict[str, Any]:
    found = read_inline_env({"id": env_id, "cfg": cfg})
    assert found.problems == []
    config_to_cfg(found.data)
    return found.data


def problems(cfg: Any, env_id: Any = "PushCubeRL") -> list[str]:
    """Return what is wrong with the layout, then with the content, in the user's words."""
    found = read_inline_env({"id": env_id, "cfg": cfg})
    try:
        config_to_cfg(found.data)
    except ConfigError as error:
        return found.problems + found.in_users_words(str(error).splitlines())
    return found.problems


def test_blocks_may_stand_flat_or_under_env_and_the_rest_is_the_packaged_configs() -> None:
    packaged = read({})
    assert list(packaged["env"]["rewards"]) == ["reach", "progress", "smooth", "success"]
    reward = {"goal": {"func": "success_reward", "weight": 3.0}}
    for cfg in ({"num_envs": 4, "rewards": reward}, {"num_envs": 4, "env": {"rewards": reward}}):
        data = read(cfg)
        assert data == packaged | {"num_envs": 4, "env": packaged["env"] | {"rewards": reward}}


def test_block_takes_the_place_of_the_packaged_one_and_extensions_are_put_into_it() -> None:
    data = read({"actions": MOVE, "extensions": {"own": 7}, "sim_steps_per_control": 2})
    assert data["env"]["actions"] == MOVE
    assert data["env"]["extensions"] == {"success_threshold": 0.05, "own": 7}
    assert data["env"]["sim_steps_per_control"] == 2
    assert read({"extensions": {"success_threshold": 0.2}})["env"]["extensions"] == {"success_threshold": 0.2}


def test_own_time_limit_counts_before_the_packaged_one_wherever_it_stands() -> None:
    for cfg in ({"max_episode_steps": 7}, {"env": {"max_episode_steps": 7}}, {"episode_length": 7}):
        assert config_to_cfg(read(cfg)).max_episode_steps == 7


def test_oldest_form_is_translated_with_warnings_that_name_the_new_keys(capsys: pytest.CaptureFixture[str]) -> None:
    data = read({"obs_mode": "state", "episode_length": 60, "action_scale": 0.2, "success_threshold": 0.1})
    assert data["max_episode_steps"] == 60
    assert data["env"]["actions"] == {"delta_qpos": {"func": "DeltaQposTerm", "params": {"scale": 0.2}}}
    assert data["env"]["extensions"] == {"success_threshold": 0.1}
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] env.cfg.obs_mode: deprecated, leave it out: 'env.observations' says what is observed",
        "[WARNING] env.cfg.episode_length: deprecated, write 'max_episode_steps'",
        "[WARNING] env.cfg.success_threshold: deprecated, write 'env.extensions.success_threshold'",
        "[WARNING] env.cfg.action_scale: deprecated, write 'env.actions.delta_qpos.params.scale'",
    ]


def test_scale_goes_to_the_only_action_that_the_config_gives_itself() -> None:
    own = {"mine": {"func": "DeltaQposTerm"}}
    assert read({"actions": own, "action_scale": 0.4})["env"]["actions"]["mine"]["params"] == {"scale": 0.4}
    assert own == {"mine": {"func": "DeltaQposTerm"}}  # the user's data stay as they are
    two = MOVE | {"other": MOVE["move"]}
    (line, *_) = problems({"actions": two, "action_scale": 0.4})
    assert line == (
        "env.cfg.action_scale: which of the actions move, other is meant? Write 'env.actions.<name>.params.scale'"
    )


@pytest.mark.parametrize(
    ("cfg", "lines"),
    [
        ({"acions": MOVE}, ["env.cfg.acions: unknown key. Did you mean 'actions'?"]),
        ({"env": {"acions": MOVE}}, ["env.cfg.env.acions: unknown key. Did you mean 'actions'?"]),
        ({"num_env": 4}, ["env.cfg.num_env: unknown key. Did you mean 'num_envs'?"]),
        ({"actions": MOVE, "env": {"actions": MOVE}}, ["env.cfg.actions: is given as 'env.cfg.env.actions', too"]),
        ({"num_envs": 4, "env": {"num_envs": 4}}, ["env.cfg.num_envs: is given as 'env.cfg.env.num_envs', too"]),
        ({"id": "CartPoleRL"}, ["env.id: is 'PushCubeRL', and 'env.cfg.id' is 'CartPoleRL'"]),
        (
            {"episode_length": 3, "max_episode_steps": 3},
            ["env.cfg.episode_length: is the older form of 'env.cfg.max_episode_steps', which is given too"],
        ),
        (
            {"success_threshold": 0.1, "extensions": {"success_threshold": 0.1}},
            [
                "env.cfg.success_threshold: is the older form of 'env.cfg.extensions.success_threshold', which is "
                "given too"
            ],
        ),
        (
            {"action_scale": 0.1, "env": {"actions": MOVE}},
            ["env.cfg.action_scale: is the older form of 'env.cfg.env.actions.move.params.scale', which is given too"],
        ),
        (
            {"obs_mode": "rgb"},
            ["env.cfg.obs_mode: must be 'state', got 'rgb'; images are observed where 'sensor' has cameras"],
        ),
        (3, ["env.cfg: must be an object, got 3"]),
        ({"env": 3}, ["env.cfg.env: must be an object, got 3"]),
        ({"actions": {}}, ["env.cfg.actions: at least one action term is needed"]),
        ({"extensions": 3}, ["env.cfg.extensions: Input should be an object, got 3"]),
    ],
)
def test_mistake_has_the_path_that_the_user_wrote(cfg: Any, lines: list[str]) -> None:
    assert [line.removesuffix(".") for line in problems(cfg)] == lines


@pytest.mark.parametrize(
    ("cfg", "start"),
    [
        ({"rewards": {"r": {"func": "success_rewrad"}}}, "env.cfg.rewards.r.func: unknown function 'success_rewrad'"),
        ({"env": {"rewards": {"r": {"func": 3}}}}, "env.cfg.env.rewards.r.func: "),
        ({"episode_length": "3"}, "env.cfg.episode_length: Input should be a valid integer, got '3'"),
        ({"action_scale": "a"}, "env.cfg.action_scale: Input should be a valid number, got 'a'"),
        ({"num_envs": "4"}, "env.cfg.num_envs: Input should be a valid integer, got '4'"),
        # The cube is gone, which the packaged terms speak of.
        (
            {"rigid_object": []},
            "env.cfg, with the rest of it from PushCubeRL's packaged config: env.observations.cube.params.",
        ),
    ],
)
def test_mistake_in_the_content_has_the_path_that_the_user_wrote(cfg: Any, start: str) -> None:
    assert problems(cfg)[0].startswith(start)


def test_env_block_has_two_keys_and_its_task_is_named() -> None:
    assert read_inline_env(3).problems == ["env: must be an object with 'id' and 'cfg', got 3"]
    found = read_inline_env({"id": "PushCubeRL", "robot": {}})
    assert found.problems == ["env.robot: unknown key. Known: id, cfg"]
    assert found.in_users_words(["id: unknown environment id 'X'"]) == ["env.id: unknown environment id 'X'"]
    assert read_inline_env({"cfg": {"id": "CartPoleRL"}}).data["robot"]["uid"] == "Cart"
    # Of a task that is not there nobody knows what it lacks.
    assert problems({"num_envs": 2}, env_id="PushCubRL") == []


def test_task_without_a_packaged_config_says_in_one_line_what_is_missing(own_task: None) -> None:
    rest = (
        ", and 'OwnTaskRL' has no packaged config to take the rest from: write it here, or name the task's environment "
        "config in 'trainer.gym_config'"
    )
    assert problems({"num_envs": 2}, "OwnTaskRL") == [f"env.cfg: lacks robot and actions{rest}"]
    assert problems({"actions": MOVE, "extensions": {"a": 1}}, "OwnTaskRL") == [f"env.cfg: lacks robot{rest}"]
    assert read({"robot": CART, "actions": MOVE}, "OwnTaskRL")["env"] == {"actions": MOVE}


def test_own_task_may_have_a_packaged_config_too(own_task: None, tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"id": "OwnTaskRL", "robot": CART, "env": {"actions": MOVE}}), encoding="utf-8")
    register_env("OwnTaskRL", override=True, default_cfg=ConfigFile(path))(get_env_spec("OwnTaskRL").cls)
    data = read({"num_envs": 3, "extensions": {"bound": 1.0}}, "OwnTaskRL")
    assert data == {
        "id": "OwnTaskRL",
        "num_envs": 3,
        "robot": CART,
        "env": {"actions": MOVE, "extensions": {"bound": 1.0}},
    }
