from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import (
    PPO,
    AlgorithmCfg,
    BaseAlgorithm,
    BaseAlgorithmCfg,
    build_algo,
    get_registered_algo_names,
    register_algo,
)
from embodichain.agents.rl.algo.registry import _ALGORITHMS, get_algo_class
from embodichain.agents.rl.models import ActorCritic
from embodichain.utils import ConfigError, configclass


@configclass
class UserCfg(AlgorithmCfg):
    temperature: float = 1.0


class UserAlgorithm(BaseAlgorithm):
    cfg_class = UserCfg

    def __init__(self, cfg: UserCfg, policy: ActorCritic) -> None:
        super().__init__(cfg, policy)
        self.cfg = cfg

    def update(self, rollout: TensorDict) -> dict[str, float]:
        return {}


@pytest.fixture(autouse=True)
def restored_registry() -> Iterator[None]:
    ours = {name: _ALGORITHMS[name] for name in ("grpo", "ppo")}  # other tests may have registered more
    with patch.dict(_ALGORITHMS, ours, clear=True):
        yield


@pytest.fixture
def policy() -> ActorCritic:
    return ActorCritic(1, 1, "cpu", nn.Linear(1, 1), nn.Linear(1, 1))


def test_device_argument_takes_the_place_of_the_block_s(policy: ActorCritic) -> None:
    assert build_algo("ppo", {"device": "cuda"}, policy, torch.device("cpu")).device == torch.device("cpu")


def test_user_s_algorithm_is_built_with_its_own_config_class(policy: ActorCritic) -> None:
    assert register_algo("mine")(UserAlgorithm) is UserAlgorithm
    assert get_registered_algo_names() == ["distillation", "grpo", "mine", "ppo"]
    algo = build_algo("mine", {"temperature": 0.5}, policy, "cpu")
    assert isinstance(algo, UserAlgorithm)
    assert algo.cfg.temperature == 0.5


@pytest.mark.parametrize(
    "bad", [{"gamma": 1.5}, {"learning_rate": 0}, {"n_epochs": 0}, {"clip_coef": -0.1}, {"clip_range": 0.2}]
)
def test_impossible_settings_are_refused(bad: dict, policy: ActorCritic) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm\.cfg\.{next(iter(bad))}: "):
        build_algo("ppo", bad, policy, "cpu")


def test_class_that_is_no_algorithm_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm <class 'dict'>: is no subclass of .*BaseAlgorithm$"):
        register_algo("mine")(dict)  # type: ignore[type-var]


def test_default_settings_follow_from_what_is_learned_from() -> None:
    class Plain(BaseAlgorithm):
        def update(self, rollout: TensorDict) -> dict[str, float]:
            return {}

    class Replaying(Plain):
        cfg_class = BaseAlgorithmCfg
        learns_from = "replay"

    assert register_algo("plain")(Plain).cfg_class is AlgorithmCfg
    assert register_algo("replaying")(Replaying).cfg_class is BaseAlgorithmCfg
    assert PPO.learns_from == "rollouts"


@pytest.mark.parametrize("main", ["__main__", "__mp_main__"])
def test_script_imported_by_name_registers_the_same_class(main: str) -> None:
    register_algo("mine")(UserAlgorithm)
    names = {"__module__": main, "__qualname__": "UserAlgorithm"}
    again = type("UserAlgorithm", (BaseAlgorithm,), dict(vars(UserAlgorithm)) | names)
    register_algo("mine")(again)
    assert _ALGORITHMS["mine"] is again


def test_name_of_another_class_is_not_taken_in_silence() -> None:
    def make() -> type[BaseAlgorithm]:
        class Mine(UserAlgorithm):
            """The same class twice, as when a cell runs again."""

        return Mine

    first, again = make(), make()
    register_algo("mine")(first)
    register_algo("mine")(again)
    assert _ALGORITHMS["mine"] is again
    message = (
        r"^algorithm 'ppo' is registered already, by embodichain\.agents\.rl\.algo\.ppo\.PPO: choose another name, or "
        "override=True$"
    )
    with pytest.raises(ConfigError, match=message):
        register_algo("ppo")(UserAlgorithm)
    assert get_algo_class("ppo") is PPO
    register_algo("ppo", override=True)(UserAlgorithm)
    assert get_algo_class("ppo").__name__ == "UserAlgorithm"
