"""Environments go on bit for bit where a checkpoint left them."""

import io
from collections import deque
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.state import freeze, thaw
from embodichain.utils.utility import load_json
from tests.lab.gym.envs.test_base_env import leaves
from tests.lab.scenes import BOX, actions_for, cart_cfg, env_of
from tests.shipped import REPOSITORY

CONFIGS = sorted((REPOSITORY / "configs").rglob("gym_config*.json"))


class Delay(Functor):
    """A user's reward with a memory of many kinds, which says nothing about saving it."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.line: deque[Tensor] = deque([torch.zeros(env.num_envs)] * 3, maxlen=3)
        self.calls = 0
        self.best = {"pole": torch.full((env.num_envs,), -9.0)}

    def __call__(self, env: EmbodiedEnv, obs: Any, action: Any, info: Any) -> Tensor:
        self.calls += 1
        self.line.append(env.robot.get_qpos()[:, 1])
        self.best["pole"] = torch.maximum(self.best["pole"], self.line[-1])
        return self.line[0] + self.best["pole"] + 0.01 * self.calls


def run(env: EmbodiedEnv, actions: Tensor) -> list[Tensor]:
    out = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        numbers = [flatten_dict_observation(obs), reward, *info["rewards"].values(), *info["metrics"].values()]
        assert all(torch.isfinite(value).all() for value in numbers)
        if info["rewards"] and not getattr(env, "only_positive_rewards", False):
            torch.testing.assert_close(sum(info["rewards"].values()), reward)
        out += [*numbers, terminated, truncated]
    return out


def assert_goes_on(make: Any, steps: int = 7) -> None:
    env, fresh = make(), make()
    env.reset()
    actions = actions_for(env, 2 * steps)
    run(env, actions[:steps])
    buffer = io.BytesIO()
    torch.save(freeze(env.state_dict()), buffer)
    buffer.seek(0)
    fresh.reset()
    run(fresh, actions[:3])  # it has a history of its own
    assert fresh.load_state_dict(thaw(torch.load(buffer, weights_only=True)))
    expected, got = run(env, actions[steps:]), run(fresh, actions[steps:])
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@pytest.mark.e2e
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_every_shipped_environment_steps_finite_and_goes_on(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    envs: list[EmbodiedEnv] = []

    def make() -> EmbodiedEnv:
        envs.append(env_of(load_json(path), 3, max_episode_steps=9))
        assert capsys.readouterr().err == ""
        return envs[-1]

    assert_goes_on(make)
    assert [env.divergences.count for env in envs] == [0, 0]


class Phase(IntEnum):
    FIRST = 1


def test_new_episodes_begin_where_a_task_or_a_term_holds_an_enum(capsys: pytest.CaptureFixture[str]) -> None:
    env: Any = EmbodiedEnv(cart_cfg(2, {"rewards": {"late": {"func": Delay, "weight": 1.0}}}))
    env.reset()
    assert env.load_state_dict(thaw(freeze(env.state_dict())))
    env.reward_manager.functors[0].phase = env.phase = Phase.FIRST
    state = freeze(env.state_dict())
    assert "phase" not in state["attributes"]
    capsys.readouterr()
    assert not env.load_state_dict(thaw(state))
    assert [line.split("] ")[1].split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        type(env).__name__,
        "Delay",
    ]


def test_drawn_intervals_go_on() -> None:
    entity = {"entity_cfg": {"uid": "box"}, "position_range": [[2.0, 2.0, 0.1], [3.0, 3.0, 0.5]]}
    push = {"func": "randomize_rigid_object_pose", "mode": "interval", "interval_step": [2, 7], "params": entity}
    pose = {"func": "get_rigid_object_pose", "mode": "add", "name": "box", "params": {"entity_cfg": {"uid": "box"}}}
    env = {"events": {"push": push}, "observations": {"box": pose}}
    assert_goes_on(lambda: EmbodiedEnv(cart_cfg(3, env, rigid_object=[BOX], max_episode_steps=40)), steps=22)


def test_users_functor_is_saved_without_a_word_from_the_user() -> None:
    rewards = {"late": {"func": Delay, "weight": 1.0}}
    assert_goes_on(lambda: EmbodiedEnv(cart_cfg(2, {"rewards": rewards})))


def test_looks_and_places_of_cameras_go_on() -> None:
    stereo = {"sensor_type": "StereoCamera", "uid": "eyes", "width": 32, "height": 24}
    camera = {"sensor_type": "Camera", "uid": "eye", "width": 32, "height": 24}

    def make() -> EmbodiedEnv:
        return EmbodiedEnv(cart_cfg(2, sensor=[camera, stereo]))

    env, fresh = make(), make()
    moved = torch.tensor([[0.0, 2.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    for uid in ("eye", "eyes"):
        env.sim.get_sensor(uid).set_local_pose(moved, torch.tensor([1]))
    env.sim.appearance.set_color("ground", torch.tensor([[1.0, 0.0, 0.0, 1.0]]), torch.tensor([1]))
    fresh.sim.load_state_dict(thaw(freeze(env.sim.state_dict())))
    for uid in ("eye", "eyes"):
        ours, theirs = env.sim.get_sensor(uid), fresh.sim.get_sensor(uid)
        assert torch.equal(ours.get_local_pose(), theirs.get_local_pose())
    assert (env.sim.appearance.read("geom_rgba") == fresh.sim.appearance.read("geom_rgba")).all()


def shipped(name: str, num_envs: int, **changes: Any) -> EmbodiedEnv:
    data = load_json(REPOSITORY / f"configs/agents/rl/{name}/gym_config.json")
    return env_of(data, num_envs, max_episode_steps=3, **changes)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "group_size"), [("push_cube", 2), ("basic/cart_pole", 1), ("open_drawer", 2), ("reach", 1)]
)
def test_halves_see_what_the_whole_sees_bit_for_bit(name: str, group_size: int) -> None:
    whole = shipped(name, 8, group_size=group_size)
    halves = [shipped(name, 4, group_size=group_size, first_env_id=first) for first in (0, 4)]
    envs = [whole, *halves]
    generator = torch.Generator().manual_seed(0)
    seen = [env.reset()[0] for env in envs]
    for _ in range(7):  # two time limits, so that there are three episodes
        first, second = leaves(seen[1]), leaves(seen[2])
        for key, value in leaves(seen[0]).items():
            assert torch.equal(value, torch.cat((first[key], second[key]))), key
        action = 2 * torch.rand(8, whole.single_action_space.shape[0], generator=generator) - 1
        results: list[Any] = [env.step(part) for env, part in zip(envs, (action, action[:4], action[4:]), strict=True)]
        seen = [result[0] for result in results]
        for i in (1, 2, 3):
            assert torch.equal(results[0][i], torch.cat([results[1][i], results[2][i]]))
    for env in envs:
        env.close()


@pytest.mark.e2e
def test_shared_evaluation_is_the_same_set_of_episodes() -> None:
    def first_episodes(num_envs: int, share: tuple[int, int] | None) -> torch.Tensor:
        env = shipped("push_cube", num_envs)
        options = {"enumerate_episodes": True} | ({} if share is None else {"share": share})
        rows = [env.reset(seed=9, options=options)[0]["object", "cube_pos"]]
        if num_envs == 2:
            rows.append(env.reset()[0]["object", "cube_pos"])  # each environment's next episode
        env.close()
        return torch.cat(rows)

    whole = first_episodes(8, None)
    for rank in (0, 1):
        # Two environments of two processes: episodes r, r + 2, then r + 4, r + 6.
        assert torch.equal(first_episodes(2, (rank, 2)), whole[rank::2])
