"""Legend: N envs, F frames of an episode, T steps, O flattened observation size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.demonstrations import Task
from embodichain.ext.lerobot.dataset import LeRobotWriter, read_lerobot
from embodichain.ext.lerobot.demonstrations import read_demonstrations
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError, logger
from embodichain.utils.observations import flat_input
from tests.ext.lerobot.test_recorder import CAMERA, START
from tests.lab.scenes import actions_for, cart_cfg, needs_gl

pytestmark = pytest.mark.e2e

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

KEYS = ("sensor/cam/color",)
OBS = "observation.environment_state"


@pytest.fixture(autouse=True)
def scripted_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let environment 0 succeed in 2 steps, and 1 never."""

    def compute_task_state(self: CartPoleEnv, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        success = (self.all_env_ids == 0) & (self.elapsed_steps >= 2)
        return success, self._never, {"pole_angle": self.robot.get_qpos("hand")[:, 0].abs()}

    monkeypatch.setattr(CartPoleEnv, "success_terminates", True)
    monkeypatch.setattr(CartPoleEnv, "compute_task_state", compute_task_state)


def make(env: dict[str, Any] | None = None, sensors: Any = (), **top: Any) -> CartPoleEnv:
    """Return two environments, of episodes of up to 3 steps."""
    return CartPoleEnv(cart_cfg(2, {"events": START} | (env or {}), sensor=list(sensors), max_episode_steps=3, **top))


def record(root: Path, env: dict[str, Any] | None = None, sensors: Any = (), **params: Any) -> list[TensorDict]:
    """Record three steps: an episode of environment 0 with success, and one of environment 1 that is cut.

    Returns:
        What the environment gave: observation before, action, reward, and final observation of each step, [N].
    """
    params = {"save_path": root.name, "environment_state": True} | params
    dataset = {"dataset": {"lerobot": {"func": "LeRobotRecorder", "mode": "save", "params": params}}}
    made = make((env or {}) | dataset, sensors)
    made.write_into(root.parent)
    obs, _ = made.reset(seed=1)
    given = []
    for action in actions_for(made, 3):
        before = flat_input(obs)
        obs, reward, *_, info = made.step(action)
        final = flat_input(info["final_obs"])
        given.append(TensorDict({"obs": before, "action": action, "reward": reward, "final": final}, batch_size=[2]))
    made.close()
    return given


def read(
    root: Path, env: CartPoleEnv | None = None, keys: tuple[str, ...] = (), num: int | None = None, **task_fields: Any
) -> Any:
    env = env or make()
    assert isinstance(env.single_observation_space, spaces.Dict)
    task = Task(
        env.single_observation_space,
        env.single_action_space,
        env.success_terminates,
        env.robot.joint_names,
        env.config_data(),
        **task_fields,
    )
    return read_demonstrations(str(root), num, task, keys)


def error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


def copy_of(source: Path, target: Path, **changes: Any) -> Path:
    """Write a dataset with the frames of another one.

    Args:
        changes: of a frame's features (``None`` removes one), with double underscores for dots; and in ``extra`` of
            the columns of the descriptions.
    """
    info = json.loads((source / "meta/info.json").read_text())
    extra = changes.pop("extra", {})
    renamed = {name.replace("__", "."): change for name, change in changes.items()}
    skip = {"timestamp", "frame_index", "episode_index", "index", "task_index"}
    features = {name: value for name, value in info["features"].items() if name not in skip}
    for name, change in renamed.items():
        features[name] = features.get(name, {"dtype": "float32", "shape": [1], "names": None})
        if change is None:
            del features[name]
    writer = LeRobotWriter(target, 25, "cart", features)
    for episode in read_lerobot(source):
        frames = {name: episode.frames[name] for name in features if name in episode.frames}
        for name, change in renamed.items():
            if change is not None:
                frames[name] = change(episode.frames.get(name, episode.frames["next.reward"]))
        description = {name: episode.description[name] for name in ("success", "environment")}
        writer.add_episode(frames, episode.task, {k: v for k, v in (description | extra).items() if v is not None})
    return target


def test_rollouts_are_what_the_environment_gave(tmp_path: Path) -> None:
    given = record(tmp_path / "data")
    assert len(read(tmp_path / "data", num=1).episodes) == 1
    demonstrations = read(tmp_path / "data", num=9)
    succeeded, cut = demonstrations.episodes
    assert demonstrations.num_succeeded == 1
    # Environment 0: 2 steps and success. What is behind is never read: the last frame again.
    assert succeeded.batch_size == (1, 3)
    for t in range(2):
        for name in ("obs", "action", "reward"):
            assert torch.equal(succeeded[name][0, t], given[t][name][0])
    assert succeeded["terminated"].tolist() == [[False, True, True]]
    # Environment 1: 3 steps until the time limit. The last frame is the observation after the second step.
    assert cut.batch_size == (1, 3)
    for t in range(2):
        for name in ("obs", "action", "reward"):
            assert torch.equal(cut[name][0, t], given[t][name][1])
    assert torch.equal(cut["obs"][0, 2], given[2]["obs"][1])
    assert torch.equal(cut["obs"][0, 2], given[1]["final"][1])
    assert not cut["terminated"].any()


def test_success_that_ends_nothing_is_no_termination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPoleEnv, "success_terminates", False)
    record(tmp_path / "data")
    for episode in read(tmp_path / "data").episodes:
        assert episode.batch_size == (1, 3)  # 3 steps each
        assert not episode["terminated"].any()


