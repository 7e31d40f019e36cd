"""The sums of the benchmark from training to plain MuJoCo, by hand. Shapes: E = 2 episodes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.sim_to_real import DELAY_STEPS, ROOT, Tally, kit
from embodichain.agents.rl.run_config import load_run_config

UPRIGHT, ON_ITS_SIDE = [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]


def test_errors_are_means_over_the_steps_before_a_fall() -> None:
    tally = Tally(np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    still = np.zeros((2, 3))
    tally.add(still, still, np.array([UPRIGHT, UPRIGHT]))  # errors (1, 0.5) and (0, 0)
    fast = np.array([[1.0, 0.5, 0.0], [9.0, 9.0, 9.0]])
    tally.add(fast, still, np.array([UPRIGHT, ON_ITS_SIDE]))  # (0.5, 0.5); the second has fallen
    score = tally.score(max_xy=0.8, max_yaw=0.6)
    # the first: (1 + 0.5) / 2 = 0.75 and 0.5, a success; the second: 0, but it fell
    assert (score.success, score.falls) == (0.5, 0.5)
    assert score.error_xy == pytest.approx((0.75 + 0.0) / 2)
    assert score.error_yaw == pytest.approx((0.5 + 0.0) / 2)


def test_kit_adds_noise_delays_pushes_and_random_physics_to_the_shipped_config() -> None:
    config = ROOT / "configs/agents/rl/go2_flat/train_config_quickstart.json"
    overrides = dict(override.split("=", 1) for override in kit(str(config)))
    added = {path: json.loads(value) for path, value in overrides.items()}
    assert added["env.actions.joint_position.params.delay"] == DELAY_STEPS
    noise = added["env.observations.noise_joints_vel"]
    assert (noise["name"], noise["params"]) == ("joints/vel", {"bound": 1.5})
    assert added["env.events.kit_drives"]["params"]["entity_cfg"] == {"uid": "go2"}
    assert added["env.events.kit_friction"]["params"]["entity_cfg"] == {"uid": "go2", "link_names": [".*_foot"]}
    assert added["env.events.kit_mass"]["params"]["entity_cfg"] == {"uid": "go2", "link_names": ["base"]}
    assert added["env.events.kit_pushes"]["func"] == "push_robot"


def test_config_with_the_kit_is_valid() -> None:
    config = ROOT / "configs/agents/rl/go2_flat/train_config_quickstart.json"
    assert load_run_config(config, kit(str(config))).env is not None
