"""skrl's PPO: its ``SequentialTrainer`` on our environment, with TensorBoard."""

from __future__ import annotations

from typing import Any

import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import Wrapper
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer
from torch import nn

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import flatten_dict_observation


class SkrlEnv(Wrapper):  # type: ignore[misc]
    """Our environment with skrl's interface; it resets itself in the same step, like Isaac Lab's."""

    @property
    def observation_space(self) -> Any:
        """Observation space of one environment, flat."""
        return self._env.flattened_observation_space

    @property
    def action_space(self) -> Any:
        """Action space of one environment."""
        return self._env.single_action_space

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the first observation."""
        obs, info = self._env.reset()
        return flatten_dict_observation(obs), info

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Any]:
        """Step."""
        obs, reward, terminated, truncated, info = self._env.step(actions)
        columns = (x.unsqueeze(1) for x in (reward, terminated, truncated))
        return flatten_dict_observation(obs), *columns, info  # type: ignore[return-value]

    def state(self) -> None:
        """Return None: there is no state besides the observation."""

    def render(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close."""
        self._env.close()


def _mlp(setting: Setting, in_dim: int, out_dim: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in setting.hidden_sizes:
        layers += [nn.Linear(in_dim, width), setting.activation_class()]
        in_dim = width
    return nn.Sequential(*layers, nn.Linear(in_dim, out_dim))


class Actor(GaussianMixin, Model):  # type: ignore[misc]
    """The policy, as in skrl's examples."""

    def __init__(self, setting: Setting, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, role="policy")
        self.net = _mlp(setting, self.num_observations, self.num_actions)
        self.log_std_parameter = nn.Parameter(torch.full((self.num_actions,), setting.init_log_std))

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the mean action."""
        return self.net(inputs["observations"]), {"log_std": self.log_std_parameter}


class Critic(DeterministicMixin, Model):  # type: ignore[misc]
    """The value function, as in skrl's examples."""

    def __init__(self, setting: Setting, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self, role="value")
        self.net = _mlp(setting, self.num_observations, 1)

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the value."""
        return self.net(inputs["observations"]), {}


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    wrapped = SkrlEnv(env)
    spaces = {"observation_space": wrapped.observation_space, "action_space": wrapped.action_space, "device": "cpu"}
    cfg = PPO_CFG(
        rollouts=setting.num_steps,
        learning_epochs=setting.num_epochs,
        mini_batches=setting.num_minibatches,
        discount_factor=setting.gamma,
        gae_lambda=setting.gae_lambda,
        learning_rate=setting.learning_rate,
        grad_norm_clip=setting.max_grad_norm,
        ratio_clip=setting.clip,
        value_clip=0.0,
        entropy_loss_scale=setting.entropy_coef,
        value_loss_scale=setting.value_coef,
        time_limit_bootstrap=True,
        experiment={"directory": "skrl", "write_interval": setting.num_steps, "checkpoint_interval": 0},
    )
    if setting.normalize_obs:
        cfg.observation_preprocessor = RunningStandardScaler
        cfg.observation_preprocessor_kwargs = {"size": wrapped.observation_space, "device": "cpu"}
    agent = PPO(
        models={"policy": Actor(setting, **spaces), "value": Critic(setting, **spaces)},
        memory=RandomMemory(memory_size=setting.num_steps, num_envs=setting.num_envs, device="cpu"),
        cfg=cfg,
        **spaces,
    )
    clock.count_as_update(agent, "update", is_last=True)
    timesteps = iterations * setting.num_steps
    trainer_cfg = {"timesteps": timesteps, "headless": True, "close_environment_at_exit": False}
    SequentialTrainer(env=wrapped, agents=agent, cfg=trainer_cfg).train()
