"""CleanRL's loop: one flat file, after its ``ppo_continuous_action.py`` (and ``..._isaacgym.py`` for tensors), MIT.

Observations are normalised at every step, as Gymnasium's wrapper does in CleanRL's file; rewards are not.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from torch import nn
from torch.distributions.normal import Normal
from torch.utils.tensorboard import SummaryWriter

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import flatten_dict_observation


def _layer(in_dim: int, out_dim: int, gain: float = math.sqrt(2)) -> nn.Linear:
    layer = nn.Linear(in_dim, out_dim)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, 0.0)
    return layer


def _mlp(setting: Setting, in_dim: int, out_dim: int, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in setting.hidden_sizes:
        layers += [_layer(in_dim, width), setting.activation_class()]
        in_dim = width
    return nn.Sequential(*layers, _layer(in_dim, out_dim, gain))


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, setting: Setting, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.critic = _mlp(setting, obs_dim, 1, 1.0)
        self.actor_mean = _mlp(setting, obs_dim, action_dim, 0.01)
        self.actor_logstd = nn.Parameter(torch.full((1, action_dim), setting.init_log_std))

    def get_value(self, x: torch.Tensor) -> torch.Tensor:
        """Value the observations."""
        value: torch.Tensor = self.critic(x)
        return value

    def get_action_and_value(
        self, x: torch.Tensor, action: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return action, log-probability, entropy and value."""
        action_mean = self.actor_mean(x)
        probs = Normal(action_mean, torch.exp(self.actor_logstd.expand_as(action_mean)))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


class NormalizeObservation:
    """Running normalisation, updated at every step."""

    def __init__(self, dim: int) -> None:
        self.mean, self.var, self.count = torch.zeros(dim), torch.ones(dim), 1e-4

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Update the statistics with observations [N, O], and return them normalised."""
        self.take(x)
        return self.apply(x)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Return observations [N, O] normalised."""
        return ((x - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-10, 10)

    def take(self, x: torch.Tensor) -> None:
        """Update the statistics with observations [N, O]."""
        var, mean = torch.var_mean(x, dim=0, correction=0)
        delta, total = mean - self.mean, self.count + len(x)
        m2 = self.var * self.count + var * len(x) + delta.square() * (self.count * len(x) / total)
        self.mean, self.var, self.count = self.mean + delta * (len(x) / total), m2 / total, total


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    num_steps, num_envs = setting.num_steps, setting.num_envs
    obs_dim, action_dim = env.flattened_observation_space.shape[-1], env.single_action_space.shape[0]
    writer = SummaryWriter("cleanrl")
    agent = Agent(setting, obs_dim, action_dim)
    optimizer = torch.optim.Adam(agent.parameters(), lr=setting.learning_rate, eps=1e-5)
    normalize = NormalizeObservation(obs_dim) if setting.normalize_obs else nn.Identity()

    fixed = normalize.apply if isinstance(normalize, NormalizeObservation) else normalize
    clock.act = lambda flat: agent.actor_mean(fixed(flat))

    obs = torch.zeros(num_steps, num_envs, obs_dim)
    actions = torch.zeros(num_steps, num_envs, action_dim)
    logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(4))
    episode_return, episode_length = torch.zeros(num_envs), torch.zeros(num_envs)

    global_step, start_time = 0, time.time()
    next_obs = normalize(flatten_dict_observation(env.reset()[0]))
    next_done = torch.zeros(num_envs)

    for iteration in range(iterations):
        if setting.anneals:
            optimizer.param_groups[0]["lr"] = (1.0 - iteration / iterations) * setting.learning_rate
        for step in range(num_steps):
            global_step += num_envs
            obs[step] = next_obs
            dones[step] = next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step] = action
            logprobs[step] = logprob
            raw_obs, reward, terminated, truncated, _ = env.step(action)
            next_obs = normalize(flatten_dict_observation(raw_obs))
            rewards[step] = reward
            done = terminated | truncated
            next_done = done.float()
            episode_return += reward
            episode_length += 1
            if step <= 2 and done.any():
                writer.add_scalar("charts/episodic_return", episode_return[done].mean().item(), global_step)
                writer.add_scalar("charts/episodic_length", episode_length[done].mean().item(), global_step)
            episode_return *= 1 - next_done
            episode_length *= 1 - next_done

        with clock.updating(is_last=True):
            with torch.no_grad():
                next_value = agent.get_value(next_obs).reshape(1, -1)
                advantages = torch.zeros_like(rewards)
                lastgaelam: torch.Tensor | float = 0
                for t in reversed(range(num_steps)):
                    if t == num_steps - 1:
                        nextnonterminal = 1.0 - next_done
                        nextvalues = next_value
                    else:
                        nextnonterminal = 1.0 - dones[t + 1]
                        nextvalues = values[t + 1]
                    delta = rewards[t] + setting.gamma * nextvalues * nextnonterminal - values[t]
                    lastgaelam = delta + setting.gamma * setting.gae_lambda * nextnonterminal * lastgaelam
                    advantages[t] = lastgaelam
                returns = advantages + values

            b_obs, b_actions = obs.reshape(-1, obs_dim), actions.reshape(-1, action_dim)
            b_logprobs, b_advantages, b_returns = logprobs.reshape(-1), advantages.reshape(-1), returns.reshape(-1)
            b_values = values.reshape(-1)
            b_inds = np.arange(len(b_obs))
            clipfracs = []
            for _epoch in range(setting.num_epochs):
                np.random.shuffle(b_inds)  # noqa: NPY002 (as CleanRL does)
                for start in range(0, len(b_inds), setting.batch_size):
                    mb_inds = b_inds[start : start + setting.batch_size]
                    _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
                    logratio = newlogprob - b_logprobs[mb_inds]
                    ratio = logratio.exp()
                    with torch.no_grad():
                        old_approx_kl = (-logratio).mean()
                        approx_kl = ((ratio - 1) - logratio).mean()
                        clipfracs += [((ratio - 1.0).abs() > setting.clip).float().mean().item()]
                    mb_advantages = b_advantages[mb_inds]
                    mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                    pg_loss1 = -mb_advantages * ratio
                    pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - setting.clip, 1 + setting.clip)
                    pg_loss = torch.max(pg_loss1, pg_loss2).mean()
                    v_loss = ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
                    entropy_loss = entropy.mean()
                    loss = pg_loss - setting.entropy_coef * entropy_loss + v_loss * setting.value_coef
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), setting.max_grad_norm)
                    optimizer.step()
            y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
            var_y = np.var(y_true)
            explained_var = np.nan if var_y == 0 else 1 - np.var(y_true - y_pred) / var_y

        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)
        writer.add_scalar("losses/policy_loss", pg_loss.item(), global_step)
        writer.add_scalar("losses/entropy", entropy_loss.item(), global_step)
        writer.add_scalar("losses/old_approx_kl", old_approx_kl.item(), global_step)
        writer.add_scalar("losses/approx_kl", approx_kl.item(), global_step)
        writer.add_scalar("losses/clipfrac", np.mean(clipfracs), global_step)
        writer.add_scalar("losses/explained_variance", explained_var, global_step)
        writer.add_scalar("charts/SPS", int(global_step / (time.time() - start_time)), global_step)
    writer.close()
