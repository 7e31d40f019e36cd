"""Trainings of some algorithms through the commands: 2 environments, 4 steps an iteration.

Behaviour cloning makes 2 updates of 8 frames an iteration; chunks have H = 2 actions.
"""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo import BC
from embodichain.agents.rl.algo.distillation import Distillation
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import main as train
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.lab.gym.envs.managers import locomotion_observations
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import (
    CART_POLE_ENV,
    NETWORK,
    assert_same,
    give_cart_pole_an_expert,
    last_checkpoint,
    only_run,
    read_metrics,
    tiny_config,
    write_config,
)
from tests.agents.rl.whole_trainings import GRPO_CONFIG, SAME, after, built

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


def short() -> dict[str, Any]:
    """Return the cart-pole's config with episodes of 5 steps: with ``expert`` no fall ends them."""
    return load_json(CART_POLE_ENV) | {"max_episode_steps": 5}


def pupil(teacher: str, **changes: Any) -> dict[str, Any]:
    policy = {"name": "actor_only", "actor": NETWORK, "obs_groups": {"actor": ["robot/qpos"]}, "teacher": teacher}
    return {"policy": policy, "algorithm": DISTILLATION, "trainer__gym_config": short(), **changes}


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
        trainer__gym_config=short(),
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
    data = short()
    data["env"]["observations"] |= copies
    changes = pupil(teacher, trainer__gym_config=data)
    changes["policy"]["obs_groups"]["teacher"] = group
    with built(Path(), **changes) as (trainer, _):
        algorithm = trainer.algorithm
        assert isinstance(algorithm, Distillation)
        # qf, qpos and qvel of 2 joints, in this order, and the copies before them
        assert algorithm.teacher.columns.tolist() == list(columns)


def test_entries_of_the_teachers_critic_need_not_be_there(teacher: str) -> None:
    student = summary_of(tiny_config(trainer__exp_name="student", **pupil(teacher)))["run_folder"]
    changes = pupil(student)
    changes["policy"]["obs_groups"]["teacher"] = ["robot/qpos"]
    with built(Path(), **changes) as (trainer, _):
        algorithm = trainer.algorithm
        assert isinstance(algorithm, Distillation)
        assert algorithm.teacher.columns.tolist() == [-1, -1, 2, 3, -1, -1]  # of qf, qpos and qvel it reads qpos alone


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
    data = short()
    data["env"]["observations"] |= {name.replace("/", "_"): {"func": "joint_vel", "name": name} for name in names}
    changes = pupil(teacher, trainer__gym_config=data)
    changes["policy"]["obs_groups"]["teacher"] = ["clean/*", "noisy/*"]
    with pytest.raises(ConfigError, match=r"the teacher reads 'robot/qf' \[2\]; there are clean/robot/qf \[2\]"):
        summary_of(tiny_config(**changes))


