"""Shapes: N environments, T frames of an episode."""

import json
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest
import torch

from embodichain.ext.lerobot import dataset
from embodichain.ext.lerobot.dataset import read_lerobot
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError
from tests.lab.scenes import actions_for, cart_cfg, needs_gl

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

CAMERA = {"uid": "cam", "width": 32, "height": 16, "extrinsics": {"eye": [3, 0, 1], "target": [0, 0, 1]}}
START = {"start": {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.1], [1, 0.1]]}}}


def make(folder: Path, sensors: Any = (), num_envs: int = 2, **params: Any) -> CartPoleEnv:
    term = {"func": "LeRobotRecorder", "mode": "save", "params": {"save_path": folder.name} | params}
    data = {"dataset": {"lerobot": term}, "events": START}
    env = CartPoleEnv(cart_cfg(num_envs, data, sensor=list(sensors), max_episode_steps=3))
    env.write_into(folder.parent)
    return env


def play(env: CartPoleEnv, steps: int) -> None:
    env.reset(seed=1)
    for action in actions_for(env, steps):
        env.step(action)


def read(path: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    return columns


def test_frames_have_states_before_and_rewards_after_actions(tmp_path: Path) -> None:
    env = make(tmp_path, instruction={"lang": "balance"}, robot_meta={"robot_type": "cart"})
    assert env.config_data()["env"]["dataset"]["lerobot"]["func"] == "LeRobotRecorder"  # as a config names it
    env.reset(seed=1)
    states, rewards, actions = [], [], actions_for(env, 7)
    for action in actions:
        states.append(env.robot.get_qpos())
        rewards.append(env.step(action)[1])
    info = json.loads((tmp_path / "meta/info.json").read_text())
    # episodes of 3 steps: two of each environment, the seventh step is in none
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 4, 12)
    # steps of 0.04 s
    assert (info["fps"], info["robot_type"], info["splits"]) == (25, "cart", {"train": "0:4"})
    assert info["features"]["observation.state"]["names"] == ["slider_to_cart", "cart_to_pole"]
    # the third episode is environment 0's second
    frames = read(tmp_path / "data/chunk-000/file-002.parquet")
    assert torch.equal(torch.tensor(frames["observation.state"]), torch.stack([s[0] for s in states[3:6]]))
    assert torch.equal(torch.tensor(frames["action"]), actions[3:6, 0, 0])
    assert torch.equal(torch.tensor(frames["next.reward"]), torch.stack([r[0] for r in rewards[3:6]]))
    assert frames["next.done"] == [False, False, True]
    assert (frames["index"], frames["frame_index"], frames["episode_index"]) == ([6, 7, 8], [0, 1, 2], [2, 2, 2])
    assert frames["timestamp"] == pytest.approx([0.0, 0.04, 0.08])
    episode = read(tmp_path / "meta/episodes/chunk-000/file-002.parquet")
    assert (episode["length"], episode["dataset_from_index"], episode["dataset_to_index"]) == ([3], [6], [9])
    assert episode["tasks"] == [["balance"]]
    assert read(tmp_path / "meta/tasks.parquet") == {"task_index": [0], "__index_level_0__": ["balance"]}


def test_terms_of_mode_post_make_the_recorded_actions(tmp_path: Path) -> None:
    actions = {
        "place": {"func": "QposTerm", "params": {"scale": 2.0}},
        "record": {"func": "QposNormalizedTerm", "mode": "post", "params": {"range": [-1.0, 1.0]}},
    }
    dataset = {"lerobot": {"func": "LeRobotRecorder", "mode": "save", "params": {"save_path": tmp_path.name}}}
    env = CartPoleEnv(cart_cfg(1, {"dataset": dataset, "actions": actions}, max_episode_steps=3))
    env.write_into(tmp_path.parent)
    env.reset(seed=1)
    for value in (0.75, -1.0, 0.0):
        env.step(torch.tensor([[value]]))
    # targets of 1.5, -2 and 0; limits -4 and 4 become -1 and 1
    assert read(tmp_path / "data/chunk-000/file-000.parquet")["action"] == [0.375, -0.5, 0.0]


