"""Faults in a user's own terms: errors name the term. Shapes: N = 2 environments, J = 1 joint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import ActionTerm, Functor
from embodichain.lab.gym.envs.managers.base import CommandTerm
from embodichain.utils import ConfigError
from tests.lab.scenes import cart_cfg

HERE = __name__


class Moves(ActionTerm):
    """Moves the cart by its action; subclasses return something else."""

    kind = "qpos"
    returned: ClassVar[Callable[[Tensor], Any]] = lambda action: {"qpos": action}

    def process_action(self, action: Tensor) -> Any:
        return type(self).returned(action)


class WithoutKind(Moves):
    kind = ""


class OfAnotherKind(Moves):
    kind = "qvel"


class Misspelt(Moves):
    returned = lambda action: {"qposs": action}  # noqa: E731


class MisspeltWithoutKind(Misspelt):
    kind = ""


class TwoColumns(Moves):
    returned = lambda action: {"qpos": action.repeat(1, 2)}  # noqa: E731


class OnePose(Moves):
    returned = lambda action: {"qpos": action[:1]}  # noqa: E731


class AlsoVelocities(Moves):
    returned = lambda action: {"qpos": action, "qvel": 0 * action}  # noqa: E731


class BareTensor(Moves):
    returned = lambda action: action  # noqa: E731


class Raises(Moves):
    returned = lambda action: action.view(7)  # noqa: E731


class WithMetric(Moves):
    returned = lambda action: {"qpos": action, "effort": action.abs().sum(dim=1)}  # noqa: E731


class OnlyMetric(Moves):
    kind = ""
    returned = lambda action: {"effort": action.abs().sum(dim=1)}  # noqa: E731


def with_actions(name: str) -> EmbodiedEnv:
    env = EmbodiedEnv(cart_cfg(2, {"actions": {"mine": {"func": f"{HERE}.{name}"}}}, allowed_imports=[HERE]))
    env.reset(seed=1)
    return env


def step(env: EmbodiedEnv) -> Any:
    return env.step(torch.full((2, env.single_action_space.shape[0]), 0.5))


def test_joints_follow_a_term_of_the_user() -> None:
    env = with_actions("WithMetric")
    before = env.robot.get_qpos()
    for _ in range(20):
        info = step(env)[-1]
    assert (env.robot.get_qpos() - before)[:, 0].min() > 0.1
    torch.testing.assert_close(info["metrics"]["effort"], torch.full((2,), 0.5))


def test_term_may_report_a_metric_and_move_nothing() -> None:
    torch.testing.assert_close(step(with_actions("OnlyMetric"))[-1]["metrics"]["effort"], torch.full((2,), 0.5))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("WithoutKind", "returns 'qpos', of which its class says nothing: write kind = \"qpos\" there"),
        ("OfAnotherKind", "returns 'qpos', of which its class says kind = 'qvel': write kind = \"qpos\" there"),
        (
            "Misspelt",
            "must return 'qpos' [N, J] = [2, 1], a row for each environment and a column for each of the term's "
            "joints, not nothing",
        ),
        (
            "TwoColumns",
            "must return 'qpos' [N, J] = [2, 1], a row for each environment and a column for each of the term's "
            "joints, not a tensor [2, 2]",
        ),
        ("BareTensor", "must return a dict of tensors, {'qpos': [N, J]}, not a tensor [2, 1]"),
    ],
)
def test_action_that_would_move_something_else_is_an_error_in_the_first_step(name: str, message: str) -> None:
    env = with_actions(name)
    with pytest.raises(ConfigError) as caught:
        step(env)
    assert str(caught.value) == f"env.actions.mine: {name}.process_action {message}"


@pytest.mark.parametrize("name", ["OnePose", "AlsoVelocities"])
def test_pose_of_all_environments_and_further_results_are_taken(name: str) -> None:
    env = with_actions(name)
    before = env.robot.get_qpos()
    for _ in range(20):
        step(env)
    assert (env.robot.get_qpos() - before)[:, 0].min() > 0.1


def test_result_that_moves_nothing_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    step(with_actions("MisspeltWithoutKind"))
    line = (
        "env.actions.mine: MisspeltWithoutKind.process_action returns 'qposs', a tensor [2, 1], which moves nothing: "
    )
    assert line in capsys.readouterr().err


def test_term_of_mode_post_needs_a_kind() -> None:
    actions = {"move": {"func": "DeltaQposTerm"}, "after": {"func": f"{HERE}.WithoutKind", "mode": "post"}}
    with pytest.raises(ConfigError, match=r"^env\.actions: WithoutKind is of mode 'post', so that it needs a kind$"):
        EmbodiedEnv(cart_cfg(2, {"actions": actions}, allowed_imports=[HERE]))


def fails(*given: Any) -> Any:
    return torch.zeros(3) + torch.zeros(2)


def fails_as_observation(env: Any) -> Any:
    return fails()


def fails_as_reward(env: Any, obs: Any, action: Any, info: Any) -> Any:
    return fails()


def fails_as_event(env: Any, env_ids: Any) -> Any:
    return fails()


class FailsToReset(Functor):
    """An observation that cannot be reset."""

    def reset(self, env_ids: Tensor) -> None:
        fails()

    def __call__(self, env: Any) -> Tensor:
        return torch.zeros(2, 1)


class FailsToBegin(Functor):
    """A constructor that fails."""

    def __init__(self, cfg: Any, env: Any) -> None:
        super().__init__(cfg, env)
        fails()

    def __call__(self, env: Any) -> Tensor:
        return torch.zeros(2, 1)


class BadSignature(FailsToReset):
    def __init__(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("block", "term"),
    [
        ("observations", {"func": "fails_as_observation"}),
        ("rewards", {"func": "fails_as_reward"}),
        ("terminations", {"func": "fails_as_observation"}),
        ("events", {"func": "fails_as_event", "mode": "reset"}),
        ("events", {"func": "fails_as_event", "mode": "interval", "interval_step": 1}),
        ("curriculum", {"func": "fails_as_event"}),
        ("observations", {"func": "FailsToReset"}),
        ("observations", {"func": "FailsToBegin"}),
        ("observations", {"func": "BadSignature"}),
        ("actions", {"func": "Raises"}),
    ],
)
def test_error_inside_a_term_notes_its_place(block: str, term: dict[str, Any]) -> None:
    term = {**term, "func": f"{HERE}.{term['func']}"}
    with pytest.raises((RuntimeError, TypeError)) as caught:
        step_once({block: {"mine": term}})
    assert caught.value.__notes__ == [f"env.{block}.mine"]


def step_once(blocks: dict[str, Any]) -> None:
    env = EmbodiedEnv(cart_cfg(2, blocks, allowed_imports=[HERE]))
    env.reset(seed=1)
    step(env)


def array_reward(env: Any, obs: Any, action: Any, info: Any) -> Any:
    return np.zeros(2)


def test_array_as_reward_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^env\.rewards\.mine: array_reward must return a tensor .* not ndarray$"):
        step_once({"rewards": {"mine": {"func": f"{HERE}.array_reward"}}})


class Aim(CommandTerm):
    """A command of two numbers."""

    size = 2
    drawn: ClassVar[Callable[[int], Any]] = lambda n: torch.zeros(n, 2)

    def draw(self, env_ids: Tensor) -> Any:
        return type(self).drawn(len(env_ids))


class OneNumber(Aim):
    drawn = lambda n: torch.zeros(n)  # noqa: E731


class OfAllEnvironments(Aim):
    drawn = lambda n: torch.zeros(n + 1, 2)  # noqa: E731


class Nothing(Aim):
    drawn = lambda n: None  # noqa: E731


class WithoutSize(CommandTerm):
    def draw(self, env_ids: Tensor) -> Tensor:
        return torch.zeros(len(env_ids), 2)


class WithoutDraw(CommandTerm):
    size = 2


class WithoutCall(Functor):
    """A functor that cannot be called."""


class WithoutProcess(ActionTerm):
    kind = "qpos"


@pytest.mark.parametrize(
    ("name", "found"),
    [("OneNumber", r"a tensor \[2\]"), ("OfAllEnvironments", r"a tensor \[3, 2\]"), ("Nothing", "NoneType")],
)
def test_command_of_another_shape_is_an_error(name: str, found: str) -> None:
    shape = r"a tensor \[n, size\] = \[2, 2\], a row for each of env_ids"
    message = rf"^{name}\.draw must return {shape}, not {found}\nenv\.commands\.aim$"
    with pytest.raises(ConfigError, match=message):
        step_once({"commands": {"aim": {"func": f"{HERE}.{name}"}}})


def test_command_without_a_length_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"WithoutSize has no 'size', the length of the command$"):
        step_once({"commands": {"aim": {"func": f"{HERE}.WithoutSize"}}})


class SizeOfItsOwn(Aim):
    """Its length is known when it is made."""

    def __init__(self, cfg: Any, env: Any) -> None:
        self.size = 2  # type: ignore[misc]
        super().__init__(cfg, env)


class FailsToDraw(Aim):
    def draw(self, env_ids: Tensor) -> Tensor:
        return fails()


def test_length_of_a_command_may_be_an_instances_own() -> None:
    step_once({"commands": {"aim": {"func": f"{HERE}.SizeOfItsOwn"}}})


def test_error_in_a_draw_notes_its_place() -> None:
    with pytest.raises(RuntimeError) as caught:
        step_once({"commands": {"aim": {"func": f"{HERE}.FailsToDraw"}}})
    assert caught.value.__notes__ == ["env.commands.aim"]


def test_command_of_the_user_is_drawn() -> None:
    step_once({"commands": {"aim": {"func": f"{HERE}.Aim"}}})


@pytest.mark.parametrize(
    ("block", "name", "missing"),
    [
        ("commands", "WithoutDraw", "'draw', which CommandTerm classes need"),
        ("observations", "WithoutCall", "'__call__', which Functor classes need"),
        ("actions", "WithoutProcess", "'process_action', which ActionTerm classes need"),
    ],
)
def test_class_without_what_its_base_leaves_to_it_is_refused_when_the_config_is_read(
    block: str, name: str, missing: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        cart_cfg(2, {block: {"mine": {"func": f"{HERE}.{name}"}}}, allowed_imports=[HERE])
    assert str(caught.value) == f"env.{block}.mine.func: '{name}' has no {missing}"
