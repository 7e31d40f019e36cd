"""Runs with a replay buffer: 2 environments, 4 steps an iteration, 12 slots of each environment that are sampled."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import main, train_from_config
from embodichain.cli import main as cli
from embodichain.utils.utility import load_json
from tests.agents.rl.distributed.processes import run_ranks
from tests.agents.rl.fakes import CART_POLE_ENV, assert_same, last_checkpoint, only_run, tiny_config, write_config
from tests.agents.rl.test_resume import rows, run_until, run_whole

pytestmark = pytest.mark.usefixtures("own_folder")


def replay_config(folder: Path = Path(), algorithm: Any = None, policy: Any = None, **changes: Any) -> str:
    """Write a config of episodes that are truncated after 7 steps."""
    config = tiny_config(
        trainer__gym_config=load_json(CART_POLE_ENV) | {"max_episode_steps": 7},
        trainer__iterations=6,
        trainer__eval_freq="5 it",
        trainer__num_eval_episodes=1,
        trainer__num_eval_envs=1,
        algorithm=algorithm or {"name": "off_policy_fake", "cfg": {"replay_capacity": 24}},
        **({"policy": policy} if policy else {}),
    )
    for name, value in changes.items():
        config["trainer"][name] = value
    return write_config(folder, config)


def segments_of(content: dict[str, Any], checkpoints: Path) -> list[Path]:
    return [checkpoints / "replay" / entry["file"] for entry in content["stores"]["replay"]["segments"]]


def stored(content: dict[str, Any], checkpoints: Path) -> dict[tuple[int, int], Any]:
    """Return the newest version of each slot that a checkpoint's segments have, by environment and position."""
    slots: dict[tuple[int, int], Any] = {}
    for path in segments_of(content, checkpoints):
        segment = load_checkpoint(path)
        fields = segment["slots"]
        spans = zip(segment["first"].tolist(), segment["last"].tolist(), strict=True)
        places = [(env, at) for env, (first, last) in enumerate(spans) for at in range(first, last + 1)]
        slots |= {place: {n: fields[n][i].tolist() for n in fields} for i, place in enumerate(places)}
    heads = content["stores"]["replay"]["state"]["head"].tolist()
    return {place: slot for place, slot in slots.items() if heads[place[0]] - 12 <= place[1] < heads[place[0]]}


def assert_same_trainings(ours: Path, theirs: Path) -> None:
    assert rows(ours) == rows(theirs)
    contents = [last_checkpoint(run) for run in (ours, theirs)]
    slots = [stored(content, run / "checkpoints") for content, run in zip(contents, (ours, theirs), strict=True)]
    assert len(slots[0]) == 24
    assert slots[0] == slots[1]
    for content in contents:  # segments begin where the saves were
        del content["stores"]["replay"]["segments"], content["config"], content["train_seconds"]
    assert_same(contents[0], contents[1])


SIMBA = {"type": "simba", "network_cfg": {"width": 4, "num_blocks": 1}}
LEARNS = {"replay_capacity": 24, "learning_starts": 8, "batch_size": 4, "updates_per_step": 0.375, "policy_delay": 2}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("soft_actor_critic", {"n_steps": 3, "weight_decay": 0.1, "lr_schedule": "linear"}),
    "td3": ("deterministic_actor_critic", {"n_steps": 2, "normalize_returns": True}),
}


