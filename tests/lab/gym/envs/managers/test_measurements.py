"""How entries follow from raw measurements. Shapes: N = 2 environments; the cart-pole's J = 2 joints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.measurements import Recipe, deployed_as, measured, recipe_of
from tests.lab.scenes import cart_cfg


@measured("positions of all joints, rad or m", lambda env: list(env.robot.joint_names))
def positions(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_qpos()


def undescribed(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_qpos()


def doubled(env: EmbodiedEnv, data: Tensor) -> Tensor:
    return 2 * data


def modify(func: Any, **params: Any) -> dict[str, Any]:
    return {"func": func, "mode": "modify", "name": "x", "params": params}


def recipe(entry: str = "x", **terms: Any) -> Recipe | None:
    env = EmbodiedEnv(cart_cfg(2, {"observations": terms}))
    return env.observation_manager.recipe(entry)


ADDED = {"func": positions, "name": "x"}


def test_recipe_of_an_entry_is_that_of_its_terms_in_their_order() -> None:
    noise, past = modify("observation_noise", std=0.1), modify("observation_history", length=3)
    late = modify("observation_delay", delay=[0, 1])
    found = recipe(x=ADDED, noise=noise, late=late, past=past)
    assert found is not None
    assert found.steps == [{"measurement": "positions"}, {"history": 3}]
    (measurement,) = found.measurements
    assert measurement.components == ["slider_to_cart", "cart_to_pole"]
    assert measurement.read().shape == (2, 2)


def test_entry_with_one_term_that_does_not_say_so_has_no_recipe() -> None:
    assert recipe(x={"func": undescribed}, past=modify("observation_history", length=3)) is None
    assert recipe(x=ADDED, twice=modify(doubled)) is None
    assert recipe("robot/qpos") is None  # of no term
    past = {**modify("observation_history", length=3), "name": "robot/qpos"}
    assert recipe("robot/qpos", past=past) is None


def test_entry_made_again_has_its_last_recipe() -> None:
    found = recipe(x={"func": undescribed}, again=ADDED)
    assert found is not None
    assert found.steps == [{"measurement": "positions"}]


def test_recipe_is_given_the_parameters_with_their_defaults() -> None:
    @deployed_as(lambda env, joint, shift: Recipe([{"subtract": [joint, shift]}]))
    def term(env: EmbodiedEnv, joint: int, shift: float = 0.5) -> Tensor:
        return torch.zeros(2, 1)

    env: Any = None
    assert recipe_of(env, term, {"joint": 3}) == Recipe([{"subtract": [3, 0.5]}])
    assert recipe_of(env, undescribed, {}) is None


@measured("position of one joint, rad or m")
def one_position(env: EmbodiedEnv, joint: int, factor: float = 2.0) -> Tensor:
    return factor * env.robot.get_qpos()[:, joint : joint + 1]


def test_measured_term_is_read_with_its_parameters() -> None:
    found = recipe(x={"func": one_position, "name": "x", "params": {"joint": 1}})
    assert found is not None
    (measurement,) = found.measurements
    assert measurement.name == "one_position"
    assert measurement.read().tolist() == [[pytest.approx(0.14)]] * 2  # 2 x 0.07, the initial position
