"""What actions mean. Shapes: N = 2 environments; the cart-pole's joints are the cart (limits -4, 4) and the pole."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import ActionTerm
from embodichain.lab.gym.envs.managers.actions import QposTerm
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from embodichain.utils.choices import Choices
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.legs import legs_env
from tests.lab.scene_files import RAIL, rail_env
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


class Pair(QposTerm):
    """A target of two numbers, their mean."""

    @property
    def action_dim(self) -> int:
        return 2

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return super().process_action(action.mean(dim=1, keepdim=True))


def test_term_of_another_size_than_its_parents_has_unit_limits() -> None:
    env = env_with({"place": {"func": Pair}})
    assert env.single_action_space.low.tolist() == [-1.0, -1.0]
    assert env.action_manager.process_action(torch.tensor([[1.0, 0.0]] * 2))["qpos"].tolist() == [[0.5], [0.5]]


def test_absolute_positions_reach_the_limits() -> None:
    env = env_with({"place": ABSOLUTE})
    assert env.single_action_space.low.tolist() == [-2.0]  # -4 / 2
    assert env.single_action_space.high.tolist() == [2.0]
    env.step(torch.tensor([[0.75], [-9.0]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[1.5], [-4.0]]


def test_robot_without_an_arm_is_moved_whole() -> None:
    robot = {**CART, "control_parts": {"all": [".*"]}}
    env = EmbodiedEnv(cart_cfg(2, robot=robot))
    assert env.active_joint_ids == [0, 1]
    assert env.action_manager.total_action_dim == 2


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


def test_terms_are_told_which_episodes_end() -> None:
    env = env_with(TWO)
    push = env.action_manager.terms["push"]
    assert isinstance(push, Push)
    push.was_reset.clear()
    env.reset(options={"reset_ids": [1]})
    assert push.was_reset == [[1]]


def test_denormalised_action_reaches_from_limit_to_limit() -> None:
    env = env_with({"place": {"func": "QposDenormalizedTerm"}})
    term = env.action_manager.terms["place"]
    # limits -4 and 4: -1 -> -4, 0.5 -> 2
    torch.testing.assert_close(term.process_action(torch.tensor([[-1.0], [0.5]]))["qpos"], torch.tensor([[-4.0], [2]]))
    assert env.single_action_space.low.tolist() == [-1.0]
    assert env.single_action_space.high.tolist() == [1.0]


def test_denormalised_action_may_have_another_range() -> None:
    env = env_with({"place": {"func": "QposDenormalizedTerm", "params": {"range": [0.0, 2.0], "scale": 0.5}}})
    term = env.action_manager.terms["place"]
    # -4 + 0.5 a / 2 * 8 = -4 + 2 a
    torch.testing.assert_close(term.process_action(torch.tensor([[1.0], [3.0]]))["qpos"], torch.tensor([[-2.0], [2]]))
    assert env.single_action_space.high.tolist() == [4.0]


def test_joints_not_named_get_the_scaled_action() -> None:
    params = {"joint_ids": [0], "scale": 0.5}
    actions = {"place": {"func": "QposDenormalizedTerm", "params": params}}
    env = EmbodiedEnv(cart_cfg(2, {"actions": actions}, robot={**CART, "control_parts": {"all": [".*"]}}))
    targets = env.action_manager.process_action(torch.tensor([[1.0, 1.0], [-1.0, 0.2]]))["qpos"]
    torch.testing.assert_close(targets, torch.tensor([[2.0, 0.5], [-2.0, 0.1]]))


def test_targets_are_recorded_as_terms_of_mode_post_make_them() -> None:
    post = {"func": "QposNormalizedTerm", "mode": "post", "params": {"range": [-1.0, 1.0]}}
    env = env_with({"place": ABSOLUTE, "record": post})
    assert env.action_manager.total_action_dim == 1
    env.step(torch.tensor([[0.75], [-1.0]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[1.5], [-2.0]]
    # limits -4 and 4 become -1 and 1
    assert env.action_manager.processed_action["qpos"].tolist() == [[0.375], [-0.5]]
    normalised = env.action_manager.process_action({"qpos": torch.tensor([[4.0], [0.0]])}, mode="post")
    assert normalised["qpos"].tolist() == [[1.0], [0.0]]


class Reaches(Push):
    """Reports whether it reached the action's first sign."""

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        return {"ik_success": action[:, 0] > 0.0}


