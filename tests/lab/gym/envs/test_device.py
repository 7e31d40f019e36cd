"""Environments keep to the device of their physics, which here is one without data: torch's "meta".

Tensors of another device, and reading a value, are errors there, as the first is and the second should be on a GPU.
Shapes: N environments.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from embodichain.agents.rl.collector import SyncCollector, sync_collector
from embodichain.agents.rl.models import build_policy
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.base_env import BaseEnv, DivergenceLog
from embodichain.lab.sim import sim_manager
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_json
from tests.lab.warp_scenes import CART, CONFIGS, DRAWER, PUSH, env_on

DEVICE = torch.device("meta")
N = 4
CUBE = {"entity_cfg": {"uid": "cube"}}
BOX = [[-0.1, -0.1, 0.0], [0.1, 0.1, 0.0]]
TERMS: dict[str, dict[str, Any]] = {
    "randomize_rigid_object_mass": {**CUBE, "mass_range": [0.5, 2.0]},
    "randomize_rigid_object_friction": {**CUBE, "friction_range": [0.3, 1.0]},
    "randomize_rigid_object_center_of_mass": {**CUBE, "com_pos_offset_range": BOX},
    "randomize_rigid_object_scale": {**CUBE, "scale_factor_range": [[0.9], [1.1]]},
    "randomize_joint_drive": {"entity_cfg": {"uid": "Manipulator"}, "stiffness_range": [0.8, 1.2]},
    "randomize_rigid_object_pose": {**CUBE, "position_range": BOX, "rotation_range": BOX},
    "randomize_robot_qpos": {"qpos_range": [[-0.1] * 3, [0.1] * 3], "joint_ids": [0, 2, 3]},
    "randomize_robot_eef_pose": {"entity_cfg": {"uid": "Manipulator"}, "position_range": BOX},
    "planner_grid_cell_sampler": {
        "position_range": [[-0.8, -0.2], [-0.6, 0.2]],
        "reference_height": 0.1,
        "object_uid_list": ["cube"],
        "grid_size": [2, 2],
    },
}


class Backend:
    """An engine whose tensors have shapes, and no data."""

    is_asynchronous = True

    def __init__(self, model: mujoco.MjModel, visual_model: mujoco.MjModel, num_envs: int, *_: Any) -> None:
        self.model, self.visual_model, self.num_envs, self.device = model, visual_model, num_envs, DEVICE
        self.version = 0
        self._data = mujoco.MjData(model)
        self._all = torch.arange(num_envs, device=DEVICE)

    qpos = property(lambda self: self.read("qpos"))
    qvel = property(lambda self: self.read("qvel"))
    ctrl = property(lambda self: self.read("ctrl"))

    def read(self, name: str) -> Tensor:
        return torch.zeros(self.num_envs, *np.shape(getattr(self._data, name)), device=DEVICE)

    def read_model(self, name: str) -> Tensor:
        return torch.zeros(self.num_envs, *np.shape(getattr(self.model, name)), device=DEVICE)

    def take(self, *given: Any, **_: Any) -> None:
        assert all(part.device == DEVICE for part in given if isinstance(part, Tensor))
        self.version += 1

    write = write_initial = write_model = write_model_parts = step = reset = take

    @contextmanager
    def choose(self, mask: Tensor) -> Iterator[Tensor]:
        assert mask.device == DEVICE
        yield self._all

    def diverged(self) -> Tensor:
        return torch.zeros(self.num_envs, dtype=torch.bool, device=DEVICE)

    def report(self) -> list[str]:
        return []


def make_spaces(env: EmbodiedEnv) -> None:
    """Make spaces of sizes alone."""
    env._action_low, env._action_high = env._action_limits()
    env._reset_episodes(env.all_env_ids)
    size = flatten_dict_observation(env.get_obs()).shape[1]
    env.flattened_observation_space = spaces.Box(-1.0, 1.0, (size,))
    env.single_action_space = spaces.Box(-1.0, 1.0, (len(env._action_low),))
    env.action_space = spaces.Box(-1.0, 1.0, (N, len(env._action_low)))


@pytest.fixture(autouse=True)
def device_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_manager, "make_backend", Backend)
    monkeypatch.setattr(sim_manager, "parse_sim_device", lambda name: (True, DEVICE))
    monkeypatch.setattr(BaseEnv, "_make_spaces", make_spaces)
    monkeypatch.setattr(DivergenceLog, "report", lambda log: None)


def run(env: EmbodiedEnv) -> None:
    env.reset(seed=1)
    for _ in range(2):
        obs, reward, terminated, truncated, _ = env.step(torch.zeros(N, len(env.action_manager.low), device=DEVICE))
        parts = (flatten_dict_observation(obs), reward, terminated, truncated)
        assert {part.device for part in parts} == {DEVICE}


@pytest.mark.e2e
@pytest.mark.parametrize("config", [CART, PUSH, DRAWER, "reach/gym_config.json"])
def test_shipped_task_keeps_to_the_device(config: str) -> None:
    run(env_on("batch", config, N))


@pytest.mark.e2e
@pytest.mark.parametrize(
    "mode",
    [{"mode": "reset"}, {"mode": "interval", "interval_step": 1}, {"mode": "interval", "interval_step": [1, 2]}],
    ids=["reset", "interval", "drawn interval"],
)
def test_events_keep_to_the_device(mode: dict[str, Any]) -> None:
    shipped = load_json(CONFIGS / PUSH)["env"]["events"]
    events = {term: {"func": term, "params": params, **mode} for term, params in TERMS.items()}
    env = env_on("batch", PUSH, N, env={"events": shipped | events})
    # The first call of an interval event is told who is concerned, which has no answer here.
    env.event_manager._begun += TERMS
    run(env)


def test_moved_base_keeps_to_the_device() -> None:
    shipped = load_json(CONFIGS / DRAWER)["env"].get("events", {})
    params = {"entity_cfg": {"uid": "cabinet"}, "position_range": BOX}
    event = {"func": "randomize_articulation_root_pose", "mode": "reset", "params": params}
    run(env_on("batch", DRAWER, N, env={"events": shipped | {"it": event}}))


def test_collector_and_policy_keep_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_collector, "_check_slot", lambda *given: None)  # it reads flags
    env = env_on("batch", CART, N, max_episode_steps=2)
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "tanh"}}
    block = {"name": "actor_critic", "actor": network, "critic": network, "normalize_obs": True}
    policy = build_policy(block, env.flattened_observation_space, env.single_action_space, DEVICE)
    rollout = SyncCollector(env, policy, DEVICE).collect(3)
    assert {value.device for value in rollout.values()} == {DEVICE}
