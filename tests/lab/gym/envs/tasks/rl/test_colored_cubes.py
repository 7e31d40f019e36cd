"""Shapes: N = 2 environments, whose cubes and tools are set by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs.tasks.rl import ManipulateCubesEnv, PushColoredCubeEnv
from embodichain.lab.gym.utils.instructions import decode_instruction
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.lab.scenes import aim, env_of, needs_gl, solved_by_the_expert

CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/manipulate_cubes/gym_config.json"
REACH, PUSH, LIFT = range(3)
# A finger's way to the cube: (stroke 0.08 - edge 0.05) / 2 = 0.015; half a millimetre further it presses.
PRESSING = 0.0155


def make(num_envs: int, sensor: Any = (), **changed: Any) -> ManipulateCubesEnv:
    data = load_json(CONFIG) | {"sensor": list(sensor)}
    data["env"] |= changed
    env = env_of(data, num_envs)
    assert isinstance(env, ManipulateCubesEnv)
    return env


@pytest.fixture(scope="module")
def built() -> ManipulateCubesEnv:
    return make(2)


@pytest.fixture
def env(built: ManipulateCubesEnv) -> ManipulateCubesEnv:
    built.reset(seed=1)
    return built


def ask(env: ManipulateCubesEnv, skill: list[int], named: list[int]) -> None:
    env.skill, env.named = torch.tensor(skill), torch.tensor(named)


def move(env: ManipulateCubesEnv, cube: int, shifts: list[list[float]]) -> None:
    """Put a cube beside where it lay at the start, by x, y and z of each environment, m."""
    pose = env.cubes[cube].get_local_pose(to_matrix=False).clone()
    start = torch.cat((env._begun[:, cube], torch.full((2, 1), 0.025)), dim=1)
    pose[:, :3] = start + torch.tensor(shifts)
    env.cubes[cube].set_local_pose(pose)


def grip(env: ManipulateCubesEnv, cube: int, height: float) -> None:
    """Put a cube of both environments into the closed gripper at this height."""
    aim(env, [-0.7, 0.0, height])
    pose = env.cubes[cube].get_local_pose(to_matrix=False).clone()
    pose[:, :3] = env.robot.get_eef_pose()[:, :3, 3]
    env.cubes[cube].set_local_pose(pose)
    env.robot.set_qpos(torch.full((2, 2), PRESSING), name="hand", target=False)
    env.robot.set_qpos(torch.full((2, 2), 0.04), name="hand")


def stay(env: ManipulateCubesEnv, steps: int) -> tuple[list[bool], list[bool]]:
    """Let steps pass in which nothing moves, and return success and failure."""
    for _ in range(steps):
        env._update_sim_state()
    success, fail, _ = env.compute_task_state()
    return success.tolist(), fail.tolist()


def above(env: ManipulateCubesEnv, cube: int) -> Tensor:
    """Return the place above a cube where the tool reaches it, [N, 3]."""
    return env.cubes[cube].pos + torch.tensor([0.0, 0.0, 0.055])


def test_tool_that_stays_above_the_named_cube_has_reached_it(env: ManipulateCubesEnv) -> None:
    ask(env, [REACH, REACH], [1, 1])
    aim(env, above(env, 1) + torch.tensor([[0.0, 0.0, 0.019], [0.0, 0.0, 0.021]]))
    assert stay(env, 4) == ([False, False], [False, False])
    assert stay(env, 1) == ([True, False], [False, False])


def test_tool_that_stays_above_another_cube_has_failed_to_reach(env: ManipulateCubesEnv) -> None:
    ask(env, [REACH, PUSH], [1, 1])
    aim(env, above(env, 2))
    assert stay(env, 4)[1] == [False, False]
    assert stay(env, 1) == ([False, False], [True, False])  # on its way to a push it may


def test_named_cube_that_is_far_enough_is_pushed(env: ManipulateCubesEnv) -> None:
    ask(env, [PUSH, PUSH], [0, 0])
    move(env, 0, [[-0.08, 0.061, 0.0], [-0.099, 0.0, 0.0]])  # 0.1006 m
    assert stay(env, 1) == ([True, False], [False, False])


def test_cube_that_is_held_high_is_lifted(env: ManipulateCubesEnv) -> None:
    ask(env, [LIFT, LIFT], [2, 2])
    grip(env, 2, 0.13)
    assert stay(env, 4) == ([False, False], [False, False])
    assert stay(env, 1) == ([True, True], [False, False])


def test_cube_that_is_high_but_not_gripped_is_not_lifted(env: ManipulateCubesEnv) -> None:
    ask(env, [LIFT, LIFT], [2, 2])
    move(env, 2, [[0.0, 0.0, 0.2]] * 2)
    assert stay(env, 6)[0] == [False, False]


def test_another_cube_that_is_lifted_is_failure(env: ManipulateCubesEnv) -> None:
    ask(env, [LIFT, LIFT], [0, 2])
    grip(env, 2, 0.13)
    assert stay(env, 5) == ([False, True], [True, False])


def test_carried_cube_is_not_pushed(env: ManipulateCubesEnv) -> None:
    ask(env, [PUSH, PUSH], [2, 2])
    move(env, 2, [[-0.2, 0.0, 0.031], [-0.2, 0.0, 0.0]])
    assert stay(env, 1) == ([False, True], [True, False])


@pytest.mark.parametrize("skill", [REACH, PUSH, LIFT])
def test_another_cube_that_moves_is_failure(env: ManipulateCubesEnv, skill: int) -> None:
    ask(env, [skill, skill], [0, 0])
    move(env, 1, [[0.0, 0.031, 0.0], [0.0, 0.029, 0.0]])
    assert stay(env, 1)[1] == [True, False]


def test_cube_that_is_to_be_reached_is_to_stay(env: ManipulateCubesEnv) -> None:
    ask(env, [REACH, LIFT], [0, 0])
    move(env, 0, [[0.031, 0.0, 0.0]] * 2)
    assert stay(env, 1)[1] == [True, False]


def test_metrics_tell_the_success_of_each_skill(env: ManipulateCubesEnv) -> None:
    ask(env, [PUSH, LIFT], [0, 0])
    move(env, 0, [[-0.12, 0.0, 0.0]] * 2)
    _, _, metrics = env.compute_task_state()
    flags = {name: values.tolist() for name, values in metrics.items() if values.dtype == torch.bool}
    assert flags == {
        "reach_asked": [False, False],
        "reach_success": [False, False],
        "push_asked": [True, False],
        "push_success": [True, False],
        "lift_asked": [False, True],
        "lift_success": [False, False],
    }
    assert metrics["pushed"].tolist() == pytest.approx([0.12, 0.12], abs=1e-5)


def progress(env: ManipulateCubesEnv) -> list[float]:
    values: list[float] = env.progress().tolist()
    return values


def test_progress_is_nearness_and_what_is_done(env: ManipulateCubesEnv) -> None:
    ask(env, [REACH, PUSH], [0, 0])
    place = above(env, 0) + torch.tensor([[0.0, 0.0, 0.01], [0.0, 0.0, 0.045]])  # 0.01 m, and 0.1 m from the cube
    aim(env, place)
    near = [0.3 * (1 - math.tanh(5 * distance)) for distance in (0.01, 0.1)]
    assert progress(env) == pytest.approx(near, abs=2e-3)
    stay(env, 2)
    assert progress(env) == pytest.approx([near[0] + 0.7 * 2 / 5, near[1]], abs=2e-3)
    move(env, 0, [[0.0, 0.0, 0.0], [-0.05, 0.0, 0.0]])
    further = 0.3 * (1 - math.tanh(5 * math.hypot(0.05, 0.1)))
    assert progress(env)[1] == pytest.approx(further + 0.7 * 0.5, abs=2e-3)


def test_progress_of_lifting_is_the_grip_and_the_height(env: ManipulateCubesEnv) -> None:
    ask(env, [LIFT, LIFT], [1, 0])
    grip(env, 1, 0.0725)  # risen by 0.0475 of 0.095
    named, other = progress(env)
    assert named == pytest.approx(0.3 + 0.7 * 0.75, abs=5e-3)
    assert other < 0.3  # what the fingers grip is not the named cube


def test_reward_is_what_a_step_added_to_the_progress(env: ManipulateCubesEnv) -> None:
    before = env.progress()
    total = torch.zeros(2)
    for _ in range(3):
        _, reward, *_, info = env.step(env.expert_action())
        torch.testing.assert_close(info["rewards"]["progress"], reward)
        total += reward
    torch.testing.assert_close(total, env.progress() - before, atol=1e-6, rtol=0)
    assert (total > 0.02).all()


def test_instructions_name_each_skill_and_each_colour() -> None:
    env = make(64)
    env.reset(seed=1)
    expected = {f"{skill} the {colour} cube" for skill in env.skills for colour in ("red", "green", "blue")}
    assert set(env.instructions()) == expected
    i = env.instructions().index("lift the blue cube")
    assert (env.skill[i].item(), env.named[i].item()) == (LIFT, 2)


@pytest.mark.e2e
@needs_gl
def test_observation_has_two_images_state_and_instruction() -> None:
    env = make(2, load_json(CONFIG)["sensor"])
    obs, _ = env.reset(seed=2)
    # the front camera sees all cubes, the one at the wrist at least one
    for camera, least in (("front", 3), ("wrist", 1)):
        assert obs["image", camera].shape == (2, 64, 64, 3)
        assert obs["image", camera].dtype == torch.uint8
        red, green, blue = obs["image", camera].float().unbind(-1)
        pairs = ((red, green, blue), (green, red, blue), (blue, red, green))
        pixels = torch.stack([((one > 1.6 * two) & (one > 1.6 * three)).flatten(1).sum(1) for one, two, three in pairs])
        assert ((pixels >= 4).sum(0) >= least).all()
    assert [decode_instruction(row) for row in obs["instruction"]] == env.instructions()
    assert obs["state"].shape == (2, 9)


def test_scripted_expert_solves_every_skill() -> None:
    env = make(60)
    env.reset(seed=3)
    skill = env.skill.clone()
    solved = solved_by_the_expert(env)
    for number in (REACH, PUSH, LIFT):
        assert (skill == number).sum() >= 10
        assert solved[skill == number].float().mean() >= 0.95


def test_expert_needs_the_terms_that_it_acts_by() -> None:
    env = make(1, actions={"arm": {"func": "QposTerm", "params": {"part_name": "arm"}}})
    env.reset()
    with pytest.raises(ConfigError, match=r"^env\.actions: the scripted expert acts by EefPositionTerm, got QposTerm$"):
        env.expert_action()


PUSH_CONFIG = Path(__file__).resolve().parents[6] / "configs/agents/rl/push_colored_cube/gym_config.json"


def push_make(num_envs: int, sensor: Any = (), group_size: int = 1, **extensions: Any) -> PushColoredCubeEnv:
    config = load_json(PUSH_CONFIG) | {"sensor": list(sensor)}
    config["env"]["extensions"] |= extensions
    push = env_of(config, num_envs, group_size=group_size)
    assert isinstance(push, PushColoredCubeEnv)
    return push


@pytest.fixture(scope="module")
def push() -> PushColoredCubeEnv:
    return push_make(2)


def shift(push: PushColoredCubeEnv, cube: int, shifts: list[list[float]]) -> None:
    """Put a cube beside where it began, by x and y of each environment, m."""
    pose = push.cubes[cube].get_local_pose(to_matrix=False).clone()
    pose[:, :2] = push._begun[:, cube] + torch.tensor(shifts)
    push.cubes[cube].set_local_pose(pose)


def test_named_cube_that_is_far_enough_is_success(push: PushColoredCubeEnv) -> None:
    push.reset(seed=1)
    push.named = torch.tensor([1, 2])
    shift(push, 1, [[-0.08, 0.061], [0.0, 0.02]])  # 0.1006 m where it is named, 0.02 m where it is not
    shift(push, 2, [[0.0, 0.0], [-0.099, 0.0]])
    success, fail, metrics = push.compute_task_state()
    assert success.tolist() == [True, False]
    assert fail.tolist() == [False, False]
    torch.testing.assert_close(metrics["pushed"], torch.tensor([0.1006, 0.099]), atol=1e-4, rtol=0)
    torch.testing.assert_close(metrics["disturbed"], torch.tensor([0.0, 0.02]), atol=1e-5, rtol=0)


def test_another_cube_than_the_pushed_one_is_to_stay(push: PushColoredCubeEnv) -> None:
    push.reset(seed=1)
    push.named = torch.tensor([0, 0])
    shift(push, 0, [[-0.12, 0.0], [-0.12, 0.0]])
    shift(push, 2, [[0.031, 0.0], [0.029, 0.0]])
    success, fail, _ = push.compute_task_state()
    assert (success.tolist(), fail.tolist()) == ([False, True], [True, False])


def test_reward_is_the_steps_push_of_the_named_cube(push: PushColoredCubeEnv) -> None:
    obs, _ = push.reset(seed=1)
    push.named = torch.tensor([0, 0])
    rewards = []
    for by in ([[-0.05, 0.0]] * 2, [[-0.2, 0.0], [-0.02, 0.0]]):
        shift(push, 0, by)
        shift(push, 1, [[0.02, 0.0]] * 2)  # of no account
        info = push.get_info() | {"success": torch.tensor([False, False])}
        rewards.append(push.get_reward(obs, torch.zeros(2, 2), info))
    # 0.05 / 0.1; then up to 0.1, or back by 0.03
    torch.testing.assert_close(rewards[0], torch.tensor([0.5, 0.5]), atol=1e-4, rtol=0)
    torch.testing.assert_close(rewards[1], torch.tensor([0.5, -0.3]), atol=1e-4, rtol=0)


def test_colours_places_and_instructions_are_drawn() -> None:
    push = push_make(64)
    push.reset(seed=1)
    y = torch.stack([cube.pos[:, 1] for cube in push.cubes], dim=1)
    assert len({tuple(row) for row in y.argsort(dim=1).tolist()}) == 6
    assert set(push.named.tolist()) == {0, 1, 2}
    # places 0.15 m apart, each cube within 0.03 m of its own
    gaps = y.sort(dim=1).values.diff(dim=1)
    assert gaps.min() > 0.15 - 0.06 - 1e-6
    assert gaps.max() < 0.15 + 0.06 + 1e-6
    assert push.instructions()[0] == f"push the {('red', 'green', 'blue')[int(push.named[0])]} cube"


def test_single_cube_stands_around_the_middle() -> None:
    push = push_make(64, colours=["green"], jitter=[0.03, 0.2])
    push.reset(seed=1)
    (cube,) = push.cubes
    aside = cube.pos[:, 1] + 0.164  # from the middle of the places
    assert aside.abs().max() <= 0.2 + 1e-6
    assert aside.min() < -0.15
    assert aside.max() > 0.15
    assert push.instructions() == ["push the green cube"] * 64
    shift(push, 0, [[-0.101, 0.0]] * 64)
    success, fail, metrics = push.compute_task_state()
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
        push_make(1, colours=colours)


@pytest.mark.parametrize("extensions", [{}, {"colours": ["red"], "jitter": [0.03, 0.2]}])
def test_scripted_expert_solves_at_least_nine_episodes_in_ten(extensions: dict[str, Any]) -> None:
    push = push_make(64, **extensions)
    push.reset(seed=3)
    assert solved_by_the_expert(push).float().mean() >= 0.9
