"""The environment and hyperparameters that all learners share, from one of our training configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.utils import to_dict

TASKS = {
    "PushCubeRL": [
        "trainer.num_envs=64",
        "trainer.buffer_size=128",
        "algorithm.cfg.n_epochs=10",
        "algorithm.cfg.batch_size=2048",
        "algorithm.cfg.learning_rate=0.001",
        "algorithm.cfg.lr_schedule=constant",
        "policy.actor.network_cfg.hidden_sizes=[256,256]",
        "policy.critic.network_cfg.hidden_sizes=[256,256]",
        "policy.actor.network_cfg.activation=elu",
        "policy.critic.network_cfg.activation=elu",
    ],
    "CartPoleRL": ["algorithm.cfg.lr_schedule=constant"],
}
"""Overrides of each task's quickstart for the comparison of iterations."""
SUCCESS_TASKS = ("PushCubeRL", "ReachRL", "OpenDrawerRL")
"""Tasks of the comparison of the time to success, with their quickstarts as they are."""

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class Setting:
    """The hyperparameters of a PPO with an actor and a critic of the same shape.

    Attributes:
        run: our whole config.
        num_envs: environments.
        num_steps: rollout steps per environment.
        num_minibatches: per epoch.
        anneals: whether the learning rate decays to 0 over the training.
        value_coef: weight of the mean squared error, without a factor 1/2.
    """

    run: RunConfig
    num_envs: int
    num_steps: int
    hidden_sizes: tuple[int, ...]
    activation: str
    normalize_obs: bool
    init_log_std: float
    learning_rate: float
    anneals: bool
    num_epochs: int
    batch_size: int
    num_minibatches: int
    gamma: float
    gae_lambda: float
    clip: float
    entropy_coef: float
    value_coef: float
    max_grad_norm: float
    seed: int

    @property
    def gradient_steps(self) -> int:
        """Of an iteration."""
        return self.num_epochs * self.num_minibatches

    @property
    def iteration_steps(self) -> int:
        """Environment steps of an iteration."""
        return self.num_envs * self.num_steps

    @property
    def activation_class(self) -> type[nn.Module]:
        """PyTorch's class."""
        return ACTIVATIONS[self.activation]


def load_setting(task: str, overrides: Sequence[str] = (), changes: Mapping[str, Sequence[str]] = TASKS) -> Setting:
    """Return the setting of a task's quickstart: no evaluation, no videos, on the CPU.

    Args:
        overrides: overrides of the training config, such as ``trainer.num_envs=4``.
        changes: overrides of each task before them.

    Raises:
        ConfigError: the overrides are wrong.
        ValueError: not every learner supports them.
    """
    quiet = ["trainer.enable_eval=false", "trainer.events={}", "trainer.device=cpu", 'trainer.save_freq="1000000 it"']
    run = load_run_config(task, [*quiet, *changes.get(task, ()), *overrides])
    trainer, policy, algo = run.trainer, run.resolved["policy"], to_dict(run.algorithm)
    network: dict[str, Any] = policy["actor"]["network_cfg"]
    if policy["critic"]["network_cfg"] != network:
        raise ValueError("actor and critic must have the same shape")
    if (schedule := algo.get("lr_schedule", "constant")) == "adaptive":
        raise ValueError("the learning rate must be constant, or decay to 0")
    steps = run.env.num_envs * trainer.buffer_size
    if steps % algo["batch_size"]:
        raise ValueError(f"{steps} steps do not divide into minibatches of {algo['batch_size']}: not every learner can")
    return Setting(
        run=run,
        num_envs=run.env.num_envs,
        num_steps=trainer.buffer_size,
        hidden_sizes=tuple(network["hidden_sizes"]),
        activation=network["activation"],
        normalize_obs=policy.get("normalize_obs", False),
        init_log_std=policy.get("init_log_std", 0.0),
        learning_rate=algo["learning_rate"],
        anneals=schedule == "linear",
        num_epochs=algo["n_epochs"],
        batch_size=algo["batch_size"],
        num_minibatches=steps // algo["batch_size"],
        gamma=algo["gamma"],
        gae_lambda=algo["gae_lambda"],
        clip=algo["clip_coef"],
        entropy_coef=algo["ent_coef"],
        value_coef=algo["vf_coef"] / 2,  # our value loss has the factor 1/2
        max_grad_norm=algo["max_grad_norm"],
        seed=trainer.seed,
    )
