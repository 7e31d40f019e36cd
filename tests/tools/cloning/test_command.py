from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.file import load_checkpoint, save_checkpoint
from embodichain.agents.rl.checkpoint.run_access import RunLock
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.models import TinyVLA, load_vla_model
from embodichain.cli import main
from embodichain.tools.cloning import cloning, folder, run
from embodichain.tools.cloning.config import load_bc_config
from embodichain.tools.cloning.run import clone_from_config, resume_cloning
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import assert_same

REPOSITORY = Path(__file__).resolve().parents[3]
SHIPPED = REPOSITORY / "configs/agents/rl/push_colored_cube"
TINY = {"channels": [4, 4, 4], "width": 8, "depth": 1, "heads": 2, "chunk_length": 4}

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def configs(folder: Path, **bc: Any) -> Path:
    """Write a tiny model's configs into a folder, and return the path of the cloning's."""
    train = load_json(SHIPPED / "train_config.json")
    train["trainer"]["gym_config"] = str(SHIPPED / "gym_config.json")
    train["policy"]["vla_config"] |= {"model_path": "outputs/model", "model_config": TINY}
    write(folder, "train.json", train)
    cfg = {"train_config": "train.json", "num_episodes": 2, "num_envs": 2, "steps": 3, "batch_size": 4}
    return write(folder, "bc.json", cfg | {"num_eval_episodes": 2} | bc)


@needs_gl
def test_expert_is_cloned_recorded_and_the_model_is_where_the_training_looks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = configs(tmp_path, record="outputs/data/set")
    assert main(["bc", str(path), "learning_rate=0.001"]) == 0
    out = capsys.readouterr().out
    assert "2 episodes" in out
    assert "success rate" in out
    model = load_vla_model("outputs/model", "embodichain.agents.rl.models.TinyVLA")
    assert isinstance(model, TinyVLA)
    assert model.state_std[-1] != 1.0  # fitted to the demonstrations
    summary = json.loads(Path("outputs/model/bc.json").read_text())
    assert (summary["episodes"], summary["steps"], summary["config"]["learning_rate"]) == (2, 3, 0.001)
    again = configs(tmp_path, dataset="outputs/data/set", out="outputs/second", num_eval_episodes=0)
    assert clone_from_config(again)["episodes"] == 2


@needs_gl
def test_one_seed_gives_one_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        clone_from_config(configs(tmp_path, out=f"outputs/{name}", num_eval_episodes=0, num_episodes=1, num_envs=1))
    states = [load_vla_model(f"outputs/{n}", "embodichain.agents.rl.models.TinyVLA").state_dict() for n in ("a", "b")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_shipped_config_names_the_training_that_goes_on_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load_bc_config(SHIPPED / "bc_config.json")
    assert (REPOSITORY / cfg.train_config).is_file()
    assert load_json(REPOSITORY / cfg.train_config)["policy"]["vla_config"]["model_path"]


@pytest.mark.parametrize(
    ("bc", "message"),
    [
        ({"train_config": "none.json"}, r"train_config: no such file: .*none\.json"),
        ({"stesp": 3}, r"stesp: unknown key\. Did you mean 'steps'"),
        ({"steps": 0}, r"steps: .*greater than 0"),
        ({"learning_rate": "fast"}, r"learning_rate"),
        ({"device": "cuda:99"}, r"'cuda:99' cannot be used"),
    ],
)
def test_wrong_configs_are_refused_before_anything_is_built(tmp_path: Path, bc: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone_from_config(configs(tmp_path, **bc))


@pytest.mark.parametrize("there", ["config.json", "checkpoints/bc_step_0.pt"])
def test_model_that_is_there_or_was_begun_is_not_overwritten(tmp_path: Path, there: str) -> None:
    path = configs(tmp_path)
    Path("outputs/model", there).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"unfinished model: 'embodichain bc --resume outputs/model' continues"):
        clone_from_config(path)


@pytest.mark.parametrize(
    "train", [str(REPOSITORY / "configs/agents/rl/basic/cart_pole/train_config.json"), "cart_pole"]
)
def test_task_without_an_expert_needs_a_dataset(tmp_path: Path, train: str) -> None:
    with pytest.raises(ConfigError, match=r"dataset: CartPoleEnv has no scripted expert .*: name a dataset instead"):
        clone_from_config(configs(tmp_path, train_config=train), allowed_imports=())


@needs_gl
def test_recording_of_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="record: only the expert's episodes are recorded"):
        clone_from_config(configs(tmp_path, record="x", dataset="y"))


