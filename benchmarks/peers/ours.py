"""This library's real trainer: config, managers, trainer, guards, logs."""

from __future__ import annotations

from tensordict import TensorDict

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.agents.rl.build import build_learner, build_trainer
from embodichain.agents.rl.distributed.stop import StopSignals
from embodichain.agents.rl.run_folder import create_folder
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.device import resolve_device


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train as ``python -m embodichain.agents.rl.train`` does."""
    run = setting.run
    policy, algorithm = build_learner(run, env, resolve_device(run.trainer.device))
    stop = StopSignals()
    folder = create_folder(run.trainer.exp_name)
    clock.act = lambda flat: policy.get_action(TensorDict({"obs": flat}, [len(flat)]), deterministic=True)["action"]
    clock.count_as_update(algorithm, "update", is_last=True)
    clock.count_as_update(policy, "update_normalizer")  # follows the update: counts for the next iteration
    trainer = build_trainer(run, folder, env, None, policy, algorithm, None, stop.check)
    try:
        with stop:
            trainer.train(iterations * setting.iteration_steps)
    finally:
        trainer.log.close()
