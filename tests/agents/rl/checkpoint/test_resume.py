from __future__ import annotations

from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.resume import check_config
from embodichain.utils import ConfigError

CAMERA = {"func": "record_camera_data_async", "mode": "interval"}


def config(**trainer: Any) -> dict[str, Any]:
    return {
        "trainer": {"seed": 1, "iterations": 4, "events": {"train": {}, "eval": {}}, **trainer},
        "gym_config": {"id": "A", "env": {"events": {"start": {"func": "randomize_robot_qpos"}}}},
    }


@pytest.mark.parametrize(
    "now",
    [
        config(iterations=9, device="cuda:0", keep_last=3),
        config(events={"train": {"look": CAMERA}, "eval": {"other": {"func": "anything"}}}),
        config() | {"gym_config": {"$schema": "x", **config()["gym_config"]}},
        config() | {"algorithm": {}},
    ],
)
def test_what_decides_nothing_may_differ(now: dict[str, Any]) -> None:
    check_config(config(), now, "latest")


def test_differences_are_named_by_key_with_both_values() -> None:
    now = config(seed=2)
    now["gym_config"]["env"]["events"] = {"stop": {"func": "randomize_robot_qpos"}}
    with pytest.raises(ConfigError) as caught:
        check_config(config(), now, "latest")
    assert str(caught.value).splitlines() == [
        "--resume latest: the config is not that of the run:",
        "trainer.seed: 1 in the run, 2 now",
        'gym_config.env.events.start: {"func": "randomize_robot_qpos"} in the run, not there now',
        'gym_config.env.events.stop: not there in the run, {"func": "randomize_robot_qpos"} now',
    ]