def test_wrong_override_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"steps: .* \(set by the override 'steps=-1'\)"):
        clone_from_config(configs(tmp_path), ["steps=-1"])


@needs_gl
def test_two_clonings_do_not_write_into_one_folder(tmp_path: Path) -> None:
    path = configs(tmp_path, num_eval_episodes=0)
    Path("outputs/model").mkdir(parents=True)
    with RunLock() as lock:
        lock.take(Path("outputs/model"))
        with pytest.raises(ConfigError, match=f"outputs/model: process {os.getpid()} on .* trains in this folder"):
            clone_from_config(path)


# --- stopping and going on ---

SMALL = {"num_eval_episodes": 0, "num_episodes": 1, "num_envs": 1, "save_freq": 2, "steps": 5}


class Killed(BaseException):
    """Stands for the end of the process."""


def last(folder: str) -> dict[str, Any]:
    """Return what the last checkpoint holds that the next steps depend on."""
    return load_checkpoint(f"outputs/{folder}/checkpoints/bc_step_5.pt")["cloning_state"]


@needs_gl
def test_resumed_cloning_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = clone_from_config(configs(tmp_path, out="outputs/whole", **SMALL))
    path = configs(tmp_path, out="outputs/cut", **SMALL)
    Path("outputs/cut/checkpoints").mkdir(parents=True)  # left by a process that was killed before it saved
    with monkeypatch.context() as patch:
        calls = iter(range(4))  # the fourth step is begun, and the checkpoint of the second is the last
        patch.setattr(cloning, "cloning_loss", lambda *args: LOSS(*args) if next(calls) < 3 else kill())
        with pytest.raises(Killed):
            clone_from_config(path)
    assert not Path("outputs/cut/bc.json").exists()
    capsys.readouterr()
    assert main(["bc", "--resume", "outputs/cut"]) == 0
    out, err = capsys.readouterr()
    assert "resuming from outputs/cut/checkpoints/bc_step_2.pt" in err
    assert f"for 5 steps, loss {whole['loss']:.3f} nats" in out
    assert_same(last("cut"), last("whole"))
    weights = [Path(f"outputs/{name}/model.safetensors").read_bytes() for name in ("cut", "whole")]
    assert weights[0] == weights[1]
    # All is done: nothing is done again.
    assert resume_cloning("outputs/cut")["loss"] == whole["loss"]


LOSS = cloning.cloning_loss


def kill(*args: Any) -> Any:
    raise Killed


@needs_gl
def test_signal_saves_the_steps_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configs(tmp_path, **SMALL | {"save_freq": 100})
    with monkeypatch.context() as patch:
        checks = iter([None, None, InterruptedTraining(15)])
        patch.setattr(StopSignals, "check", lambda self: raise_if_given(next(checks)))
        assert main(["bc", str(path)]) == 143
    assert "stopped at step 3; 'embodichain bc --resume outputs/model' resumes from there" in capsys.readouterr().err
    assert Path("outputs/model/checkpoints/bc_step_3.pt").exists()
    # More steps may be asked for, but not another rate.
    assert main(["bc", "--resume", "outputs/model", "learning_rate=0.1"]) == 2
    error = capsys.readouterr().err
    assert "learning_rate: 0.0005 in the run, 0.1 now" in error
    assert "a resumed cloning may change steps, save_freq, device, num_eval_episodes" in error
    assert main(["bc", "--resume", "outputs/model", "steps=6"]) == 0
    assert "for 6 steps" in capsys.readouterr().out


def raise_if_given(error: BaseException | None) -> None:
    if error is not None:
        raise error