def test_episode_has_its_environments_instruction_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make(tmp_path, instruction={"lang": "balance"})
    monkeypatch.setattr(env, "instructions", lambda: ["lean left", ""])
    monkeypatch.setattr(type(env), "_extend_obs", lambda self, obs: obs | {"state": torch.tensor([[1.0], [2.0]])})
    play(env, 3)
    assert read(tmp_path / "meta/tasks.parquet")["__index_level_0__"] == ["lean left", "balance"]
    assert json.loads((tmp_path / "meta/info.json").read_text())["features"]["observation.state"]["shape"] == [1]
    assert read(tmp_path / "data/chunk-000/file-001.parquet")["observation.state"] == [2.0] * 3


@needs_gl
def test_cameras_are_videos_of_the_episodes_frames(tmp_path: Path) -> None:
    env = make(tmp_path, [CAMERA], num_envs=1)
    play(env, 6)
    env.close()
    info = json.loads((tmp_path / "meta/info.json").read_text())
    assert info["features"]["observation.images.cam"]["shape"] == [16, 32, 3]
    video = tmp_path / "videos/observation.images.cam/chunk-000/file-001.mp4"
    assert imageio_ffmpeg.count_frames_and_secs(str(video)) == (3, pytest.approx(0.12))
    episodes = read(tmp_path / "meta/episodes/chunk-000/file-002.parquet")  # behind those of the two
    assert episodes["videos/observation.images.cam/file_index"] == [0, 1]
    mean = json.loads((tmp_path / "meta/stats.json").read_text())["observation.images.cam"]["mean"]
    assert all(0.0 < channel[0][0] < 1.0 for channel in mean)


def test_only_successful_episodes_are_written_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make(tmp_path, export_success_only=True)
    success = torch.tensor([True, False])
    state = (success, ~success & False, {"pole_angle": torch.zeros(2)})
    monkeypatch.setattr(env, "compute_task_state", lambda **kw: state)
    play(env, 6)
    assert json.loads((tmp_path / "meta/info.json").read_text())["total_episodes"] == 2
    assert read(tmp_path / "meta/episodes/chunk-000/file-001.parquet")["success"] == [True]


def test_recording_that_fails_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").write_text("")  # a file in the folder's place
    env = make(tmp_path)
    play(env, 6)
    assert capsys.readouterr().err.count("could not be written, recording ends") == 1


def test_full_disk_at_the_end_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object) -> None:
        raise OSError("No space left on device")

    env = make(tmp_path)
    play(env, 6)
    monkeypatch.setattr(dataset, "_write_table", fail)
    env.close()
    assert "its files stay many, one for an episode: No space left" in capsys.readouterr().err
    assert len(list(read_lerobot(tmp_path))) == 4


def test_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"robot_meta.observation.vision: unknown camera 'x'\. Known: none"):
        make(tmp_path, robot_meta={"observation": {"vision": {"x": []}}})


def test_dataset_that_is_there_already_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "a_2"):
        (tmp_path / name / "meta").mkdir(parents=True)
        (tmp_path / name / "meta/info.json").write_text("{}")
    env = make(tmp_path / "a")
    play(env, 3)
    assert (tmp_path / "a_3" / "meta/info.json").exists()
    assert f"{tmp_path}/a is there already: the dataset is {tmp_path}/a_3" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "a_2").rglob("*")) == ["info.json", "meta"]


@pytest.mark.e2e
@needs_gl
def test_datasets_have_every_control_step(tmp_path: Path) -> None:
    one, two = (make(tmp_path / name, [CAMERA]) for name in ("chunks", "steps"))
    actions = actions_for(one, 8)
    for env in (one, two):
        env.reset(seed=1)
    one.step_chunk(actions[:4].transpose(0, 1))  # episodes of 3 steps: the fourth action is not made
    for action in actions[:3]:
        two.step(action)
    for i in range(2):
        ours, theirs = (read(tmp_path / name / f"data/chunk-000/file-00{i}.parquet") for name in ("chunks", "steps"))
        assert ours == theirs
        assert len(ours["action"]) == 3


def test_rate_that_is_no_whole_number_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make(tmp_path / "data")
    env.cfg.sim_steps_per_control = 3  # of 0.01 s
    play(env, 3)
    assert "33.33 frames a second become 33" in capsys.readouterr().err
