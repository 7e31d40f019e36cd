"""Trainings whose policy chooses chunks of actions, from the config. Legend: N = 2 envs, 4 steps in chunks of H = 2."""

from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import assert_same, read_metrics, tiny_config, write_config
from tests.agents.rl.test_nan_guard_training import env_with
from tests.agents.rl.whole_trainings import GRPO_CONFIG, SAME, after

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]

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