@pytest.fixture(autouse=True)
def expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the cart-pole an expert, which succeeds in every environment but number 1."""
    give_cart_pole_an_expert(monkeypatch)

    def compute_task_state(self: CartPoleEnv, **kwargs: Any) -> Any:
        success = (self.all_env_ids != 1) & (self.elapsed_steps >= 5)
        return success, self._never, {"pole_angle": self.robot.get_qpos("hand")[:, 0]}

    monkeypatch.setattr(CartPoleEnv, "compute_task_state", compute_task_state)


def config(**changes: Any) -> dict[str, Any]:
    settings = {"updates_per_iteration": 2, "batch_size": 8, "num_demonstrations": 4}
    return tiny_config(
        trainer__gym_config=short(),
        trainer__iterations=4,
        trainer__eval_freq="4 it",
        algorithm={"name": "bc", "cfg": settings},
        **changes,
    )


@pytest.mark.parametrize("name", ["pick_cube", "pick_cube/bc"])
def test_config_of_a_task_is_found_by_either_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embodichain.commands.train.train_as_command", lambda args: args.config == "pick_cube/bc")
    assert main(["bc", name])


@pytest.mark.ext
def test_run_of_a_cloning_is_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bc", write_config(Path(), config())]) == 0
    err = capsys.readouterr().err
    assert "demonstrations: the scripted expert of CartPoleRL: 3 episodes of 15 steps" in err  # one of 4 failed
    run = only_run()
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 4
    assert "train/imitation_loss" in rows[0]
    assert "eval/avg_reward" in rows[-1]
    for command in (["eval", "--episodes", "1"], ["report"]):
        assert main([*command, str(run)]) == 0


def test_resumed_cloning_equals_an_uninterrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(Path(), config())
    whole = Path(train_from_config(path)["run_folder"]).rename("whole")
    with monkeypatch.context() as patch:
        calls, update = iter(range(3)), BC.update
        patch.setattr(BC, "update", lambda self, rollout: update(self, rollout) if next(calls) < 2 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_from_config(path)
    cut = only_run()
    monkeypatch.setattr(CartPoleEnv, "expert_action", None)  # which is not asked again
    assert main(["resume", str(cut)]) == 0
    for name in ("policy", "algorithm", "generators"):
        assert_same(last_checkpoint(cut)[name], last_checkpoint(whole)[name])


def test_training_continues_from_the_latest_run_of_a_name() -> None:
    cloned = train_from_config(write_config(Path(), config(trainer__exp_name="clone")))
    ppo = tiny_config(trainer__iterations=1, policy__init_from="outputs/clone", algorithm__cfg={"learning_rate": 1e-30})
    trained = train_from_config(write_config(Path(), ppo))
    before, after = (load_checkpoint(run["checkpoint"])["policy"] for run in (cloned, trained))
    assert torch.equal(before["actor.0.weight"], after["actor.0.weight"])
    ppo["policy"]["init_from"] = "outputs/clon"
    with pytest.raises(ConfigError, match=r"policy\.init_from: outputs/clon: no such run"):
        train_from_config(write_config(Path(), ppo))


def test_number_of_the_expert_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")
    monkeypatch.setattr(CartPoleEnv, "expert_action", lambda self: torch.full((self.num_envs, 1), nan))
    with pytest.raises(ConfigError, match=r"scripted expert of CartPoleRL: episode 0: .*nan|failed"):
        train_from_config(write_config(Path(), config()))


CHUNKS: dict[str, dict[str, Any]] = {
    "ppo": {"policy__chunk_length": 2, "algorithm__cfg": {"n_epochs": 2, "batch_size": 4, "logprob_level": "chunk"}},
    "grpo": {
        "trainer__num_envs": 4,
        "policy__chunk_length": 2,
        "policy__name": "actor_only",
        "policy__critic": None,
        "algorithm": {"name": "grpo", "cfg": {**GRPO_CONFIG, "logprob_level": "token"}},
    },
}


@pytest.mark.parametrize("name", list(CHUNKS))
def test_run_trains_evaluates_and_is_resumed(tmp_path: Path, name: str) -> None:
    run = Path(train_from_config(write_config(tmp_path, tiny_config(**CHUNKS[name])))["run_folder"])
    train_from_config(None, resume=str(run), overrides=["trainer.iterations=3"])
    size = 8 if name == "ppo" else 16
    assert [row["step"] for row in read_metrics(run)] == [size, 2 * size, 3 * size]
    assert all(row["eval/avg_length"] > 1 for row in read_metrics(run))
    actor = load_checkpoint(run / f"checkpoints/tiny_step_{3 * size}.pt")["policy"]["log_std"]
    assert actor.shape == (2,)  # one action component, two actions


def test_steps_that_were_not_executed_are_not_counted(tmp_path: Path) -> None:
    changes = {"trainer__enable_eval": False, "trainer__gym_config": env_with() | {"max_episode_steps": 3}}
    path = write_config(tmp_path, tiny_config(**CHUNKS["ppo"], **changes))
    run = Path(train_from_config(path)["run_folder"])
    # episodes of 3 steps in chunks of 2: of two chunks, 3 of 4 steps are made, in each of 2 environments
    assert [row["step"] for row in read_metrics(run)] == [6, 12]


def test_chunks_of_one_train_as_single_actions_do_bit_for_bit(tmp_path: Path) -> None:
    plain, ones = after(tmp_path, 2), after(tmp_path, 2, policy__chunk_length=1)
    for part in SAME:
        assert_same(ones[part], plain[part], part)


@pytest.mark.ext
def test_rollout_that_a_vlas_chunks_do_not_divide_is_refused(tmp_path: Path) -> None:
    policy = {"name": "vla", "vla_config": {"model_config": {"chunk_length": 3}}}
    with pytest.raises(ConfigError, match=r"trainer\.buffer_size: 4 steps .* chunks of 3"):
        load_run_config(write_config(tmp_path, tiny_config(policy=policy)))
    policy["vla_config"] = {}  # our models' default is 8
    with pytest.raises(ConfigError, match=r"trainer\.buffer_size: 4 steps .* chunks of 8"):
        load_run_config(write_config(tmp_path, tiny_config(policy=policy)))


FAILURES = "tests.agents.rl.failures"
ALLOW = ["--allow-import", FAILURES]


def env_with(kind: str = "", **term: Any) -> dict[str, Any]:
    """Return CartPole's config with one term more."""
    env = load_json(CART_POLE_ENV)
    if kind:
        env["env"].setdefault(kind, {})["bad"] = term
    return env


def guarded(env: dict[str, Any], algorithm: str = "ppo", **changes: Any) -> str:
    settings: dict[str, Any] = {"n_epochs": 2, "batch_size": 8}
    if algorithm == "grpo":
        changes |= {"policy__name": "actor_only", "policy__critic": None}
        settings |= {"group_size": 2}
    given: dict[str, Any] = {
        "trainer__gym_config": env,
        "trainer__enable_eval": False,
        "trainer__import_modules": [FAILURES],
        "trainer__iterations": 4,
        "trainer__max_skipped_updates": 2,
        "policy__normalize_obs": False,
        "algorithm": {"name": algorithm, "cfg": settings},
    }
    return write_config(Path(), tiny_config(**given | changes))


