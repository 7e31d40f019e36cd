import json
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.run_config import (
    RunConfig,
    changes_of_env_file,
    check_resumed_config,
    load_run_config,
    may_change,
)
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config

ARM = """<mujoco><worldbody><body name="link"><joint name="hinge" type="hinge" range="-1 1" limited="true"/>
<geom size="0.1"/></body></worldbody></mujoco>"""
CAMERA = {"func": "record_camera_data_async", "mode": "interval"}
NUDGE = {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[0, 0], [0, 0]]}}


def load(folder: Path, **changes: Any) -> RunConfig:
    return load_run_config(write_config(folder, tiny_config(**changes)))


def env_with(**events: Any) -> dict[str, Any]:
    env: dict[str, Any] = load_json(CART_POLE_ENV)
    env["env"]["events"] = events
    return env


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer__iterations": 9, "trainer__device": "cpu", "trainer__keep_last": 3, "trainer__headless": False},
        {"trainer__events": {"train": {"look": CAMERA}, "eval": {"other": NUDGE}}},
        {"trainer__gym_config": load_json(CART_POLE_ENV) | {"$schema": "x", "max_episodes": 3}},
        {"algorithm__cfg": {"n_epochs": 1, "batch_size": 8, "gamma": 0.99}},  # the default
    ],
)
def test_what_decides_nothing_may_differ(changes: dict[str, Any], tmp_path: Path) -> None:
    check_resumed_config(load(tmp_path).resolved, load(tmp_path, **changes), "latest")


def test_differences_are_named_by_key_with_both_values(tmp_path: Path) -> None:
    before = load(tmp_path, trainer__gym_config=env_with(start=NUDGE)).resolved
    now = load(tmp_path, trainer__seed=2, trainer__gym_config=env_with(stop=NUDGE))
    with pytest.raises(ConfigError) as caught:
        check_resumed_config(before, now, "latest")
    term = json.dumps(now.resolved["gym_config"]["env"]["events"]["stop"])
    assert str(caught.value).splitlines() == [
        "latest: the config is not the run's:",
        "trainer.seed: 1 in the run, 2 now",
        f"gym_config.env.events.start: {term} in the run, not there now",
        f"gym_config.env.events.stop: not there in the run, {term} now",
    ]


def test_changes_of_the_environments_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_text(json.dumps(load_json(CART_POLE_ENV)), encoding="utf-8")
    run = load(tmp_path, trainer__gym_config=str(path))
    assert changes_of_env_file(run.resolved, run) == []
    path.write_text(json.dumps(load_json(CART_POLE_ENV) | {"max_episode_steps": 7}), encoding="utf-8")
    (line,) = changes_of_env_file(run.resolved, run)
    assert line.startswith("max_episode_steps: ")
    assert line.endswith(" in the run, 7 now")
    path.write_text("{", encoding="utf-8")  # half edited: the run's own config is the one that counts
    (line,) = changes_of_env_file(run.resolved, run)
    assert str(path) in line
    path.unlink()
    assert changes_of_env_file(run.resolved, run) == []


def test_model_file_beside_the_environments_file_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "arm.xml").write_text(ARM, encoding="utf-8")
    path = tmp_path / "sub" / "env.json"
    robot = {"uid": "arm", "fpath": "../arm.xml"}
    actions = {"joints": {"func": "JointPositionTerm"}}
    env = {"id": "RobotRL", "max_episode_steps": 9, "env": {"actions": actions}, "robot": robot}
    path.write_text(json.dumps(env), encoding="utf-8")
    run = load(tmp_path, trainer__gym_config=str(path))
    assert changes_of_env_file(run.resolved, run) == []


@pytest.mark.usefixtures("own_folder")
def test_last_run_is_recorded_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embodichain.agents.rl.checkpoint.saved_run.last_run", lambda exp_name: Path("outputs/x"))
    found = {
        target: load(Path(), policy__init_from=target).resolved["policy"]["init_from"]
        for target in ("latest", "latest/best", "outputs/y", "hf:user/name")
    }
    assert [*found.values()] == ["outputs/x", "outputs/x/best", "outputs/y", "hf:user/name"]


def test_field_says_itself_whether_it_may_change() -> None:
    assert {"trainer.iterations", "trainer.events.eval", "gym_config.env.sim_cfg.num_threads"} <= {*may_change()}
    assert not {"trainer.seed", "trainer.buffer_size", "trainer.asynchronous", "trainer.events"} & {*may_change()}
