"""MicroDuck's tasks: the layout of its observation, and what counts as success."""

from typing import Any

import pytest
import torch

from embodichain.agents.rl.models.networks import group_entries
from embodichain.agents.rl.models.policy import PolicyCfg
from embodichain.agents.rl.run_config import load_run_config
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.managers import state_values
from embodichain.lab.gym.envs.tasks.rl import MicroDuckEnv, MicroDuckStandUpEnv, build_env
from embodichain.lab.sim.math import quat_from_euler
from embodichain.utils import replace
from embodichain.utils.observations import entry_columns, flatten_dict_observation
from embodichain.utils.utility import load_json
from tests.shipped import REPOSITORY

CONFIGS = REPOSITORY / "configs/agents/rl"
# Published layout: entry, size.
LAYOUT = {"ang_vel": 3, "gravity": 3, "joint_pos": 14, "joint_vel": 14, "action": 14, "twist": 3, "head": 4, "body": 6}


def duck(name: str, num_envs: int = 2, kinds: list[Any] | None = None, **env: Any) -> Any:
    data = load_json(CONFIGS / f"microduck_{name}/gym_config.json")
    data["env"] |= env
    if kinds is not None:
        data["terrain"]["kinds"] = kinds
    cfg = replace(config_to_cfg(data), num_envs=num_envs, seed=1)
    return build_env(data["id"], base_env_cfg=cfg)


@pytest.mark.parametrize("name", ["flat", "rough", "stand_up"])
def test_policy_sees_61_numbers_in_the_published_order(name: str) -> None:
    env = duck(name)
    obs, _ = env.reset(seed=1)
    columns = {
        key: part for key, part in entry_columns(env.single_observation_space).items() if key.startswith("policy/")
    }
    names = [key.partition("_")[2] for key in columns]
    assert dict(zip(names, (part.stop - part.start for part in columns.values()), strict=True)) == LAYOUT
    assert [part.start for part in columns.values()] == [0, 3, 6, 20, 34, 48, 51, 55]
    cfg = load_run_config(str(CONFIGS / f"microduck_{name}/train_config_quickstart.json")).policy
    assert isinstance(cfg, PolicyCfg)
    assert list(group_entries(cfg.obs_groups, "actor", env.single_observation_space)) == list(columns)
    assert env.single_action_space.shape == (14,)
    assert torch.isfinite(obs["policy"]["6_twist"]).all()


def test_head_and_body_commands_keep_a_small_range() -> None:
    env = duck("stand_up", 64)
    obs, _ = env.reset(seed=1)
    for name in ("6_twist", "7_head", "8_body"):
        assert (obs["policy"][name].std(dim=0) > 0.0).all()
        assert (obs["policy"][name].abs() <= 0.07).all()


@pytest.fixture
def walker() -> MicroDuckEnv:
    env = duck("flat", events={})
    env.reset(seed=1)
    assert isinstance(env, MicroDuckEnv)
    env.command_manager.get_term("base_velocity").hold([0.12, 0.0, 0.0])
    return env


def go(env: MicroDuckEnv, speed: float, steps: int) -> dict[str, Any]:
    """Hold the base at a speed forwards after each step, and return the last ``info``."""
    velocity = torch.tensor([[speed, 0.0, 0.0, 0.0, 0.0, 0.0]]).expand(2, 6)
    for _ in range(steps):
        env.sim.reset(env.all_env_ids)
        env.robot.base.set_velocity(velocity, env.all_env_ids)
        env._update_sim_state()
        env.elapsed_steps = env.elapsed_steps + 1
    return env.get_info()


def test_standing_still_under_a_command_is_no_success(walker: MicroDuckEnv) -> None:
    # 0.12 m/s for 0.8 s is less than 0.1 m, from which on standing still counts; its error is within 0.15 m/s.
    info = go(walker, 0.0, 40)
    assert info["metrics"]["standing_rate"].tolist() == [0.0, 0.0]
    assert info["success"].all()
    info = go(walker, 0.0, 10)
    assert info["metrics"]["standing_rate"].tolist() == [1.0, 1.0]
    assert not info["success"].any()


def test_half_of_the_commanded_way_is_progress_enough(walker: MicroDuckEnv) -> None:
    info = go(walker, 0.07, 50)
    assert info["metrics"]["standing_rate"].tolist() == [0.0, 0.0]
    assert info["success"].all()
    assert go(walker, -0.12, 25)["metrics"]["standing_rate"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("pitch", "height", "expected"), [(0.2, 0.12, True), (0.3, 0.12, False), (0.2, 0.09, False)])
