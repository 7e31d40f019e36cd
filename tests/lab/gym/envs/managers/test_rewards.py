"""Every reward term by hand, from poses that are set. Shapes: N = 2 environments."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor, rewards
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, RewardCfg, SceneEntityCfg
from embodichain.lab.gym.envs.managers.rewards import RewardManager
from embodichain.lab.sim.math import quat_from_euler
from embodichain.utils import ConfigError
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import BOX, cart_cfg, env_of

CUBE, OTHER = SceneEntityCfg("cube"), SceneEntityCfg("box")
NO_OBS = TensorDict({}, batch_size=[2])
NO_ACTION = torch.zeros(2, 6)


@pytest.fixture(scope="module")
def built() -> EmbodiedEnv:
    return env_of(PUSH_CUBE | {"rigid_object": [*PUSH_CUBE["rigid_object"], BOX]}, 2)


@pytest.fixture
def env(built: EmbodiedEnv) -> Iterator[EmbodiedEnv]:
    built.reset(seed=1)
    yield built
    built.reset(seed=1)


def place(env: EmbodiedEnv, uid: str, positions: list[list[float]]) -> None:
    quat = torch.tensor([1.0, 0, 0, 0]).expand(2, 4)
    env.sim.get_rigid_object(uid).set_local_pose(torch.cat((torch.tensor(positions), quat), dim=1))


def aim(env: Any, positions: list[list[float]]) -> None:
    poses = torch.eye(4).repeat(2, 1, 1)
    poses[:, :3, 3] = torch.tensor(positions)
    env.goal_pose = poses


def value(env: EmbodiedEnv, term: Any, action: Tensor = NO_ACTION, info: Any = None, **params: Any) -> Any:
    result = term(env, NO_OBS, action, {} if info is None else info, **params)
    assert result.shape == (2,)
    return pytest.approx(result.tolist(), abs=1e-6)


def test_distance_between_objects_is_negative_or_a_bell(env: EmbodiedEnv) -> None:
    place(env, "cube", [[1.0, 2.0, 3.0], [0.0, 0.0, 0.5]])
    place(env, "box", [[1.0, 5.0, 7.0], [0.0, 0.0, 0.0]])
    both: dict[str, Any] = {"source_entity_cfg": CUBE, "target_entity_cfg": OTHER}
    assert value(env, rewards.distance_between_objects, **both) == [-5.0, -0.5]  # 3, 4, 5
    # exp(-d^2 / (2 sigma^2)): 25 / 50 and 0.25 / 50
    bell = value(env, rewards.distance_between_objects, **both, exponential=True, sigma=5.0)
    assert bell == [math.exp(-0.5), math.exp(-0.005)]


def test_distance_to_target_counts_the_height_by_default(env: EmbodiedEnv) -> None:
    place(env, "cube", [[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    aim(env, [[0.0, 0.0, 12.0], [0.0, 0.0, 0.0]])
    params: dict[str, Any] = {"source_entity_cfg": CUBE, "target_pose_key": "goal_pose"}
    assert value(env, rewards.distance_to_target, **params) == [-13.0, -2.0]  # 5, 12, 13
    assert value(env, rewards.distance_to_target, **params, use_xy_only=True) == [-5.0, 0.0]
    bell = value(env, rewards.distance_to_target, **params, use_xy_only=True, exponential=True, sigma=10.0)
    assert bell == [math.exp(-25 / 200), 1.0]


def test_target_that_nothing_stores_is_an_error(env: EmbodiedEnv) -> None:
    with pytest.raises(ConfigError, match=r"target_pose_key: unknown pose 'goal_pse'. Did you mean 'goal_pose'\?"):
        value(env, rewards.distance_to_target, source_entity_cfg=CUBE, target_pose_key="goal_pse")


def test_incremental_distance_rewards_a_steps_gain(env: EmbodiedEnv) -> None:
    term = rewards.incremental_distance_to_target(FunctorCfg(func="", params={}), env)
    params: dict[str, Any] = {
        "source_entity_cfg": CUBE, "tanh_scale": 2.0, "positive_weight": 3.0, "negative_weight": 5.0,
    }  # fmt: skip
    aim(env, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    place(env, "cube", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert value(env, term, **params) == [0.0, 0.0]
    # env 0 came 0.3 nearer, env 1 went 0.2 away
    place(env, "cube", [[0.7, 0.0, 0.0], [0.0, 1.2, 0.0]])
    assert value(env, term, **params) == [3 * math.tanh(0.6), -5 * math.tanh(0.4)]
    # env 1 begins a new episode elsewhere: nothing to compare with
    term.reset(torch.tensor([1]))
    place(env, "cube", [[0.6, 0.0, 0.0], [0.0, 9.0, 0.0]])
    assert value(env, term, **params) == [3 * math.tanh(0.2), 0.0]
    # its height does not count for env 0 when told so; 0.6 -> 0.6
    place(env, "cube", [[0.6, 0.0, 5.0], [0.0, 9.0, 5.0]])
    assert value(env, term, **params, use_xy_only=True) == [0.0, 0.0]
    # A goal that an event moved is no progress: the cube of env 0 comes 0.5 nearer to the new one.
    aim(env, [[3.0, 0.0, 7.0], [0.0, 0.0, 0.0]])
    place(env, "cube", [[1.1, 0.0, 5.0], [0.0, 9.0, 5.0]])
    assert value(env, term, **params, use_xy_only=True) == [3 * math.tanh(1.0), 0.0]


def test_what_an_event_moves_within_an_episode_is_no_progress() -> None:
    shift = {"entity_cfg": {"uid": "cube"}, "position_range": [[0.1, 0.1, 0.0], [0.1, 0.1, 0.0]]}
    spin = {"qvel_range": [[2.0], [2.0]]}
    events = {
        "shift": {"func": "randomize_rigid_object_pose", "mode": "interval", "interval_step": 2, "params": shift},
        "spin": {"func": "randomize_joint_velocity", "mode": "interval", "interval_step": 2, "params": spin},
    }
    progress = {
        "func": "incremental_distance_to_target", "params": {"source_entity_cfg": {"uid": "cube"}, "tanh_scale": 1.0},
    }  # fmt: skip
    terms = {"progress": progress, "acceleration": {"func": "joint_acc_l2"}}
    own = PUSH_CUBE["env"]
    env = env_of(PUSH_CUBE | {"env": own | {"events": own["events"] | events, "rewards": terms}}, 2)
    env.reset(seed=1)
    for _ in range(3):
        before = env.robot.get_qvel().clone()
        found = env.step(NO_ACTION)[-1]["rewards"]
        assert found["progress"].abs().max().item() < 1e-3
    assert before[0, 0].item() == 2.0  # the last step began with an event's speed
    mean = (env.robot.get_qvel() - before) / env.step_dt
    torch.testing.assert_close(found["acceleration"], mean.square().sum(dim=1))


def test_reaching_is_full_behind_the_object(env: EmbodiedEnv) -> None:
    tool = env.robot.get_eef_pose("arm")[:, :3, 3]
    # The goal lies in +x: the place to push from is 0.1 m in -x of the cube's centre and 0.02 m above it. In env 0 the
    # tool is there, in env 1 0.3 m beside it (y).
    offset = torch.tensor([[0.1, 0.0, -0.02], [0.1, -0.3, -0.02]])
    cubes = tool + offset
    place(env, "cube", cubes.tolist())
    aim(env, (cubes + torch.tensor([1.0, 0.0, 0.7])).tolist())
    params: dict[str, Any] = {"object_cfg": CUBE, "behind_offset": 0.1, "height_offset": 0.02, "distance_scale": 4.0}
    assert value(env, rewards.reaching_behind_object, **params) == [1.0, 1 - math.tanh(4 * 0.3)]


def test_reaching_with_the_object_at_the_goal_is_finite(env: EmbodiedEnv) -> None:
    place(env, "cube", [[-0.5, 0.0, 0.0]] * 2)
    aim(env, [[-0.5, 0.0, 0.0]] * 2)
    result = rewards.reaching_behind_object(env, NO_OBS, NO_ACTION, {}, object_cfg=CUBE)
    assert torch.isfinite(result).all()


def test_joint_velocity_penalty_is_a_norm(env: EmbodiedEnv) -> None:
    velocity = torch.zeros(2, 8)
    velocity[0, [0, 1, 6]] = torch.tensor([3.0, 4.0, 12.0])
    env.robot.set_qvel(velocity)
    params: dict[str, Any] = {"robot_uid": "Manipulator"}
    assert value(env, rewards.joint_velocity_penalty, **params) == [-13.0, 0.0]
    assert value(env, rewards.joint_velocity_penalty, **params, part_name="arm") == [-5.0, 0.0]
    assert value(env, rewards.joint_velocity_penalty, **params, joint_ids=[1, 6]) == [-math.sqrt(160), 0.0]
    with pytest.raises(ConfigError, match="joint_ids or part_name, not both"):
        value(env, rewards.joint_velocity_penalty, **params, part_name="hand", joint_ids=[0])


def test_smoothness_penalty_is_the_norm_of_the_change(env: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    term = rewards.action_smoothness_penalty(FunctorCfg(func="", params={}), env)
    actions = torch.zeros(3, 2, 6)
    actions[1, 0, :2] = torch.tensor([0.3, 0.4])
    actions[2, :, 5] = 1.0
    # An episode's first action has none before it.
    expected = [[1, 1], [0.0, 0.0]], [[2, 2], [-0.5, 0.0]], [[3, 1], [-math.sqrt(0.25 + 1), 0.0]]
    for action, (elapsed_steps, penalties) in zip(actions, expected, strict=True):
        monkeypatch.setattr(env, "elapsed_steps", torch.tensor(elapsed_steps))
        assert value(env, term, action) == penalties


def test_success_reward_is_one_where_the_task_is_achieved(env: EmbodiedEnv) -> None:
    assert value(env, rewards.success_reward, info={"success": torch.tensor([True, False])}) == [1.0, 0.0]


def test_terms_are_weighted_summed_and_reported_by_name(env: EmbodiedEnv) -> None:
    action = torch.zeros(2, 6)
    for _ in range(2):
        env.step(action)
    place(env, "cube", [[-0.6, 0.0, 0.04], [-0.6, 0.3, 0.04]])
    aim(env, [[-0.6, 0.0, 0.04]] * 2)
    action[0, 0] = 0.5
    info = {"success": torch.tensor([True, False])}
    total, terms = env.reward_manager.compute(NO_OBS, action, info)
    assert terms["success"].tolist() == [10.0, 0.0]
    assert terms["smooth"].tolist() == pytest.approx([-0.01 * 0.5, 0.0])
    assert terms["progress"].tolist() == pytest.approx([1.0, math.exp(-0.5 * 9)])  # (0.3 / 0.1)^2
    assert set(terms) == {"reach", "progress", "smooth", "success"}
    torch.testing.assert_close(total, terms["reach"] + terms["progress"] + terms["smooth"] + terms["success"])


def test_alignment_is_the_cosine_of_the_angle_between_two_bodies() -> None:
    other = {**BOX, "uid": "other", "init_pos": [4.0, 0.0, 0.05], "init_rot": [0.0, 0.0, 30.0]}
    env = EmbodiedEnv(cart_cfg(3, rigid_object=[BOX, other]))
    turns = torch.deg2rad(torch.tensor([[0.0, 0, 30.0], [0.0, 0, 90.0], [180.0, 0, 30.0]]))
    pose = torch.cat((torch.tensor([[2.0, 0, 0.05]]).expand(3, 3), quat_from_euler(turns)), dim=1)
    env.sim.get_rigid_object("box").set_local_pose(pose)
    value = rewards.orientation_alignment(env, NO_OBS, NO_ACTION, {}, SceneEntityCfg("box"), SceneEntityCfg("other"))
    # 0, 60 and 180 degrees between them
    torch.testing.assert_close(value, torch.tensor([1.0, 0.5, -1.0]), atol=1e-5, rtol=0)


def test_joints_near_their_limits_are_penalised() -> None:
    env = EmbodiedEnv(cart_cfg(4))
    # The cart's limits are -4 and 4; the pole has none.
    env.robot.set_qpos(torch.tensor([[0.0], [3.6], [-4.0], [3.0]]), [0], target=False)
    # shares of the range to the next limit: 0.5, 0.05, 0, 0.125
    expected = torch.tensor([0.0, -0.05, -0.1, 0.0])
    torch.testing.assert_close(
        rewards.joint_limit_penalty(env, NO_OBS, NO_ACTION, {}, "Cart"), expected, atol=1e-6, rtol=0
    )
    expected = torch.tensor([0.0, -0.15, -0.2, -0.075])
    value = rewards.joint_limit_penalty(env, NO_OBS, NO_ACTION, {}, "Cart", joint_ids=[0], margin=0.2)
    torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("returned", "found"), [(torch.ones(2, 1), r"a tensor \[2, 1\]"), (None, "NoneType")])
def test_reward_of_another_shape_names_its_term(env: EmbodiedEnv, returned: Any, found: str) -> None:
    def mine(env: Any, obs: Any, action: Any, info: Any) -> Any:
        return returned

    manager = RewardManager({"near": RewardCfg(mine), "ok": RewardCfg(lambda *given: torch.ones(2))}, env)
    message = rf"^env\.rewards\.near: .*mine must return a tensor \[N\] = \[2\], a row for each .*, not {found}$"
    with pytest.raises(ConfigError, match=message):
        manager.compute(NO_OBS, NO_ACTION, {})


def test_reward_that_writes_into_the_state_is_found_by_the_next_reader(env: EmbodiedEnv) -> None:
    def halve(env: Any) -> Tensor:
        pos = env.sim.get_rigid_object("cube").pos
        pos *= 0.5
        return pos[:, 0]

    def height(env: Any) -> Tensor:
        pose: Tensor = env.sim.get_rigid_object("cube").get_local_pose()
        return pose[:, 2]

    manager = RewardManager({"halve": RewardCfg(halve), "height": RewardCfg(height)}, env)
    with pytest.raises(ConfigError, match=r"^a result of .* was changed in place by a term that was called before"):
        manager.compute(NO_OBS, NO_ACTION, {})
    env.reset()


def test_rewards_take_the_step_or_the_environment_alone(env: EmbodiedEnv) -> None:
    class Stateful(Functor):
        def __call__(self, env: Any, scale: float) -> Tensor:
            return torch.full((2,), scale)

    def alone(env: Any, target) -> Tensor:
        return torch.full((2,), float(target))

    def by_type(env: Any, seen: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        return action[:, 0]

    terms = {
        "stateful": RewardCfg(Stateful, params={"scale": 2.0}),
        "alone": RewardCfg(alone, params={"target": 3}),
        "untyped": RewardCfg(lambda env, o, a, i, gain=1.0: gain * a[:, 0], params={"gain": 4.0}),
        "typed": RewardCfg(by_type),
        "spread": RewardCfg(lambda *given: given[2][:, 0]),
    }
    _, values = RewardManager(terms, env).compute(NO_OBS, torch.ones(2, 6), {})
    assert {name: x.tolist() for name, x in values.items()} == {
        "stateful": [2, 2],
        "alone": [3, 3],
        "untyped": [4, 4],
        "typed": [1, 1],
        "spread": [1, 1],
    }


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda obs, action, info: obs["robot", "qvel"].mul_(0.5), "robot/qvel"),
        (lambda obs, action, info: action.clamp_(-0.5, 0.5), "action"),
        (lambda obs, action, info: info["metrics"]["distance"].neg_(), "distance"),
    ],
)
def test_reward_that_writes_into_its_arguments_is_an_error(env: EmbodiedEnv, write: Any, what: str) -> None:
    def mine(env: Any, obs: Any, action: Any, info: Any) -> Any:
        return write(obs, action, info).reshape(2, -1).sum(dim=1)

    obs, _ = env.reset()
    obs = obs.clone()
    manager = RewardManager({"near": RewardCfg(mine)}, env)
    with pytest.raises(ConfigError, match=rf"^env\.rewards\.near: .*mine writes into '{what}', .* x \* 0\.1 instead"):
        manager.compute(obs, torch.zeros(2, 6), {"metrics": {"distance": torch.zeros(2)}})
