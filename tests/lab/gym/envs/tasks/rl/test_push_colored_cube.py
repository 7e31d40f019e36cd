"""Shapes: N environments, C cubes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl import PushColoredCubeEnv
from embodichain.utils import ConfigError
from embodichain.utils.instructions import decode_instruction
from embodichain.utils.utility import load_json
from tests.lab.scenes import env_of

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/push_colored_cube/gym_config.json"

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")


def make(num_envs: int, sensor: Any = (), group_size: int = 1, **extensions: Any) -> PushColoredCubeEnv:
    config = load_json(CONFIG) | {"sensor": list(sensor)}
    config["env"]["extensions"] |= extensions
    env = env_of(config, num_envs, group_size=group_size)
    assert isinstance(env, PushColoredCubeEnv)
    return env


@pytest.fixture(scope="module")
def env() -> PushColoredCubeEnv:
    return make(2)


def move(env: PushColoredCubeEnv, cube: int, shifts: list[list[float]]) -> None:
    """Put a cube beside where it began, by x and y of each environment, m."""
    pose = env.cubes[cube].get_local_pose(to_matrix=False).clone()
    pose[:, :2] = env._begun[:, cube] + torch.tensor(shifts)
    env.cubes[cube].set_local_pose(pose)


def test_named_cube_that_is_far_enough_is_success(env: PushColoredCubeEnv) -> None:
    env.reset(seed=1)
    env.named = torch.tensor([1, 2])
    move(env, 1, [[-0.08, 0.061], [0.0, 0.02]])  # 0.1006 m where it is named, 0.02 m where it is not
    move(env, 2, [[0.0, 0.0], [-0.099, 0.0]])
    success, fail, metrics = env.compute_task_state()
    assert success.tolist() == [True, False]
    assert fail.tolist() == [False, False]
    torch.testing.assert_close(metrics["pushed"], torch.tensor([0.1006, 0.099]), atol=1e-4, rtol=0)
    torch.testing.assert_close(metrics["disturbed"], torch.tensor([0.0, 0.02]), atol=1e-5, rtol=0)


def test_another_cube_that_moves_is_failure(env: PushColoredCubeEnv) -> None:
    env.reset(seed=1)
    env.named = torch.tensor([0, 0])
    move(env, 0, [[-0.12, 0.0], [-0.12, 0.0]])
    move(env, 2, [[0.031, 0.0], [0.029, 0.0]])
    success, fail, _ = env.compute_task_state()
    assert (success.tolist(), fail.tolist()) == ([False, True], [True, False])


def test_reward_is_the_steps_push_of_the_named_cube(env: PushColoredCubeEnv) -> None:
    obs, _ = env.reset(seed=1)
    env.named = torch.tensor([0, 0])
    rewards = []
    for push in ([[-0.05, 0.0]] * 2, [[-0.2, 0.0], [-0.02, 0.0]]):
        move(env, 0, push)
        move(env, 1, [[0.02, 0.0]] * 2)  # of no account
        info = env.get_info() | {"success": torch.tensor([False, False])}
        rewards.append(env.get_reward(obs, torch.zeros(2, 2), info))
    # 0.05 / 0.1; then up to 0.1, or back by 0.03
    torch.testing.assert_close(rewards[0], torch.tensor([0.5, 0.5]), atol=1e-4, rtol=0)
    torch.testing.assert_close(rewards[1], torch.tensor([0.5, -0.3]), atol=1e-4, rtol=0)


def test_colours_places_and_instructions_are_drawn() -> None:
    env = make(64)
    env.reset(seed=1)
    y = torch.stack([cube.pos[:, 1] for cube in env.cubes], dim=1)
    assert len({tuple(row) for row in y.argsort(dim=1).tolist()}) == 6
    assert set(env.named.tolist()) == {0, 1, 2}
    # places 0.15 m apart, each cube within 0.03 m of its own
    gaps = y.sort(dim=1).values.diff(dim=1)
    assert gaps.min() > 0.15 - 0.06 - 1e-6
    assert gaps.max() < 0.15 + 0.06 + 1e-6
    assert env.instructions()[0] == f"push the {('red', 'green', 'blue')[int(env.named[0])]} cube"


def test_single_cube_stands_around_the_middle() -> None:
    env = make(64, colours=["green"], jitter=[0.03, 0.2])
    env.reset(seed=1)
    (cube,) = env.cubes
    aside = cube.pos[:, 1] + 0.164  # from the middle of the places
    assert aside.abs().max() <= 0.2 + 1e-6
    assert aside.min() < -0.15
    assert aside.max() > 0.15
    assert env.instructions() == ["push the green cube"] * 64
    move(env, 0, [[-0.101, 0.0]] * 64)
    success, fail, metrics = env.compute_task_state()
    assert success.all()
    assert not fail.any()
    assert not metrics["disturbed"].any()


@pytest.mark.parametrize(
    ("colours", "message"),
    [
        ([], r"env\.extensions\.colours: "),
        (["pink"], r"env\.extensions\.colours\[0\]: .*'red', 'green' or 'blue'"),
        (["red", "red"], "uid 'red_cube' is used twice"),
    ],
)
def test_wrong_colours_are_refused(colours: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        make(1, colours=colours)


@needs_gl
def test_observation_is_image_state_and_instruction() -> None:
    env = make(2, load_json(CONFIG)["sensor"])
    obs, _ = env.reset(seed=2)
    assert obs["image", "front"].shape == (2, 64, 64, 3)
    assert obs["image", "front"].dtype == torch.uint8
    assert "sensor" not in obs.keys()  # noqa: SIM118 (a TensorDict, not a dict)
    assert [decode_instruction(row) for row in obs["instruction"]] == env.instructions()
    state = torch.cat((env.robot.get_qpos("arm"), env.robot.get_eef_pose()[:, :3, 3]), dim=1)
    assert torch.equal(obs["state"], state)
    # all three colours are in the picture
    red, green, blue = obs["image", "front"].float().unbind(-1)
    for one, two, three in ((red, green, blue), (green, red, blue), (blue, red, green)):
        assert ((one > 1.6 * two) & (one > 1.6 * three)).flatten(1).sum(1).min() >= 4


@pytest.mark.parametrize("extensions", [{}, {"colours": ["red"], "jitter": [0.03, 0.2]}])
def test_scripted_expert_solves_at_least_nine_episodes_in_ten(extensions: dict[str, Any]) -> None:
    env = make(64, **extensions)
    env.reset(seed=3)
    over = torch.zeros(64, dtype=torch.bool)
    solved = torch.zeros(64, dtype=torch.bool)
    while not over.all():
        _, _, terminated, truncated, info = env.step(env.expert_action())
        done = (terminated | truncated) & ~over
        solved |= done & info["success"]
        over |= done
    assert solved.float().mean() >= 0.9