@needs_gl
def test_images_are_read(tmp_path: Path) -> None:
    record(tmp_path / "data", sensors=[CAMERA])
    env = make(sensors=[CAMERA])
    succeeded, _ = read(tmp_path / "data", env, KEYS).episodes
    assert succeeded["entries", KEYS[0]].shape == (1, 3, 16, 32, 3)
    assert succeeded["entries", KEYS[0]].dtype == torch.uint8
    record(tmp_path / "blind")
    assert "has no feature 'observation.images.cam'; it has " in error_of(lambda: read(tmp_path / "blind", env, KEYS))
    text = error_of(lambda: read(tmp_path / "data", env, ("sensor/cam/depth",)))
    assert "the policy reads 'sensor/cam/depth', which datasets do not have" in text
    larger = make(sensors=[CAMERA | {"width": 64}])
    text = error_of(lambda: read(tmp_path / "data", larger, KEYS, reads_obs=False))
    assert "observation.images.cam has images of (16, 32), this environment's are of (16, 64)" in text


@pytest.mark.parametrize("mark", ["complementary_info__is_intervention", "intervention"])
def test_frames_of_interventions_alone_are_demonstrations(tmp_path: Path, mark: str) -> None:
    given = record(tmp_path / "data")
    # Of both episodes the second frame alone was a person's.
    second = {mark: lambda values: values * 0 + [0.0, 1.0, 0.0][: len(values)]}
    copy_of(tmp_path / "data", tmp_path / "marked", **second)
    demonstrations = read(tmp_path / "marked")
    succeeded, cut = demonstrations.episodes
    assert demonstrations.num_succeeded == 1
    assert [e.batch_size for e in (succeeded, cut)] == [(1, 2), (1, 2)]
    assert torch.equal(succeeded["obs"][0, 0], given[1]["obs"][0])
    assert succeeded["terminated"][0, 0]
    assert torch.equal(cut["action"][0, 0], given[1]["action"][1])
    assert torch.equal(cut["obs"][0, 1], given[2]["obs"][1])  # the frame behind it
    assert not cut["terminated"].any()
    copy_of(tmp_path / "data", tmp_path / "unmarked", **{mark: lambda values: values * 0})
    text = error_of(lambda: read(tmp_path / "unmarked"))
    assert text.endswith(f"unmarked: has no steps that '{mark.replace('__', '.')}' marks")


def test_dataset_without_a_record_is_taken_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "log_warning", lines.append)
    record(tmp_path / "data")
    copy_of(tmp_path / "data", tmp_path / "mute", extra={"environment": None})
    assert len(read(tmp_path / "mute").episodes) == 2
    assert lines == [
        f"algorithm.cfg.demonstrations: {tmp_path}/mute: does not say what its numbers mean: its actions, observations "
        "and rewards are taken for this environment's"
    ]


