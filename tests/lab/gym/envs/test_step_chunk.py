"""Several control steps at a time. Shapes: N environments, H actions of a chunk, A action size."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.sim.sensors import Camera
from tests.lab.gym.envs.test_base_env import NEVER, Scripted, leaves, scripted
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import actions_for, cart_cfg, env_of, needs_gl, state

CAMERA = {"uid": "cam", "width": 32, "height": 16, "extrinsics": {"eye": [3, 0, 1], "target": [0, 0, 1]}}
NEAR = {**CAMERA, "width": 64, "height": 64, "intrinsics": [60, 60, 32, 32]}
FLAGS = ("success", "fail", "elapsed_steps")


def assert_same_obs(ours: Any, theirs: Any, rows: slice | int = slice(None)) -> None:
    ours, theirs = leaves(ours), leaves(theirs)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name][rows], value[rows]), name


def test_chunks_of_one_are_steps_to_the_last_bit() -> None:
    one, two = env_of(PUSH_CUBE, 3, max_episode_steps=4), env_of(PUSH_CUBE, 3, max_episode_steps=4)
    for env in (one, two):
        env.reset(seed=1)
    for action in actions_for(one, 10):
        obs, reward, terminated, truncated, info = one.step_chunk(action[:, None])
        expected = two.step(action)
        assert_same_obs(obs, expected[0])
        assert_same_obs(info["final_obs"], expected[4]["final_obs"])
        assert torch.equal(reward[:, 0], expected[1])
        assert torch.equal(terminated, expected[2])
        assert torch.equal(truncated, expected[3])
        for kind in ("rewards", "metrics"):
            assert info[kind].keys() == expected[4][kind].keys()
            assert all(torch.equal(info[kind][name][:, 0], value) for name, value in expected[4][kind].items())
        assert all(torch.equal(info[name], expected[4][name]) for name in FLAGS)
        assert info["executed"].all()
        assert torch.equal(state(one), state(two))


def test_episode_that_ends_within_a_chunk() -> None:
    one, two = scripted(success_at=(2, NEVER)), scripted(success_at=(2, NEVER))
    actions = actions_for(one, 5)
    obs, reward, terminated, truncated, info = one.step_chunk(actions.transpose(0, 1))
    steps = [two.step(action) for action in actions]
    # env 0 makes 2 of 5 steps; the reward is the number of the step
    assert reward.tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 4, 5]]
    assert info["executed"].tolist() == [[True, True, False, False, False], [True] * 5]
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert info["success"].tolist() == [True, False]
    assert info["elapsed_steps"].tolist() == [2, 5]
    assert info["metrics"]["step"].tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 4, 5]]
    # all that is observed of its last state, forces of the drives included
    assert "robot/qf" in leaves(obs)
    assert_same_obs(info["final_obs"], steps[1][4]["final_obs"], 0)
    assert_same_obs(obs, steps[1][0], 0)  # the new episode
    assert one.elapsed_steps.tolist() == [0, 5]
    # and the other has gone on as if alone
    assert_same_obs(obs, steps[4][0], 1)
    assert_same_obs(info["final_obs"], steps[4][0], 1)
    assert torch.equal(one.elapsed_steps[1], two.elapsed_steps[1])


def test_success_within_a_chunk_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    env = scripted(success_at=(2, NEVER))
    monkeypatch.setattr(Scripted, "success_terminates", False)
    *_, info = env.step_chunk(actions_for(env, 4).transpose(0, 1))
    assert info["success"].tolist() == [False, False]
    assert info["success_once"].tolist() == [True, False]


def test_chunk_in_which_all_end_early_ends_there() -> None:
    env = scripted(success_at=(2, NEVER), max_episode_steps=3)
    _, reward, terminated, truncated, info = env.step_chunk(torch.ones(2, 8, 1))
    assert reward.tolist() == [[1, 2, 0, 0, 0, 0, 0, 0], [1, 2, 3, 0, 0, 0, 0, 0]]
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, True])
    assert info["executed"].sum(1).tolist() == [2, 3]
    assert env.elapsed_steps.tolist() == [0, 0]
    assert env.step_chunk(torch.ones(2, 1, 1))[1].tolist() == [[1], [1]]


def test_actions_are_clipped_and_may_be_named() -> None:
    one, two = scripted(), scripted()
    name = one.action_manager.action_type
    one.step_chunk({name: torch.full((2, 3, 1), 9.0)})
    two.step_chunk(np.ones((2, 3, 1)))
    assert torch.equal(state(one), state(two))


def test_wrong_shape_or_chunk_before_a_reset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes actions \[N, H, A\], got shape \[2, 1\]"):
        scripted().step_chunk(torch.zeros(2, 1))
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        Scripted(cart_cfg(2)).step_chunk(torch.zeros(2, 1, 1))


def test_rollout_gets_a_slot_a_chunk() -> None:
    env = scripted(success_at=(3, NEVER))
    flags = {name: torch.zeros(2, 3, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    chunks = {"reward": torch.zeros(2, 3, 2), "executed": torch.zeros(2, 3, 2, dtype=torch.bool)}
    rollout = TensorDict(flags | chunks, batch_size=[2, 3])
    env.set_rollout_buffer(rollout)
    for _ in range(2):
        env.step_chunk(torch.zeros(2, 2, 1))
    assert rollout["reward"].tolist() == [[[1, 2], [3, 0], [0, 0]], [[1, 2], [3, 4], [0, 0]]]
    assert rollout["executed"][:, :2].tolist() == [[[True, True], [True, False]], [[True, True], [True, True]]]
    assert rollout["done"].tolist() == rollout["terminated"].tolist() == [[False, True, False], [False] * 3]
    assert env.current_rollout_step == 2


CALLS: list[list[int]] = []


def note(env: Any, env_ids: Tensor) -> None:
    CALLS.append(env_ids.tolist())


@pytest.mark.parametrize("interval_step", [2, [2, 2]])
def test_interval_events_pass_over_environments_that_have_ended(interval_step: Any) -> None:
    events = {
        "own": {"func": f"{__name__}.note", "mode": "interval", "interval_step": interval_step},
        "all": {"func": f"{__name__}.note", "mode": "interval", "interval_step": 1, "is_global": True},
    }
    env = Scripted(cart_cfg(2, {"events": events}, allowed_imports=[__name__]))
    env.success_at = (2, NEVER)
    env.reset(seed=1)
    CALLS.clear()
    env.step_chunk(torch.zeros(2, 4, 1))
    # control steps 1 to 4: the global one each time, the other at elapsed steps 2 and 4
    assert CALLS == [[0, 1], [0, 1], [0, 1], [1], [1], [1]]


def test_divergence_within_a_chunk_ends_the_episode_once() -> None:
    env = Scripted(cart_cfg(2))
    env.reset(seed=1)
    actions = torch.zeros(2, 4, 1)
    actions[1, 1] = torch.nan
    obs, reward, terminated, _, info = env.step_chunk(actions)
    assert info["diverged"].tolist() == [False, True]
    assert info["executed"].tolist() == [[True] * 4, [True, True, False, False]]
    assert reward.tolist() == [[1, 2, 3, 4], [1, 0, 0, 0]]
    assert terminated.tolist() == [False, True]
    assert env.divergences.count == 1
    assert all(value.isfinite().all() for each in (obs, info["final_obs"]) for value in leaves(each).values())


@pytest.mark.e2e
@needs_gl
def test_cameras_draw_once_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[int]] = []
    draw = Camera._draw

    def counting(self: Camera, env_ids: list[int]) -> None:
        drawn.append(env_ids)
        draw(self, env_ids)

    monkeypatch.setattr(Camera, "_draw", counting)
    one, two = (Scripted(cart_cfg(2, sensor=[NEAR])) for _ in range(2))
    for env in (one, two):
        env.success_at = (12, NEVER)
        env.reset(seed=1)
    actions = torch.ones(2, 14, 1)
    drawn.clear()
    obs, *_, info = one.step_chunk(actions)
    # at the end, and once more what was reset
    assert drawn == [[0, 1], [0]]
    steps = [two.step(action) for action in actions.unbind(1)]
    image = ("sensor", "cam", "color")
    assert torch.equal(info["final_obs"][image][0], steps[11][4]["final_obs"][image][0])
    assert torch.equal(obs[image][0], steps[11][0][image][0])
    assert torch.equal(obs[image][1], steps[13][0][image][1])
    assert not torch.equal(obs[image][0], info["final_obs"][image][0])


PAST = {"func": "observation_history", "mode": "modify", "name": "robot/qpos", "params": {"length": 2}}


@pytest.mark.e2e
@needs_gl
def test_terms_of_images_see_where_an_episode_ends_in_a_chunk() -> None:
    seen = {"func": "compute_semantic_mask", "params": {"entity_cfg": {"uid": "cam"}, "foreground_uids": []}}
    camera, terms = {**NEAR, "enable_mask": True}, {"observations": {"seen": seen, "past": PAST}}
    one, two = (Scripted(cart_cfg(2, terms, sensor=[camera])) for _ in range(2))
    for env in (one, two):
        env.success_at = (12, NEVER)
        first, _ = env.reset(seed=1)
    actions = torch.ones(2, 14, 1)
    *_, info = one.step_chunk(actions)
    steps = [two.step(action) for action in actions.unbind(1)]
    assert torch.equal(info["final_obs"]["seen"][0], steps[11][4]["final_obs"]["seen"][0])
    assert not torch.equal(info["final_obs"]["seen"][0], first["seen"][0])


def previous(env: Any, data: Tensor) -> Tensor:
    image: Tensor = getattr(env, "image", data)
    env.image = data.clone()
    return image


@pytest.mark.e2e
@needs_gl
def test_own_term_of_images_is_called_once_where_another_episode_ends() -> None:
    terms = {"late": {"func": f"{__name__}.previous", "mode": "modify", "name": "sensor/cam/color"}}
    env = Scripted(cart_cfg(2, {"observations": terms}, allowed_imports=[__name__], sensor=[NEAR]))
    env.success_at = (12, NEVER)
    env.reset(seed=1)
    for _ in range(12):
        obs, *_, info = env.step(torch.ones(2, 1))
    image = ("sensor", "cam", "color")
    assert torch.equal(obs[image][1], info["final_obs"][image][1])