def test_several_terms_succeed_where_all_do() -> None:
    terms = {name: {"func": Reaches, "params": {"joint": "slider_to_cart"}} for name in ("left", "right")}
    env = env_with({"move": DELTA, **terms})
    info = env.step(torch.tensor([[0.0, -1.0, 1.0], [0.0, 1.0, 1.0]]))[-1]
    assert info["metrics"]["ik_success"].tolist() == [0.0, 1.0]


def test_velocity_action_turns_the_drive_into_a_velocity_drive() -> None:
    env = env_with({"go": {"func": "QvelTerm", "params": {"scale": 0.5}}})
    assert env.single_action_space.high.tolist() == [1.0]
    env.step(torch.tensor([[1.0], [-0.5]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[0.5], [-0.25]]
    # damping 1: force = target - velocity
    expected = torch.tensor([[0.5], [-0.25]]) - env.robot.get_qvel("arm")
    torch.testing.assert_close(env.robot.get_qf("arm"), expected)


def test_velocity_action_stays_within_the_configs_velocity() -> None:
    robot = {**CART, "drive_pros": {**CART["drive_pros"], "max_velocity": 3.0}}
    env = EmbodiedEnv(cart_cfg(2, {"actions": {"go": {"func": "QvelTerm", "params": {"scale": 2.0}}}}, robot=robot))
    assert env.single_action_space.high.tolist() == [1.5]


def test_effort_action_pushes_with_that_force_alone() -> None:
    env = env_with({"push": {"func": "QfTerm", "params": {"scale": 50.0}}})
    assert env.single_action_space.high.tolist() == [2.0]  # 100 N / 50
    env.step(torch.tensor([[0.1], [-9.0]]))
    torch.testing.assert_close(env.robot.get_qf("arm"), torch.tensor([[5.0], [-100.0]]))
    env.reset(options={"reset_ids": [1]})
    torch.testing.assert_close(env.robot.get_qf("arm"), torch.tensor([[5.0], [0.0]]))


def test_term_of_mode_post_for_joints_in_another_order_is_refused() -> None:
    hand = {"func": "QposTerm", "params": {"part_name": "hand"}}
    post = {"func": "QposNormalizedTerm", "mode": "post", "params": {"part_name": None}}
    message = r"env\.actions\.norm: the targets are of cart_to_pole, slider_to_cart, and it is for slider_to_cart$"
    with pytest.raises(ConfigError, match=message):
        env_with({"pole": hand, "cart": ABSOLUTE, "norm": post})


def test_terms_may_move_parts_of_their_own() -> None:
    actions = {"cart": ABSOLUTE, "pole": {"func": "QvelTerm", "params": {"part_name": "hand"}}}
    env = env_with(actions)
    assert env.action_manager.total_action_dim == 2
    env.step(torch.tensor([[0.5, 0.25], [-0.5, 1.0]]))
    assert env.robot.get_qpos_target().tolist() == [[1.0, 0.25], [-1.0, 1.0]]
    both = {"cart": ABSOLUTE, "pole": {"func": "QposTerm", "params": {"part_name": "hand"}}}
    targets = env_with(both).action_manager.process_action(torch.tensor([[0.5, 0.25], [-0.5, 1.0]]))
    assert targets["qpos"].tolist() == [[1.0, 0.25], [-1.0, 1.0]]


def test_two_terms_for_one_joint_are_refused() -> None:
    message = r"env\.actions\.b: joint 0 \('slider_to_cart'\) is moved by 'a' already; choose another control part"
    with pytest.raises(ConfigError, match=message):
        env_with({"a": ABSOLUTE, "b": {"func": "QvelTerm"}})


def test_joint_without_limits_cannot_be_mapped() -> None:
    params = {"part_name": "hand"}
    with pytest.raises(ConfigError, match=r"a\.params\.joint_ids: joint 1 \('cart_to_pole'\) has no limits"):
        env_with({"a": {"func": "QposDenormalizedTerm", "params": params}})


FINGERS = {**CART, "fpath": "dh_pgi_140_80", "init_qpos": [0.0, 0.0], "drive_pros": {}}
FINGERS["control_parts"] = {"arm": ["gripper_finger1_joint_1"], "hand": ["gripper_finger.*"]}


def test_gripper_opens_and_closes_all_its_joints_by_one_number() -> None:
    env = EmbodiedEnv(cart_cfg(3, {"actions": {"gripper": {"func": "GripperTerm"}}}, robot=FINGERS))
    assert env.action_manager.total_action_dim == 1
    assert env.single_action_space.low.tolist() == [-1.0]
    # limits 0 and 0.04: -1 -> 0, 0.5 -> 0.02 + 0.5 * 0.02, 1 -> 0.04
    targets = env.action_manager.process_action(torch.tensor([[-1.0], [0.5], [1.0]]))["qpos"]
    torch.testing.assert_close(targets, torch.tensor([[0.0, 0.0], [0.03, 0.03], [0.04, 0.04]]))


# --- what a robot is told ---

QPOS, QVEL, QF = "joint position, rad or m", "joint velocity, rad/s or m/s", "joint effort, Nm or N"


@pytest.mark.parametrize(
    ("term", "meaning"),
    [
        ({"func": "DeltaQposTerm", "params": {"scale": 0.5}}, f"change of {QPOS}"),
        ({"func": "QposTerm", "params": {"scale": 2.0}}, QPOS),
        ({"func": "JointPositionTerm", "params": {"scale": 0.5}}, QPOS),
        ({"func": "QposDenormalizedTerm", "params": {"scale": 0.5, "range": [0.0, 1.0]}}, QPOS),
        ({"func": "GripperTerm", "params": {"part_name": "arm"}}, QPOS),
        ({"func": "QvelTerm", "params": {"scale": 3.0}}, QVEL),
        ({"func": "QfTerm", "params": {"scale": 3.0}}, QF),
    ],
)
def test_command_is_what_the_term_makes_of_the_action(term: dict[str, Any], meaning: str) -> None:
    env = env_with({"move": term})
    put(env, [0.5, 0.5])
    (made,) = env.action_manager.terms.values()
    found = made.command_map()
    assert found is not None
    assert found.meaning == meaning
    assert found.names == [env.robot.joint_names[joint] for joint in made.joint_ids]
    action = torch.tensor([[0.7], [-0.2]])
    command = torch.clamp(found.offset + found.factor * action, found.low, found.high)
    target = made.process_action(action)[made.kind]
    present = 0.5 if meaning.startswith("change") else 0.0
    assert torch.allclose(command + present, target)


def test_term_of_ones_own_has_no_command_unless_it_says_one() -> None:
    env = env_with({"push": {"func": Push, "params": {"joint": "x"}}})
    assert env.action_manager.terms["push"].command_map() is None


def test_command_map_of_actuators_has_their_ranges(tmp_path: Path) -> None:
    (term,) = rail_env(tmp_path).action_manager.terms.values()
    found = term.command_map()
    assert found is not None
    assert found.names == ["push"]
    numbers = [values.tolist() for values in (found.offset, found.factor, found.low, found.high)]
    assert numbers == [[0.0], [1.0], [-0.5], [1.0]]


def test_scene_without_actuators_is_refused(tmp_path: Path) -> None:
    text = re.sub(r"<actuator>.*</actuator>", "", RAIL, flags=re.DOTALL)
    with pytest.raises(ConfigError, match="the scene's file has no actuator"):
        rail_env(tmp_path, text=text)


def legs_acting(**params: Any) -> LocomotionEnv:
    env = legs_env(2, {"actions": {"legs": {"func": "JointPositionTerm", "params": params}}})
    env.reset(seed=1)
    return env


def test_targets_are_initial_positions_plus_scaled_action() -> None:
    env = legs_acting(scale=0.25)
    default = env.robot.body_data.default_qpos
    action = torch.linspace(-1.0, 1.0, 24).view(2, 12)
    env.step(action)
    torch.testing.assert_close(env.robot.get_qpos_target(), default + 0.25 * action)


def test_actions_are_clipped_to_the_limit_and_targets_to_nothing() -> None:
    env = legs_acting(scale=0.5, limit=4.0)
    assert float(env.single_action_space.low.min()) == -4.0
    assert float(env.single_action_space.high.max()) == 4.0
    env.step(torch.full((2, 12), 9.0))
    torch.testing.assert_close(env.robot.get_qpos_target(), env.robot.body_data.default_qpos + 2.0)
    assert (env.robot.get_qpos_target() > env.robot.body_data.qpos_limits[..., 1]).any()


LIMIT = 4  # steps of an episode


def delayed_env(num_envs: int = 2, **params: Any) -> EmbodiedEnv:
    move = {"func": "JointPositionTerm", "params": {"scale": 0.5, **params}}
    return EmbodiedEnv(cart_cfg(num_envs, {"actions": {"move": move}}, max_episode_steps=LIMIT))


def targets_of(env: EmbodiedEnv, actions: list[float]) -> list[float]:
    """Return the cart's target in environment 0 at each of the steps with these actions."""
    seen = []
    for action in actions:
        env.action_manager.apply_action(torch.full((env.num_envs, 1), action))
        seen.append(round(env.robot.get_qpos_target("arm")[0].item(), 5))
    return seen


def test_delayed_actions_arrive_in_their_order() -> None:
    env = delayed_env(delay=[2, 2])
    env.reset(seed=1)
    assert targets_of(env, [1.0, 2.0, 3.0, 4.0]) == [-0.2, -0.2, 0.3, 0.8]
    env.reset(options={"reset_ids": [0]})
    assert targets_of(env, [5.0, 6.0, 7.0]) == [-0.2, -0.2, 2.3]  # nothing of the last episode


def test_delay_is_drawn_for_each_episode_and_environment() -> None:
    env = delayed_env(40, delay=[0, 2])
    lags = []
    for seed in (1, 2):
        env.reset(seed=seed)
        for action in (1.0, 2.0, 3.0):
            env.action_manager.apply_action(torch.full((40, 1), action))
        # target = -0.2 + 0.5 (3 - lag)
        lags.append((3 - (env.robot.get_qpos_target("arm")[:, 0] + 0.2) / 0.5).round())
    assert [lag.unique().tolist() for lag in lags] == [[0, 1, 2]] * 2
    assert not torch.equal(*lags)


def test_checkpoint_with_delayed_actions_continues() -> None:
    assert_goes_on(lambda: delayed_env(6, delay=[0, 3]), steps=5)  # in the second episode of 4 steps


CHOICES = {"func": "ChoiceTerm", "params": {"choices": [[-0.5], [0.0], [0.25]]}}


def test_choice_adds_the_change_of_its_number() -> None:
    env = env_with({"move": CHOICES})
    assert env.single_action_space == Choices((3,))
    put(env, [1.0, 3.9])
    env.step(torch.tensor([[0.0], [2.0]]))
    assert env.robot.get_qpos_target("arm").tolist() == [[0.5], [4.0]]  # 1 - 0.5; 3.9 + 0.25, at its limit


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"a": {**CHOICES, "params": {"choices": [[0.1, 0.2]]}}}, r"params\.choices: 2 numbers for 1 joints"),
        ({"a": CHOICES, "b": {"func": Push, "params": {"joint": "x"}}}, r"discrete actions \(ChoiceTerm\) cannot be"),
    ],
)
def test_choices_that_cannot_be_are_refused(actions: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        env_with(actions)