# 16 steps of the warm-up and 4 an iteration: in the second iteration, and the evaluation after the fifth.
@pytest.mark.e2e
@pytest.mark.parametrize("step", [22, 38])
@pytest.mark.parametrize("name", LEARNERS)
def test_stopped_and_resumed_learner_equals_the_whole(name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, settings = LEARNERS[name]
    networks = {"name": policy, "actor": SIMBA, "critic": SIMBA, "value_range": [0, 10] if name == "sac" else None}
    config = replay_config(algorithm={"name": name, "cfg": LEARNS | settings}, policy=networks)
    whole = run_whole(config, monkeypatch)
    run = run_until(config, monkeypatch, step)
    assert main(["--resume", "latest"]) == 0
    assert rows(run)[-1]["train/actor_loss"]
    assert_same_trainings(run, whole)
    assert not list(run.rglob("*.tmp"))


def test_temporary_segment_of_a_killed_process_is_removed() -> None:
    assert main(["--config", replay_config(iterations=2)]) == 0
    replay = only_run() / "checkpoints/replay"
    (replay / "replay_rank_0_to_99_0123456789abcdef.pt.999999999-1.tmp").write_bytes(b"half")
    assert main(["--resume", "latest", "trainer.iterations=3"]) == 0
    assert not list(replay.glob("*.tmp"))


@pytest.mark.e2e
def test_lost_segment_is_named_and_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", replay_config()]) == 0
    segment = segments_of(last_checkpoint(only_run()), only_run() / "checkpoints")[0]
    segment.unlink()
    before = {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["--resume", "latest", "trainer.iterations=9"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[INFO]")]
    assert f"{segment}: cannot be read" in error
    assert error.endswith(": the replay buffer of the checkpoint cannot be restored")
    assert {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()} == before


@pytest.mark.e2e
def test_what_only_reads_the_policy_needs_no_segments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", replay_config()]) == 0
    run = only_run()
    shutil.rmtree(run / "checkpoints/replay")
    assert cli(["eval", str(run), "--episodes", "1"]) == 0
    assert cli(["eval", f"{run}/best", "--episodes", "1"]) == 0
    assert cli(["play", str(run), "--episodes", "1"]) == 0
    assert cli(["rewards", str(run), "--episodes", "2"]) == 0
    assert cli(["report", str(run)]) == 0
    assert cli(["export", str(run)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "replay" in line] == ["[INFO] replay buffer: 24 transitions, 0.0 MB when full"]


# --- two processes ---


def train_and_resume(rank: int, folder: Path) -> list[Path]:
    """Train at once, and in two parts; return the folders of both runs."""
    path = str(folder / "train_config.json")
    runs = []
    for name, iterations in (("whole", 6), ("half", 3)):
        (folder / name).mkdir(exist_ok=True)
        os.chdir(folder / name)
        summary = train_from_config(path, True, [f"trainer.iterations={iterations}"])
        if name == "half":
            summary = train_from_config(None, True, ["trainer.iterations=6"], resume=summary["run_folder"])
        runs.append(folder / name / summary["run_folder"])
    return runs


@pytest.mark.e2e
def test_each_process_resumes_its_own_replay_buffer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay_config(tmp_path, save_freq="1 it", keep_last=2, enable_eval=False)
    whole, half = run_ranks(2, train_and_resume, tmp_path, joined=False)[0]
    assert rows(half) == rows(whole)
    contents = [last_checkpoint(run) for run in (half, whole)]
    for get in (lambda content: content, lambda content: content["other_ranks"][0]):
        ours, theirs = (
            stored(get(content), run / "checkpoints") for content, run in zip(contents, (half, whole), strict=True)
        )
        assert ours == theirs
    assert stored(contents[0], half / "checkpoints") != stored(contents[0]["other_ranks"][0], half / "checkpoints")
    # Nothing is left that no checkpoint needs.
    needed = set()
    for path in (half / "checkpoints").glob("*.pt"):
        content = load_checkpoint(path)
        needed |= {name for part in (content, *content["other_ranks"]) for name in segments_of(part, path.parent)}
    assert set((half / "checkpoints/replay").iterdir()) == needed
    # Another number of processes.
    capsys.readouterr()
    assert main(["--resume", str(half), "--no-distributed", "trainer.iterations=7"]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "[WARNING]" in line]
    assert "the environments begin new episodes, and the replay buffers begin empty; " in warning
    assert last_checkpoint(half)["stores"]["replay"]["state"]["num_added"] == 4