@pytest.mark.parametrize(
    ("env", "difference"),
    [
        (
            {"actions": {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.2}}}},
            "env.actions.move.params.scale: 0.1 in the dataset, 0.2 now",
        ),
        (
            {"observations": {"ends": {"func": "get_robot_eef_pose", "mode": "add", "name": "robot/ee"}}},
            "env.observations.ends: not there in the dataset",
        ),
    ],
)
def test_dataset_of_another_environment_is_refused(tmp_path: Path, env: dict[str, Any], difference: str) -> None:
    record(tmp_path / "data")
    start = f"algorithm.cfg.demonstrations: {tmp_path}/data: was recorded in another environment: {difference}"
    assert error_of(lambda: read(tmp_path / "data", make(env))).startswith(start)


def test_other_rewards_are_refused_where_rewards_are_learned_from(tmp_path: Path) -> None:
    record(tmp_path / "data")
    other = make({"rewards": {"smooth": {"func": "action_smoothness_penalty", "weight": 0.1}}})
    assert len(read(tmp_path / "data", other, imitates=True).episodes) == 2
    assert "env.rewards.smooth: not there in the dataset" in error_of(lambda: read(tmp_path / "data", other))


def test_targets_of_mode_post_are_no_demonstrations(tmp_path: Path) -> None:
    post = {"func": "QposNormalizedTerm", "mode": "post", "params": {"range": [-1.0, 1.0]}}
    actions = {"actions": {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}, "note": post}}
    record(tmp_path / "data", actions)
    text = error_of(lambda: read(tmp_path / "data", make(actions)))
    assert text.endswith("/data: has targets in the place of actions, by the action term 'note' of mode 'post'")


def test_policy_of_images_wants_the_actions_of_the_dataset_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "log_warning", lines.append)
    record(tmp_path / "data")
    more = make({"observations": {"ends": {"func": "get_robot_eef_pose", "mode": "add", "name": "robot/ee"}}})
    assert len(read(tmp_path / "data", more, reads_obs=False, imitates=True).episodes) == 2
    other = make({"actions": {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.2}}}})
    text = error_of(lambda: read(tmp_path / "data", other, reads_obs=False, imitates=True))
    assert text.endswith("env.actions.move.params.scale: 0.1 in the dataset, 0.2 now")
    assert lines == []
    read(tmp_path / "data", step_dt=0.1)
    assert lines[0].endswith("/data: has 25 frames a second, this environment 10 steps")


def test_dataset_of_another_robot_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "data")
    info = tmp_path / "data/meta/info.json"
    data = json.loads(info.read_text())
    state = data["features"]["observation.state"]
    state["names"] = {"motors": state["names"]}  # as of LeRobot's own recordings
    info.write_text(json.dumps(data))
    read(tmp_path / "data")
    state["names"] = {"motors": ["hip", "knee"]}
    info.write_text(json.dumps(data))
    assert "is of another robot: its joints are ['hip', 'knee']" in error_of(lambda: read(tmp_path / "data"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"action": lambda values: values * 0 + 1.5},
            "episode 0, frame 0: action[0] is 1.5; this environment's actions are between -1 and 1",
        ),
        (
            {"next__reward": lambda values: values * float("nan")},
            "episode 0, frame 0: next.reward[0] is nan; all must be finite",
        ),
        (
            {"action": lambda values: values[:, None].repeat(2, axis=1)},
            "episode 0: action has 2 numbers, this environment's 1",
        ),
        ({"observation__environment_state": None}, f"has no feature '{OBS}'; it has observation.state, action, "),
        (
            {"extra": {"environment": '{"id": "PickCubeRL", "robot": {}, "env": {}}'}, "next__reward": None},
            "was recorded in the task 'PickCubeRL', and this is 'CartPoleRL'",
        ),
    ],
)
def test_dataset_that_cannot_be_used_is_told_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    record(tmp_path / "data")
    copy_of(tmp_path / "data", tmp_path / "bad", **changes)
    text = error_of(lambda: read(tmp_path / "bad"))
    assert text.startswith(f"algorithm.cfg.demonstrations: {tmp_path}/bad: ")
    assert message in text


def test_whole_observation_is_recorded_only_if_asked_for(tmp_path: Path) -> None:
    record(tmp_path / "data", environment_state=False)
    info = json.loads((tmp_path / "data/meta/info.json").read_text())
    assert OBS not in info["features"]
    (file,) = (tmp_path / "data/meta/episodes").glob("*/*.parquet")
    description = parquet.read_table(file).to_pydict()
    assert "environment" not in description
