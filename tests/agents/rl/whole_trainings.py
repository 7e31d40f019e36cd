"""Small trainings from a config to their last state, for comparisons bit for bit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.build import build_env_sets, build_envs, build_learner, build_trainer
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.run_folder import create_folder
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.state import freeze
from tests.agents.rl.fakes import ListSink, tiny_config, write_config

TIMES = ("charts/SPS", "time/", "wall_time", "async/")
PPO_CONFIG = {"n_epochs": 2, "batch_size": 4, "lr_schedule": "linear"}
GRPO_CONFIG = {"n_epochs": 2, "batch_size": 8, "group_size": 2, "kl_coef": 0.1, "truncate_at_first_done": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm__cfg": PPO_CONFIG},
    "grpo": {
        "trainer__num_envs": 4,
        "policy__name": "actor_only",
        "policy__critic": None,
        "algorithm": {"name": "grpo", "cfg": GRPO_CONFIG},
    },
}


@contextmanager
def built(folder: Path, **changes: Any) -> Iterator[tuple[Trainer, list[EmbodiedEnv]]]:
    """A trainer as the config makes it, and its environments."""
    run = load_run_config(write_config(folder, tiny_config(trainer__enable_eval=False, **changes)))
    torch.manual_seed(3)
    env, _ = build_envs(run)
    envs = [each for each in (env, *build_env_sets(run)) if isinstance(each, EmbodiedEnv)]
    policy, algorithm = build_learner(run, env, torch.device("cpu"))
    trainer = build_trainer(run, create_folder("tiny"), envs[0], None, policy, algorithm, more_sets=envs[1:])
    trainer.log, sink = RunLog([ListSink()]), trainer.log
    sink.close()
    yield trainer, envs
    for each in envs:
        each.close()


def after(folder: Path, iterations: int, start: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a training's state after so many iterations, those of ``start`` included, and what it logged."""
    with built(folder, **changes) as (trainer, envs):
        if start is not None:
            trainer.load_state_dict(start)
        trainer.train(iterations * 4 * envs[0].num_envs)
        sink = trainer.log._sinks[0]
        assert isinstance(sink, ListSink)
        kept = [{k: v for k, v in row.items() if not k.startswith(TIMES)} for _, row in sink.rows]
        return freeze(trainer.state_dict()) | {"rows": kept}


SAME = ("global_step", "policy", "algorithm", "generators", "statistics", "rows")
