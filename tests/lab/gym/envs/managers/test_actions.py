"""What actions mean. Shapes: N = 2 environments; the cart-pole's joints are the cart (limits -4, 4) and the pole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import ActionTerm
from embodichain.utils import ConfigError
from tests.lab.scenes import CART, cart_cfg


class Push(ActionTerm):
    """One number that is remembered and moves nothing."""

    def configure(self, joint: str, gain: float = 1.0) -> None:
        self.seen: list[list[float]] = []
        self.was_reset: list[list[int]] = []

    @property
    def action_dim(self) -> int:
        return 1

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        self.seen.append(action[:, 0].tolist())
        return {}

    def reset(self, env_ids: Tensor) -> None:
        self.was_reset.append(env_ids.tolist())


DELTA = {"func": "DeltaQposTerm", "params": {"scale": 0.5}}
ABSOLUTE = {"func": "QposTerm", "params": {"scale": 2.0}}


def env_with(actions: dict[str, Any], **cfg: Any) -> EmbodiedEnv:
    env = EmbodiedEnv(cart_cfg(2, {"actions": actions, **cfg}))
    env.reset(seed=1)
    return env


def put(env: EmbodiedEnv, cart: list[float]) -> None:
    env.robot.set_qpos(torch.tensor(cart)[:, None], name="arm", target=False)


def test_delta_is_added_to_the_present_position_and_scaled() -> None:
    env = env_with({"move": DELTA})
    put(env, [1.0, -1.0])
    # The old target does not count: env 1's is elsewhere.
    env.robot.set_qpos(torch.tensor([[3.0]]), name="arm", env_ids=torch.tensor([1]))
    targets = env.action_manager.process_action(torch.tensor([[0.5], [-1.0]]))
    assert targets["qpos"].tolist() == [[1.25], [-1.5]]


def test_delta_stays_within_the_joint_limits() -> None:
    env = env_with({"move": DELTA})
    put(env, [3.9, -3.9])
    targets = env.action_manager.process_action(torch.tensor([[1.0], [-1.0]]))
    assert targets["qpos"].tolist() == [[4.0], [-4.0]]


def test_action_is_clipped_at_the_border_of_the_environment() -> None:
    env = env_with({"move": DELTA})
    put(env, [1.0, 1.0])
    env.step(torch.tensor([[7.0], [-7.0]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[1.5], [0.5]]


def test_absolute_positions_are_scaled_and_the_action_space_reaches_the_limits() -> None:
    env = env_with({"place": ABSOLUTE})
    assert env.single_action_space.low.tolist() == [-2.0]  # -4 / 2
    assert env.single_action_space.high.tolist() == [2.0]
    env.step(torch.tensor([[0.75], [-9.0]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[1.5], [-4.0]]


def test_only_the_active_part_is_moved() -> None:
    env = env_with({"place": ABSOLUTE})
    before = env.robot.get_qpos_target("hand").clone()
    env.step(torch.tensor([[0.75], [0.5]]))
    assert torch.equal(env.robot.get_qpos_target("hand"), before)
    assert env.active_joint_ids == [0]


def test_control_part_of_the_actions_may_be_chosen() -> None:
    env = env_with({"move": DELTA}, control_parts=["hand"])
    assert env.active_part == "hand"
    assert env.active_joint_ids == [1]
    with pytest.raises(ConfigError, match=r"env\.control_parts: one of the robot's parts is needed, got \['leg'\]"):
        env_with({"move": DELTA}, control_parts=["leg"])


def test_robot_without_an_arm_is_moved_whole() -> None:
    robot = {**CART, "control_parts": {"all": [".*"]}}
    env = EmbodiedEnv(cart_cfg(2, robot=robot))
    assert env.active_joint_ids == [0, 1]
    assert env.action_manager.total_action_dim == 2


def test_action_may_be_given_by_its_type() -> None:
    one, two = env_with({"move": DELTA}), env_with({"move": DELTA})
    assert one.action_manager.action_type == "move"
    action = torch.tensor([[0.5], [-0.5]])
    one.step({one.action_manager.action_type: action})
    two.step(action)
    assert torch.equal(one.robot.get_qpos_target(), two.robot.get_qpos_target())


TWO = {"move": DELTA, "push": {"func": Push, "params": {"joint": "x"}}}


def test_terms_share_the_action_in_the_order_of_the_config() -> None:
    env = env_with(TWO)
    push = env.action_manager.terms["push"]
    assert isinstance(push, Push)
    assert env.action_manager.total_action_dim == 2
    assert env.single_action_space.shape == (2,)
    put(env, [0.0, 0.0])
    env.step(torch.tensor([[0.5, 0.25], [-0.5, 0.75]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[0.25], [-0.25]]
    assert push.seen == [[0.25, 0.75]]


def test_manager_sorts_a_dictionary_by_the_terms_names() -> None:
    env = env_with(TWO)
    put(env, [0.0, 0.0])
    actions = {"push": torch.full((2, 1), 0.25), "move": torch.full((2, 1), 0.5)}
    assert env.action_manager.process_action(actions)["qpos"].tolist() == [[0.25], [0.25]]


def test_order_of_a_dictionary_of_actions_does_not_matter() -> None:
    env = env_with(TWO)
    put(env, [0.0, 0.0])
    env.step({"push": torch.full((2, 1), 0.25), "move": torch.full((2, 1), 0.5)})
    assert env.robot.get_qpos_target("arm").tolist() == [[0.25], [0.25]]


def test_terms_are_told_which_episodes_end() -> None:
    env = env_with(TWO)
    push = env.action_manager.terms["push"]
    assert isinstance(push, Push)
    push.was_reset.clear()
    env.reset(options={"reset_ids": [1]})
    assert push.was_reset == [[1]]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({}, r"env\.actions: at least one action term is needed"),
        ({"a": {"func": len}}, r"env\.actions\.a\.func: must be an ActionTerm class"),
        ({"a": DELTA | {"params": {"scael": 1}}}, r"a\.params\.scael: unknown parameter\. Did you mean 'scale'\?"),
        ({"a": {"func": Push}}, r"env\.actions\.a\.params\.joint: required, but missing"),
    ],
)  # fmt: skip
def test_mistake_in_a_term_says_where(actions: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        env_with(actions)