def test_standing_is_upright_and_high(
    pitch: float, height: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = duck("stand_up", events={})
    assert isinstance(env, MicroDuckStandUpEnv)
    env.reset(seed=1)
    turn = quat_from_euler(torch.tensor([[0.0, pitch, 0.0]] * 2))
    env.robot.base.set(torch.cat((torch.tensor([[0.0, 0.0, height]] * 2), turn), dim=1), env.all_env_ids)
    info = env.get_info()
    assert info["success"].tolist() == [expected] * 2
    torch.testing.assert_close(info["metrics"]["lean"], torch.full((2,), pitch), atol=1e-3, rtol=0.0)
    monkeypatch.setattr(state_values, "ground_height", lambda env, xy: torch.full_like(xy[:, 0], 0.05))
    torch.testing.assert_close(env.get_info()["metrics"]["height"], torch.full((2,), height - 0.05))


def test_stand_up_starts_in_any_pose() -> None:
    env = duck("stand_up", 128)
    env.reset(seed=1)
    down = env.robot.base.projected_gravity()[:, 2]
    assert (down > 0.5).any()
    assert (down < -0.5).any()
    for _ in range(3):
        obs, *_ = env.step(torch.zeros(128, 14))
    assert torch.isfinite(obs["policy"]["4_joint_vel"]).all()


def test_walking_duck_and_its_map_are_mirror_images() -> None:
    data = load_json(CONFIGS / "microduck_flat/gym_config.json")["env"]["observations"]
    plain = {name: term for name, term in data.items() if term.get("mode") != "modify"}
    env = duck("flat", events={}, observations=plain)
    env.reset(seed=1)
    image, backend = env.mirror_map(), env.sim.backend
    for name, signs in (("base_velocity", [1, -1, -1]), ("head", [1, 1, -1, -1]), ("body", [1, -1, 1, -1, 1, -1])):
        term = env.command_manager.get_term(name)
        term.command = torch.stack((term.command[0], term.command[0] * torch.tensor(signs)))
    qpos = backend.qpos[:1].clone()
    qpos[:, 7:] += 0.1 * torch.randn(1, 14, generator=torch.Generator().manual_seed(0))
    backend.write("qpos", slice(7, 21), torch.cat((qpos[:, 7:], image.action(qpos[:, 7:]))), env.all_env_ids)
    for step in range(10):
        action = torch.rand(1, 14, generator=torch.Generator().manual_seed(step)) - 0.5
        obs, _, _, _, info = env.step(torch.cat((action, image.action(action))))
        flat = flatten_dict_observation(obs)
        # The head's centre of mass is 1.2 mm to its left; a wrong sign is an error of some rad/s.
        torch.testing.assert_close(image.obs(flat[:1]), flat[1:], atol=0.15, rtol=0.0)
        for name in info["rewards"]:
            torch.testing.assert_close(*info["rewards"][name], atol=0.02, rtol=0.0)
    assert flat[0, 20:34].abs().max() > 1.5  # rad/s, of the joints


def test_other_tasks_have_the_map_and_rough_ground_a_scan() -> None:
    names = ("flat", "rough", "stand_up")
    walking, rough, standing = (load_json(CONFIGS / f"microduck_{name}/gym_config.json")["env"] for name in names)
    del rough["symmetry"]["observations"]["true/scan"]
    assert rough["symmetry"] == standing["symmetry"] == walking["symmetry"]
    # Both sides of a pyramid are mirror images.
    env = duck("rough", kinds=[{"kind": "slope", "incline": [0.1, 0.1]}], events={})
    env.reset(seed=1)
    pose = env.robot.base.get()[:1].expand(2, -1).clone()
    pose[:, :3] += torch.tensor([[0.3, 0.7, 0.1], [0.3, -0.7, 0.1]])
    env.robot.base.set(pose, env.all_env_ids)
    scan = entry_columns(env.single_observation_space)["true/scan"]
    flat = flatten_dict_observation(env.get_obs())
    torch.testing.assert_close(env.mirror_map().obs(flat[:1])[:, scan], flat[1:, scan])
    assert flat[0, scan].unflatten(0, (7, 5)).std(dim=1).min() > 0.005  # m, along y
