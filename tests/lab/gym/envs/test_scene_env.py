"""Environments whose scene is one file. Shapes: N environments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv, SceneEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.registry import make, register_env
from embodichain.lab.sim.objects import Terrain
from embodichain.utils import ConfigError
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.scene_files import RAIL, rail_env, rail_file
from tests.lab.scenes import env_of
from tests.lab.terrain_scenes import ball_env
from tests.lab.warp_scenes import needs_warp


def pushed(env: SceneEnv, obs: Any, action: Any, info: Any) -> Tensor:
    """A user's reward: the cart's velocity."""
    return env.qvel[:, 0].float()


@pytest.fixture
def own_task(tmp_path: Path) -> Iterator[str]:
    @register_env("OwnSceneRL", 3, override=True, default_cfg=lambda: config_to_cfg({"id": "OwnSceneRL"}))
    class OwnScene(SceneEnv):
        config_defaults = {**SceneEnv.config_defaults, "scene": rail_file(tmp_path)}
        reset_noise_scale = 0.1

        def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
            return self.qvel[:, 0].float()

    yield "OwnSceneRL"
    del registration._REGISTRY["OwnSceneRL"]


def test_the_action_is_the_actuators_control(tmp_path: Path) -> None:
    env = rail_env(tmp_path)
    env.reset()
    env.step(torch.tensor([[0.5], [5.0]]))  # the second is clipped to 1
    # 4 N per unit of control on 2 kg, four substeps of 0.005 s (Euler): v = 4 * 0.005 * 2 * control.
    assert env.sim.backend.ctrl.tolist() == [[0.5], [1.0]]
    assert env.qvel[:, 0].tolist() == pytest.approx([0.02, 0.04], rel=1e-4)
    assert env.single_action_space.low.tolist() == [-0.5]
    assert env.single_action_space.high.tolist() == [1.0]


def test_an_actuator_without_a_range_takes_any_action(tmp_path: Path) -> None:
    env = rail_env(tmp_path, text=RAIL.replace('ctrllimited="true" ctrlrange="-0.5 1"', ""))
    env.reset()
    env.step(torch.tensor([[0.5], [50.0]]))
    assert env.sim.backend.ctrl.tolist() == [[0.5], [50.0]]


def test_physics_equals_mujocos_on_the_file_bit_for_bit(tmp_path: Path) -> None:
    env = rail_env(tmp_path)
    env.reset()
    model = mujoco.MjModel.from_xml_string(RAIL)
    data = mujoco.MjData(model)
    for control in (1.0, -0.5, 0.25):
        env.step(torch.full((2, 1), control))
        data.ctrl[:] = control
        mujoco.mj_step(model, data, nstep=4)
    assert env.qpos[0].tolist() == data.qpos.tolist()
    assert env.qvel[1].tolist() == data.qvel.tolist()


def test_a_task_is_a_class_with_a_file_and_a_reward(own_task: str) -> None:
    env = make(own_task, num_envs=2)
    env.reset()
    _, reward, _, truncated, _ = env.step(torch.ones(2, 1))
    assert torch.equal(reward, env.qvel[:, 0].float())
    assert not truncated.any()
    assert env.step(torch.ones(2, 1))[3].tolist() == [False, False]
    assert env.step(torch.ones(2, 1))[3].tolist() == [True, True]  # three steps


def test_a_task_is_a_config_with_a_file_and_terms(tmp_path: Path) -> None:
    terms = {"push": {"func": f"{__name__}.pushed", "weight": 2.0}}
    data = {"id": "SceneRL", "scene": rail_file(tmp_path), "env": {"rewards": terms}}
    env = SceneEnv(config_to_cfg(data, allowed_imports=[__name__]))
    env.reset()
    _, reward, _, _, _ = env.step(torch.ones(1, 1))
    assert reward.item() == pytest.approx(2 * 0.04, rel=1e-4)


def test_first_states_are_the_files_with_noise(tmp_path: Path) -> None:
    text = RAIL.replace("</mujoco>", '<keyframe><key qpos="1 2" qvel="3 4"/></keyframe></mujoco>')
    env = rail_env(tmp_path, 200, text, env={"extensions": {"reset_noise_scale": 0.1}})
    env.reset()
    noise = torch.cat((env.qpos - torch.tensor([1.0, 2.0]), env.qvel - torch.tensor([3.0, 4.0])), dim=1)
    # 200 numbers uniform in [-0.1, 0.1): the mean is within 4 std / sqrt(200) = 4 * 0.0577 / 14.1 of 0.
    assert (noise.abs() <= 0.1).all()
    assert (noise.mean(dim=0).abs() < 0.0164).all()
    assert (noise.amax(dim=0) > 0.09).all()


def test_a_partial_reset_changes_its_own_rows_alone(own_task: str) -> None:
    env = make(own_task, num_envs=3)
    env.reset()
    env.step(torch.ones(3, 1))
    before = env.get_obs()
    obs, _ = env.reset(options={"reset_ids": [1]})
    changed = {name: (obs[name] != before[name]).any(dim=1).tolist() for name in ("qpos", "qvel")}
    assert set(map(tuple, changed.values())) == {(False, True, False)}


def test_scene_continues_bit_for_bit_from_a_checkpoint(own_task: str) -> None:
    assert_goes_on(lambda: make(own_task, num_envs=3))


def test_the_default_camera_follows_the_body_that_moves(tmp_path: Path) -> None:
    env = rail_env(tmp_path)
    assert env.followed_uid == "cart"
    assert env.sim.get_body("cart").get_local_pose().tolist() == [[0, 0, 1, 1, 0, 0, 0]] * 2


def test_bodies_can_be_observed_by_their_names(tmp_path: Path) -> None:
    term = {"func": "get_object_pose", "params": {"entity_cfg": {"uid": "pendulum"}, "to_matrix": False}}
    env = rail_env(tmp_path, env={"observations": {"pendulum": term}})
    assert env.reset()[0]["pendulum"].tolist() == [[0, 0, 1, 1, 0, 0, 0]] * 2


def test_a_term_about_a_robot_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^SceneEnv: the scene of a file has no robot") as error:
        rail_env(tmp_path, env={"observations": {"joints": {"func": "joint_pos_rel"}}})
    assert "\n" not in str(error.value)


def test_a_config_of_a_scene_survives_its_file(tmp_path: Path) -> None:
    env = rail_env(tmp_path, env={"sim_steps_per_control": 7})
    again = env_of(env.config_data(), 2)
    assert again.cfg == env.cfg


START = torch.tensor([0.0, 0.1, 0.2])


def terrain_of(env: EmbodiedEnv) -> Terrain:
    assert env.sim.terrain is not None
    return env.sim.terrain


def position(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_local_pose()[:, :3]


@pytest.fixture
def env(tmp_path: Path) -> EmbodiedEnv:
    return ball_env(tmp_path)


def test_robots_start_on_the_platforms_of_their_cells(env: EmbodiedEnv) -> None:
    env.reset()
    terrain = terrain_of(env)
    assert len(terrain.levels.unique()) > 1
    torch.testing.assert_close(position(env), terrain.env_origins + START)
    for _ in range(40):
        env.step(torch.zeros(8, 1))
    height = position(env)[:, 2] - terrain.height_at(position(env)[:, :2])
    torch.testing.assert_close(height, torch.full((8,), 0.1), atol=2e-3, rtol=0.0)  # the ball's radius


def test_a_reset_moves_only_its_environments_and_no_other(env: EmbodiedEnv) -> None:
    env.reset()
    terrain = terrain_of(env)
    pose = env.robot.get_local_pose().clone()
    pose[:, 0] += torch.arange(8.0) / 10
    env.robot.set_local_pose(pose, env.all_env_ids)
    terrain.levels = terrain.levels * 0 + 1  # as a curriculum does: the next episodes begin there
    before = position(env).clone()
    env.reset(options={"reset_ids": [5]})
    torch.testing.assert_close(position(env)[5], terrain.origins[1, terrain.columns[5]] + START)
    others = [0, 1, 2, 3, 4, 6, 7]
    torch.testing.assert_close(position(env)[others], before[others], rtol=0.0, atol=0.0)
    env.reset(seed=3, options={"reset_ids": [5]})
    torch.testing.assert_close(position(env)[others], before[others], rtol=0.0, atol=0.0)


def test_distance_walked_is_from_the_start_of_the_episode(env: EmbodiedEnv) -> None:
    env.reset()
    assert not terrain_of(env).distance_walked(env.robot.base).any()
    pose = env.robot.get_local_pose().clone()
    pose[3, 0] += 3.0
    pose[3, 1] -= 4.0
    env.robot.set_local_pose(pose, env.all_env_ids)
    walked = terrain_of(env).distance_walked(env.robot.base)
    assert walked[3] == pytest.approx(5.0, rel=1e-5)
    assert not walked[[0, 1, 2, 4, 5, 6, 7]].any()


def test_start_moved_by_an_event_is_no_way_walked(tmp_path: Path) -> None:
    events = {"place": {"func": "randomize_base_pose", "params": {"position_range": [[1.6, 1.6, 0], [1.6, 1.6, 0]]}}}
    env = ball_env(tmp_path, {"events": events})
    env.reset(seed=1)
    assert (position(env)[:, :2] - terrain_of(env).env_origins[:, :2]).abs().min() > 1.0
    assert not terrain_of(env).distance_walked(env.robot.base).any()


def test_event_draws_nothing_that_the_scene_draws(tmp_path: Path) -> None:
    drawn: list[Tensor] = []

    def terrain(env: Any, env_ids: Tensor) -> None:
        drawn.append(env.random.uniform(env_ids, 0.0, 1.0, 1)[:, 0])

    env = ball_env(tmp_path, num_envs=64)
    env.reset(seed=5)
    env.event_manager.add({"terrain": EventCfg(terrain, mode="reset")})
    terrain_of(env).assign(env.random, env.all_env_ids)
    env.event_manager.apply("reset", env.all_env_ids)
    levels = terrain_of(env).cfg.num_levels
    assert not torch.equal((drawn[0] * levels).long(), terrain_of(env).levels)


def test_start_cells_depend_on_the_seed_not_on_num_envs(tmp_path: Path) -> None:
    small, large = ball_env(tmp_path, num_envs=3), ball_env(tmp_path, num_envs=6)
    for env in (small, large):
        env.reset(seed=5)
    torch.testing.assert_close(position(small), position(large)[:3], rtol=0.0, atol=0.0)
    first = terrain_of(large).levels.clone()
    terrain_of(large).levels = torch.zeros_like(first)
    large.reset(seed=5)
    assert terrain_of(large).levels.tolist() == first.tolist()


def test_cells_of_an_evaluation_do_not_depend_on_num_envs(tmp_path: Path) -> None:
    options = {"enumerate_episodes": True}
    one, three = ball_env(tmp_path, num_envs=1), ball_env(tmp_path, num_envs=3)
    three.reset(seed=5, options=options)
    starts = []
    one.reset(seed=5, options=options)
    for _ in range(3):
        starts.append(position(one)[0].clone())
        one.reset(options={"reset_ids": [0]})
    torch.testing.assert_close(torch.stack(starts), position(three), rtol=0.0, atol=0.0)


def test_other_processes_have_other_columns(env: EmbodiedEnv) -> None:
    env.number_envs(first_env_id=3, group_size=1)
    assert terrain_of(env).columns.tolist() == [(3 + i) % 2 for i in range(8)]


@pytest.mark.e2e
@needs_warp
def test_warp_walks_the_same_ground(tmp_path: Path) -> None:
    sim_cfg = {"sim_cfg": {"sim_device": "warp:cpu", "physics_dt": 0.01}}
    warp, batch = ball_env(tmp_path, sim_cfg, num_envs=4), ball_env(tmp_path, num_envs=4)
    for env in (warp, batch):
        env.reset()
        for _ in range(30):
            env.step(torch.zeros(4, 1))
    assert terrain_of(warp).levels.tolist() == terrain_of(batch).levels.tolist()
    # The engines' solvers differ by tenths of a millimetre.
    torch.testing.assert_close(position(warp), position(batch), atol=1e-3, rtol=0.0)
    with warp.choose(torch.tensor([False, True, False, False])) as ids:
        terrain_of(warp).move(ids, torch.ones(4).bool(), torch.zeros(4).bool(), torch.zeros(4))
        warp._reset_episodes(ids)
    levels = terrain_of(batch).levels.tolist()
    expected = [(level + 1) % 3 if i == 1 else level for i, level in enumerate(levels)]
    assert terrain_of(warp).levels.tolist() == expected
