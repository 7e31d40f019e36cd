"""Behaviour cloning by the trainer, through the commands. Legend: 2 updates of 8 frames an iteration."""

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo import BC
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import (
    CART_POLE_ENV,
    assert_same,
    give_cart_pole_an_expert,
    last_checkpoint,
    only_run,
    tiny_config,
    write_config,
)

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]


@pytest.fixture(autouse=True)
def expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the cart-pole an expert, which succeeds in every episode but those of environment 1."""
    give_cart_pole_an_expert(monkeypatch)

    def compute_task_state(self: CartPoleEnv, **kwargs: Any) -> Any:
        success = (self.all_env_ids != 1) & (self.elapsed_steps >= 5)
        return success, self._never, {"pole_angle": self.robot.get_qpos("hand")[:, 0]}

    monkeypatch.setattr(CartPoleEnv, "compute_task_state", compute_task_state)


def config(**changes: Any) -> dict[str, Any]:
    settings = {"updates_per_iteration": 2, "batch_size": 8, "num_demonstrations": 4}
    return tiny_config(
        trainer__gym_config=load_json(CART_POLE_ENV) | {"max_episode_steps": 5},
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
