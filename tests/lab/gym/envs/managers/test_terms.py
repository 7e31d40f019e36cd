"""Terms of users: how they are checked, and faults in them. Shapes: N = 2 environments, J = 1 joint."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import ActionTerm, Functor
from embodichain.lab.gym.envs.managers.base import CommandTerm
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.utils import ConfigError
from tests.lab.legs import legs_data
from tests.lab.scenes import BOX, cart_cfg


def stepped(block: str, func: Any, **term: Any) -> tuple[EmbodiedEnv, Any]:
    """An environment with one term, and the result of its first step."""
    env = EmbodiedEnv(cart_cfg(2, {block: {"mine": {"func": func, **term}}}))
    env.reset(seed=1)
    return env, env.step(torch.full((2, env.single_action_space.shape[0]), 0.5))


def acting(returned: Callable[[Tensor], Any], kind: str = "qpos") -> type:
    """An action term that returns something of its action."""
    return type("Mine", (ActionTerm,), {"kind": kind, "process_action": lambda self, action: returned(action)})


WHAT = "env.actions.mine: Mine.process_action"


def test_users_term_moves_joints_and_reports_a_metric() -> None:
    def returned(action: Tensor) -> Any:
        return {"qpos": action, "effort": action.abs().sum(dim=1)}

    env, _ = stepped("actions", acting(returned))
    for _ in range(20):
        info = env.step(torch.full((2, 1), 0.5))[-1]
    assert env.robot.get_qpos()[:, 0].min() > 0.1
    torch.testing.assert_close(info["metrics"]["effort"], torch.full((2,), 0.5))


def test_term_may_report_a_metric_and_move_nothing() -> None:
    _, result = stepped("actions", acting(lambda action: {"effort": action.abs().sum(dim=1)}, kind=""))
    torch.testing.assert_close(result[-1]["metrics"]["effort"], torch.full((2,), 0.5))


@pytest.mark.parametrize(
    ("returned", "kind", "message"),
    [
        (lambda a: {"qpos": a}, "", " returns ['qpos'], but its class has no kind: write kind = 'qpos' there"),
        (lambda a: {"qpos": a}, "qvel", " must return 'qvel' [N, J] = [2, 1], not NoneType"),
        (lambda a: {"qpos": a.repeat(1, 2)}, "qpos", " must return 'qpos' [N, J] = [2, 1], not a tensor [2, 2]"),
        (lambda a: a, "qpos", " must return a dict of tensors, {'qpos': [N, J]}, not a tensor [2, 1]"),
    ],
)
def test_action_that_would_move_something_else(returned: Any, kind: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stepped("actions", acting(returned, kind))
    assert str(caught.value) == WHAT + message


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


class FailsToBegin(FailsToReset):
    """A constructor that fails."""

    def __init__(self, cfg: Any, env: Any) -> None:
        fails()


class BadSignature(FailsToReset):
    def __init__(self) -> None:
        raise AssertionError


class Aim(CommandTerm):
    """A command of two numbers."""

    size = 2

    def draw(self, env_ids: Tensor) -> Any:
        return torch.zeros(len(env_ids), 2)


class FailsToDraw(Aim):
    def draw(self, env_ids: Tensor) -> Tensor:
        return fails()


@pytest.mark.parametrize(
    ("block", "term"),
    [
        ("observations", {"func": fails_as_observation}),
        ("rewards", {"func": fails_as_reward}),
        ("terminations", {"func": fails_as_observation}),
        ("events", {"func": fails_as_event, "mode": "reset"}),
        ("events", {"func": fails_as_event, "mode": "interval", "interval_step": 1}),
        ("curriculum", {"func": fails_as_event}),
        ("observations", {"func": FailsToReset}),
        ("observations", {"func": FailsToBegin}),
        ("observations", {"func": BadSignature}),
        ("actions", {"func": acting(fails)}),
        ("commands", {"func": FailsToDraw}),
    ],
)
def test_error_inside_a_term_notes_its_place(block: str, term: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, TypeError)) as caught:
        stepped(block, **term)
    assert caught.value.__notes__ == [f"env.{block}.mine"]


@pytest.mark.parametrize(
    ("drawn", "found"),
    [(torch.zeros(2), r"a tensor \[2\]"), (torch.zeros(3, 2), r"a tensor \[3, 2\]"), (None, "NoneType")],
)
def test_command_of_another_shape_is_an_error(drawn: Any, found: str) -> None:
    wrong = type("Wrong", (Aim,), {"draw": lambda self, env_ids: drawn})
    with pytest.raises(ConfigError, match=rf"^Wrong\.draw must return .*\[2, 2\].* not {found}\nenv\.commands\.mine$"):
        stepped("commands", wrong)


@pytest.mark.parametrize(
    ("block", "base", "missing"),
    [
        ("commands", CommandTerm, "'draw', which CommandTerm classes need"),
        ("observations", Functor, "'__call__', which Functor classes need"),
        ("actions", ActionTerm, "'process_action', which ActionTerm classes need"),
    ],
)
def test_class_without_its_method_is_refused(block: str, base: type, missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cart_cfg(2, {block: {"mine": {"func": type("Mine", (base,), {})}}})
    assert str(caught.value) == f"env.{block}.mine.func: 'Mine' has no {missing}"


CLOSED: list[str] = []


def height(env: EmbodiedEnv, obs: Any, action: Any, info: Any, thing: SceneEntityCfg, scale: float = 1.0) -> Tensor:
    return env.sim.get_rigid_object(thing.uid).pos[:, 2] * scale


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


def test_class_that_forgets_its_base_is_refused() -> None:
    message = r"env.rewards.term.func: 'WithoutBase'.__init__ must call super\(\).__init__\(cfg, env\)"
    with pytest.raises(ConfigError, match=message):
        env_with({"func": WithoutBase})


def test_closing_the_environment_closes_its_events() -> None:
    env = env_with({"func": Count}, events={"tidy": {"func": Tidy}})
    env.reset()
    CLOSED.clear()
    env.close()
    assert CLOSED == ["Tidy"]


VELOCITY = {"func": "UniformVelocityCommand"}


def read(**env: Any) -> None:
    config_to_cfg(legs_data(env))


@pytest.mark.parametrize(
    ("block", "term", "message"),
    [
        (
            "rewards",
            {"func": "feet_slide", "params": {"sensor": "feets"}},
            "params.sensor: no contact sensor 'feets' in the scene. Did you mean 'feet'? There are: feet",
        ),
        (
            "curriculum",
            {"func": "command_range", "params": {"command": "pose"}},
            "params.command: no command 'pose' in the config's env.commands. There are: base_velocity",
        ),
        (
            "curriculum",
            {"func": "bad_orientation"},
            "func: 'bad_orientation' does not take env, env_ids, which it is given here",
        ),
    ],
)
def test_wrong_name_or_kind_is_one_line_with_its_place(block: str, term: dict[str, Any], message: str) -> None:
    others = {"commands": {"base_velocity": VELOCITY}}.get(block, {})
    with pytest.raises(ConfigError) as error:
        read(**{block: others | {"x": term}})
    assert str(error.value) == f"env.{block}.x.{message}"


def test_default_command_that_is_not_there_is_found_too() -> None:
    with pytest.raises(ConfigError, match=r"^env\.observations\.command\.params\.command: no command 'base_velocity'"):
        read(commands={}, observations={"command": {"func": "generated_command"}})
