"""Environments go on bit for bit where a checkpoint left them."""

from __future__ import annotations

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
from tests.lab.scenes import BOX, actions_for, cart_cfg, env_of

CONFIGS = sorted((Path(__file__).resolve().parents[4] / "configs").rglob("gym_config*.json"))


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
        out += [flatten_dict_observation(obs), reward, terminated, truncated, *info["metrics"].values()]
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
def test_every_shipped_environment_goes_on_where_it_was(path: Path) -> None:
    assert_goes_on(lambda: env_of(load_json(path), 3, max_episode_steps=9))


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


# Mode ``interval``, so that an episode has values of its own which the next reset does not draw again.
RANDOM_PHYSICS: dict[str, dict[str, Any]] = {
    "randomize_rigid_object_mass": {"entity_cfg": {"uid": "box"}, "mass_range": [0.5, 2.0]},
    "randomize_rigid_object_center_of_mass": {
        "entity_cfg": {"uid": "box"},
        "com_pos_offset_range": [[-0.02] * 3, [0.02] * 3],
    },
    "randomize_rigid_object_friction": {"entity_cfg": {"uid": "box"}, "friction_range": [0.2, 1.0]},
    "randomize_rigid_object_scale": {"entity_cfg": {"uid": "box"}, "scale_factor_range": [[0.5], [1.5]]},
    "randomize_joint_drive": {
        "entity_cfg": {"uid": "Cart"},
        "stiffness_range": [0.5, 2.0],
        "damping_range": [0.8, 1.2],
    },
}


@pytest.mark.parametrize("is_global", [False, True])
def test_random_physics_of_single_environments_goes_on(is_global: bool) -> None:
    events = {
        name: {"func": name, "mode": "interval", "interval_step": 5, "is_global": is_global, "params": params}
        for name, params in RANDOM_PHYSICS.items()
    }
    observations = {
        "box": {"func": "get_rigid_object_pose", "mode": "add", "name": "box", "params": {"entity_cfg": {"uid": "box"}}}
    }
    env = {"events": events, "observations": observations}
    falling = {**BOX, "init_pos": [2.0, 0.0, 0.3], "init_rot": [20.0, 10.0, 0.0]}
    assert_goes_on(lambda: EmbodiedEnv(cart_cfg(3, env, rigid_object=[falling], max_episode_steps=40)), steps=22)


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