@needs_gl
def test_kill_in_the_evaluation_loses_neither_model_nor_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configs(tmp_path, **SMALL | {"num_eval_episodes": 1})
    with monkeypatch.context() as patch:
        patch.setattr(run, "_evaluate", kill)
        with pytest.raises(Killed):
            clone_from_config(path)
    record = json.loads(Path("outputs/model/bc.json").read_text())
    assert (record["steps"], record["success_rate"]) == (5, None)
    weights = Path("outputs/model/model.safetensors").read_bytes()
    assert main(["bc", str(path)]) == 2
    assert "'embodichain bc --resume outputs/model' continues it" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(run, "_demonstrations", kill)  # which are not needed any more
        assert main(["bc", "--resume", "outputs/model"]) == 0
    assert "success rate" in capsys.readouterr().out
    assert Path("outputs/model/model.safetensors").read_bytes() == weights
    evaluated = json.loads(Path("outputs/model/bc.json").read_text())
    assert evaluated["metrics"].keys() == {"ik_success", "pushed", "disturbed"}
    tried = ("success_rate", "success_interval_95", "metrics")
    assert evaluated == record | {name: evaluated[name] for name in tried}


@needs_gl
def test_forged_checkpoints_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = configs(tmp_path, **SMALL | {"steps": 1})
    clone_from_config(path)
    file = Path("outputs/model/checkpoints/bc_step_1.pt")
    content = load_checkpoint(file)
    state = content["cloning_state"]
    moments = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)} for number in (0,)
    }
    for forged, message in (
        ({"kind": "else"}, "is not of a behaviour cloning"),
        ({"cloning_state": {}}, "is not the checkpoint of a cloning: cloning_state.step: Field required"),
        ({"cloning": {"steps": "many"}}, "train_config: required"),
        ({"cloning_state": state | {"optimizer": {}}}, "does not hold the state of this cloning: KeyError"),
        (
            {"cloning_state": state | {"optimizer": state["optimizer"] | {"state": moments}}},
            "the optimizer's state is that of another model",
        ),
    ):
        save_checkpoint(file, content | forged)
        assert main(["bc", "--resume", "outputs/model", "steps=2"]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err


# --- where is written ---


def test_model_and_dataset_go_below_outputs_or_where_it_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name, allowed, expected in (
        ("outputs/x", [], "outputs/x"),
        ("x", [], "outputs/x"),
        (str(elsewhere / "x"), [], "outputs/x"),
        ("../x", [], "outputs/x"),
        ("outputs/../../x", [], "outputs/x"),
        (str(elsewhere / "x"), [elsewhere], str(elsewhere / "x")),
        ("elsewhere/x", ["elsewhere"], "elsewhere/x"),
    ):
        assert folder.place(name, allowed) == Path(expected)
    assert f"save_path '{elsewhere / 'x'}' leads out" in capsys.readouterr().err


@needs_gl
def test_config_of_a_stranger_writes_nowhere_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    elsewhere = tmp_path / "elsewhere"
    path = configs(tmp_path, out=str(elsewhere / "m"), record=str(elsewhere / "d"), **SMALL | {"steps": 1})
    assert main(["bc", str(path)]) == 0
    assert not elsewhere.exists()
    assert sorted(entry.name for entry in Path("outputs").iterdir()) == ["d", "m"]
    assert f"--allow-write {elsewhere / 'm'}" in capsys.readouterr().err
    assert main(["bc", str(path), "--allow-write", str(elsewhere)]) == 0
    assert sorted(entry.name for entry in elsewhere.iterdir()) == ["d", "m"]


def test_training_that_would_not_find_the_model_is_told_before(tmp_path: Path) -> None:
    path = configs(tmp_path)
    train = load_json(tmp_path / "train.json")
    train["policy"]["vla_config"]["model_path"] = str(tmp_path / "model")
    write(tmp_path, "train.json", train)
    with pytest.raises(ConfigError, match=r"model_path '.*model' is not below outputs: allow .*--allow-write .*model"):
        clone_from_config(path)


def test_config_and_resume_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["bc"], ["bc", "x.json", "--resume", "y"]):
        with pytest.raises(SystemExit, match="2"):
            main(argv)
        assert "--resume" in capsys.readouterr().err