@pytest.mark.ext
@pytest.mark.parametrize(("algorithm", "asynchronous"), [("grpo", None), ("ppo", {"max_staleness": 2})])
def test_nan_reward_costs_its_updates_alone(
    algorithm: str, asynchronous: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    # Steps 6 and 7 are in the second iteration: its 2 gradient steps are skipped, all others are made.
    term = {"func": f"{FAILURES}.bad_reward", "params": {"since": 6, "until": 8}}
    path = guarded(env_with("rewards", **term), algorithm, trainer__asynchronous=asynchronous)
    assert train(["--config", path, *ALLOW]) == 0
    assert [row["train/skipped_steps"] for row in read_metrics(only_run())] == [0, 2, 0, 0]
    assert [row["train/policy_loss"] is None for row in read_metrics(only_run())] == [False, True, False, False]
    assert [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line] == [
        "[WARNING] step 16: 2 of 2 gradient steps skipped: loss or gradient not finite (reward not finite in "
        "environments [1], rewards/bad)"
    ]


def test_run_without_gradient_steps_ends_with_its_state_saved(capsys: pytest.CaptureFixture[str]) -> None:
    term = {"func": f"{FAILURES}.bad_reward", "params": {"since": 6}}
    assert train(["--config", guarded(env_with("rewards", **term), trainer__save_freq="1 it"), *ALLOW]) == 1
    run = only_run()
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: step 24: 2 updates in a row without a gradient step, since loss or gradient was not finite"
        " (reward not finite in environments [1], rewards/bad) (trainer.max_skipped_updates)"
    )
    assert [row["step"] for row in read_metrics(only_run())] == [8, 16]
    first, second = (load_checkpoint(run / "checkpoints" / f"tiny_step_{step}.pt") for step in (8, 16))
    assert_same(second["policy"], first["policy"])
    assert_same(second["algorithm"], first["algorithm"])


@pytest.mark.parametrize(("bad", "normalize"), [("inf", False), ("-inf", True)])
def test_infinite_observation_ends_the_run(bad: str, normalize: bool, capsys: pytest.CaptureFixture[str]) -> None:
    # A normaliser would cut it to 10, and tanh to 1: both would hide it. From the warm-up on, so that no row is whole.
    term = {"func": f"{FAILURES}.bad_observation", "mode": "add", "name": "robot/odd", "params": {"bad": bad}}
    path = guarded(env_with("observations", **term), policy__normalize_obs=normalize)
    assert train(["--config", path, *ALLOW]) == 1
    assert [row["train/skipped_steps"] for row in read_metrics(only_run())] == [2]
    err = capsys.readouterr().err
    assert "2 of 2 gradient steps skipped: loss or gradient not finite (obs not finite in environments [1])" in err
    assert "error: step 16: 2 updates in a row without a gradient step" in err


def test_absurd_observation_is_named_and_not_normalised(capsys: pytest.CaptureFixture[str]) -> None:
    # Observations 3 to 18 are of the warm-up; the second iteration's are 23 to 26.
    params = {"since": 24, "until": 25, "bad": "1e9"}
    term = {"func": f"{FAILURES}.bad_observation", "mode": "add", "name": "robot/odd", "params": params}
    path = guarded(env_with("observations", **term), policy__normalize_obs=True)
    assert train(["--config", path, *ALLOW]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    # The entry was always 0, and has the std of the smallest variance, the root of 1e-8.
    assert "step 16: obs[1] (robot/odd) was 1e+09 in environment 1, where 0 ± 0.0001 was expected" in warning
    (checkpoint,) = (only_run() / "checkpoints").glob("*.pt")
    policy = load_checkpoint(checkpoint)["policy"]
    assert policy["normalizer.scale"][1] > 1e3  # 1e9 among 66 numbers would have made it 1e-8
    assert all(row["train/skipped_steps"] == 0 for row in read_metrics(only_run()))


def test_learning_rate_that_is_too_high_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert train(["--config", guarded(env_with(), "ppo", algorithm__cfg__learning_rate=1e38), *ALLOW]) == 1
    err = capsys.readouterr().err
    assert "gradients were finite and the steps too large: the learning rate of 1e+38 is too high" in err
    assert "its algorithm" not in err


def test_diverged_physics_is_counted_and_warned_of_above_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_with()
    env["env"]["actions"] = {"hold": {"func": f"{FAILURES}.bad_drive", "params": {"period": 7}}}
    assert train(["--config", guarded(env), *ALLOW]) == 0
    # Steps 0, 7 and 14, of 4 an iteration. Once in 8 environment steps is above the rate, in the first iteration and in
    # the second: one warning for both. The third is below, the fourth above again.
    assert [row["charts/diverged_episodes"] for row in read_metrics(only_run())] == [1, 1, 0, 1]
    assert all(row["train/skipped_steps"] == 0 for row in read_metrics(only_run()))
    err = capsys.readouterr().err
    assert err.count("physics became invalid in 1 of 8 environment steps, in environments [1]: ") == 2
