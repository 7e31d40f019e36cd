"""Terms are checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.utils import ConfigError
from tests.lab.scenes import BOX, cart_cfg

CLOSED: list[str] = []


def height(env: EmbodiedEnv, obs: Any, action: Any, info: Any, thing: SceneEntityCfg, scale: float = 1.0) -> Tensor:
    return env.sim.get_rigid_object(thing.uid).pos[:, 2] * scale


def anything(env: EmbodiedEnv, obs: Any, action: Any, info: Any, **params: Any) -> Tensor:
    return torch.full((env.num_envs,), float(len(params)))


class Count(Functor):
    """Counts the steps of an episode."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self._count = torch.zeros(env.num_envs)

    def reset(self, env_ids: Tensor) -> None:
        self._count[env_ids] = 0

    def __call__(self, env: EmbodiedEnv, obs: Any, action: Any, info: Any, step: float = 1.0) -> Tensor:
        self._count = self._count + step
        return self._count


class WithoutBase(Functor):
    """Forgets ``super().__init__``."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        self.gain = 2.0

    def __call__(self, env: EmbodiedEnv, obs: Any, action: Any, info: Any) -> Tensor:
        return torch.full((self.num_envs,), self.gain)


class Tidy(Functor):
    """An event that holds something until the environment closes."""

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> None:
        pass

    def close(self) -> None:
        CLOSED.append(self.cfg.func.__name__ if callable(self.cfg.func) else "")


def env_with(reward: dict[str, Any], **env: Any) -> EmbodiedEnv:
    return EmbodiedEnv(cart_cfg(2, {"rewards": {"term": reward}, **env}, rigid_object=[BOX]))


def test_users_own_function_and_class_are_terms_like_ours() -> None:
    env = env_with({"func": height, "weight": 2.0, "params": {"thing": {"uid": "box"}, "scale": 3.0}})
    env.reset()
    reward = env.step(torch.zeros(2, 1))[1]
    torch.testing.assert_close(reward, 2 * 3 * env.sim.get_rigid_object("box").pos[:, 2])
    assert 0.29 < reward[0].item() < 0.31  # the box rests 0.05 m above the ground
    env = env_with({"func": Count, "params": {"step": 2.0}})
    env.reset()
    env.step(torch.zeros(2, 1))
    env.reset(options={"reset_ids": [1]})
    assert env.step(torch.zeros(2, 1))[1].tolist() == [4.0, 2.0]


def test_class_that_forgets_the_base_class_is_refused_when_it_is_built() -> None:
    message = r"env.rewards.term.func: 'WithoutBase'.__init__ must call super\(\).__init__\(cfg, env\)"
    with pytest.raises(ConfigError, match=message):
        env_with({"func": WithoutBase})


def test_users_own_term_may_be_named_by_its_dotted_path() -> None:
    reward = {"func": f"{__name__}.anything", "params": {"a": 1, "b": 2}}
    env = EmbodiedEnv(cart_cfg(2, {"rewards": {"term": reward}}, allowed_imports=[__name__]))
    env.reset()
    assert env.step(torch.zeros(2, 1))[1].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (
            {"func": height, "params": {"thing": {"uid": "box"}, "scael": 1}},
            r"env\.rewards\.term\.params\.scael: unknown parameter\. Did you mean 'scale'\? Known: thing, scale",
        ),
        ({"func": height}, r"env\.rewards\.term\.params\.thing: required, but missing"),
        (
            {"func": height, "params": {"thing": {"uid": "bxo"}}},
            r"env\.rewards\.term\.params\.thing\.uid: no 'bxo' in the scene\. Did you mean 'box'\? There are: C",
        ),
        (
            {"func": "joint_velocity_penalty", "params": {"robot_uid": "cart"}},
            r"params\.robot_uid: no robot 'cart' in the scene\. Did you mean 'Cart'\?",
        ),
        ({"func": Count, "params": {"stride": 1}}, r"params\.stride: unknown parameter\..* Known: step"),
    ],
)
def test_mistake_in_a_terms_parameters_says_where_and_what_there_is(reward: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        env_with(reward)


def test_unknown_key_of_an_entity_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"env\.rewards\.term\.params\.thing"):
        env_with({"func": height, "params": {"thing": {"uid": "box", "colour": 1}}})


def test_closing_the_environment_closes_its_events() -> None:
    env = env_with({"func": Count}, events={"tidy": {"func": Tidy}})
    env.reset()
    CLOSED.clear()
    env.close()
    assert CLOSED == ["Tidy"]
