"""Distillations by the trainer, through the commands: 2 environments, 4 steps an iteration."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo.distillation import Distillation
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import train_from_config
from embodichain.lab.gym.envs.managers import locomotion_observations
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, NETWORK, assert_same, tiny_config, write_config
from tests.agents.rl.whole_trainings import built

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]

RECURRENT = {"name": "actor_critic_recurrent", "hidden_size": 3, "actor": NETWORK, "critic": NETWORK}
DISTILLATION = {"name": "distillation", "cfg": {"n_epochs": 2, "batch_size": 8}}


def summary_of(config: dict[str, Any]) -> dict[str, Any]:
    return train_from_config(write_config(Path(), config))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run whose policy reads all, ``robot/qf`` included."""
    with chdir(tmp_path_factory.mktemp("teacher")):
        run = summary_of(tiny_config(trainer__exp_name="teacher", trainer__iterations=1))["run_folder"]
        return str(Path(run).absolute())


def joint_velocities(env: Any) -> torch.Tensor:
    """Return the velocities of both joints, [N, 2]."""
    velocities: torch.Tensor = env.robot.get_qvel()
    return velocities


joint_velocities.__module__ = locomotion_observations.__name__  # the terms of a module are what it defines


def pupil(teacher: str, **changes: Any) -> dict[str, Any]:
    policy = {"name": "actor_only", "actor": NETWORK, "obs_groups": {"actor": ["robot/qpos"]}, "teacher": teacher}
    return {"policy": policy, "algorithm": DISTILLATION, **changes}


@pytest.mark.parametrize("policy", [{}, RECURRENT])
def test_resumed_distillation_equals_an_uninterrupted_one(
    teacher: str, policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = pupil(teacher, trainer__iterations=4)
    changes["policy"] |= policy
    path = write_config(Path(), tiny_config(**changes))
    whole = load_checkpoint(Path(train_from_config(path)["checkpoint"]))
    with monkeypatch.context() as patch:
        calls, update = iter(range(3)), Distillation.update
        patch.setattr(Distillation, "update", lambda self, data: update(self, data) if next(calls) < 2 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_from_config(path)
    again = load_checkpoint(Path(train_from_config(None, resume="latest")["checkpoint"]))
    for name in ("policy", "algorithm", "generators", "env"):
        assert_same(again[name], whole[name])


def test_student_runs_and_then_learns_by_ppo(teacher: str, capsys: pytest.CaptureFixture[str]) -> None:
    student = summary_of(tiny_config(trainer__exp_name="student", **pupil(teacher)))
    groups = {"actor": ["robot/qpos"]}
    ppo = tiny_config(
        trainer__iterations=1,
        policy__init_from=student["run_folder"],
        policy__obs_groups=groups,
        algorithm__cfg={"learning_rate": 1e-30},
    )
    trained = summary_of(ppo)
    assert "has no critic: it begins at random" in capsys.readouterr().err
    before, now = (load_checkpoint(run["checkpoint"])["policy"] for run in (student, trained))
    assert torch.equal(before["actor.1.0.weight"], now["actor.1.0.weight"])


@pytest.mark.parametrize(("group", "columns"), [(["*"], range(6, 12)), (["clean/*"], range(6))])
def test_teacher_reads_its_own_entries_by_name(
    teacher: str, group: list[str], columns: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locomotion_observations, "joint_vel", joint_velocities)
    copies = {name: {"func": "joint_vel", "name": f"clean/robot/{name}"} for name in ("qpos", "qvel", "qf")}
    data = load_json(CART_POLE_ENV)
    data["env"]["observations"] |= copies
    changes = pupil(teacher, trainer__gym_config=data)
    changes["policy"]["obs_groups"]["teacher"] = group
    with built(Path(), **changes) as (trainer, _):
        algorithm = trainer.algorithm
        assert isinstance(algorithm, Distillation)
        # qf, qpos and qvel of 2 joints, in this order, and the copies before them
        assert algorithm.teacher.columns.tolist() == list(columns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": None}, r"^policy\.teacher: is needed by algorithm\.name 'distillation'"),
        ({"teacher": "nowhere"}, r"^policy\.teacher: nowhere: no such run"),
        ({"obs_groups": {"teacher": ["robot/qvel"]}}, r"^policy\.obs_groups\.teacher: the teacher reads 'robot/q"),
    ],
)
def test_mistake_is_one_line(teacher: str, changes: dict[str, Any], message: str) -> None:
    config = tiny_config(**pupil(teacher))
    config["policy"] |= changes
    with pytest.raises(ConfigError, match=message):
        summary_of(config)


def test_teacher_with_other_actions_is_refused(teacher: str) -> None:
    with pytest.raises(ConfigError, match=r"^policy\.teacher: .*: its actions are env\.actions .*0\.1.* here .*0\.2"):
        train_from_config(
            write_config(Path(), tiny_config(**pupil(teacher))),
            overrides=["env.actions.delta_qpos.params.scale=0.2"],
        )


def test_entry_that_two_may_be_is_refused(teacher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locomotion_observations, "joint_vel", joint_velocities)
    names = [f"{kind}/robot/{name}" for kind in ("clean", "noisy") for name in ("qpos", "qvel", "qf")]
    data = load_json(CART_POLE_ENV)
    data["env"]["observations"] |= {name.replace("/", "_"): {"func": "joint_vel", "name": name} for name in names}
    changes = pupil(teacher, trainer__gym_config=data)
    changes["policy"]["obs_groups"]["teacher"] = ["clean/*", "noisy/*"]
    with pytest.raises(ConfigError, match=r"the teacher reads 'robot/qf' \[2\]; there are clean/robot/qf \[2\]"):
        summary_of(tiny_config(**changes))
