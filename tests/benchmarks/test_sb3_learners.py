"""From the same parameters and samples, our updates and Stable-Baselines3's lead to the same parameters.

Legend: N envs, T rollout steps, B batch.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import PPO, SAC, build_algo
from embodichain.agents.rl.buffer import ReplayBuffer, allocate_rollout
from embodichain.agents.rl.models import ActorCritic, SoftActorCritic, build_policy
from embodichain.agents.rl.models.networks import MLPs
from embodichain.ext.gymnasium.spaces import ActionAdapter

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from benchmarks.sb3_learners import make_ppo, make_sac

TASK = "Pendulum-v1"  # actions in [-2, 2], so that their units count
OBS_DIM = 3


def build(name: str, policy: str, network: dict[str, Any], /, task: Any = TASK, **cfg: Any) -> tuple[Any, Any, Any]:
    """Return our algorithm, the policy's block and the algorithm's settings."""
    layers = {"type": "mlp", "network_cfg": {"hidden_sizes": [8, 8], **network}}
    block: dict[str, Any] = {"name": policy, "actor": layers, "critic": layers, "log_std_range": [-20.0, 2.0]}
    block |= {"slope_floor": 1e-6} if policy == "soft_actor_critic" else {}
    env = gym.make(task)
    assert env.observation_space.shape is not None
    space = ActionAdapter(env.action_space).space
    return build_algo(name, cfg, build_policy(block, env.observation_space.shape[0], space, "cpu"), "cpu"), block, cfg


def linears(*modules: nn.Module) -> list[nn.Linear]:
    return [m for module in modules for m in module.modules() if isinstance(m, nn.Linear)]


def copy_linears(sources: list[nn.Linear], targets: list[nn.Linear]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.load_state_dict(source.state_dict())


def assert_near(ours: list[nn.Linear], theirs: list[nn.Linear], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.weight, b.weight, rtol=0, atol=tolerance)
        torch.testing.assert_close(a.bias, b.bias, rtol=0, atol=tolerance)


@pytest.mark.parametrize("mean", [0.0, 6.5])  # of the raw action; tanh(6.5 + noise) is within 5e-6 of the bound
def test_updates_of_sac_are_equal(monkeypatch: pytest.MonkeyPatch, mean: float) -> None:
    updates, rate = 5, 1e-2
    cfg = {"learning_rate": rate, "batch_size": 16, "gamma": 0.9, "tau": 0.1, "replay_capacity": 64}
    ours, block, settings = build(
        "sac", "soft_actor_critic", {"activation": "relu", "orthogonal_init": False},
        **cfg, learning_starts=1, updates_per_step=1.0,
    )  # fmt: skip
    assert isinstance(ours, SAC)
    policy = ours.policy
    assert isinstance(policy, SoftActorCritic)
    theirs = make_sac(make_vec_env(TASK), block, settings, updates, seed=0)
    theirs.set_logger(Logger(folder=None, output_formats=[]))

    def their_critics(module: nn.Module) -> dict[str, torch.Tensor]:
        """Return the parameters of critics in the form of ours, side by side."""
        return dict(MLPs(list(module.q_networks)).state_dict())  # type: ignore[arg-type]

    def their_actor() -> list[nn.Linear]:
        """Return the actor's layers with one output layer for mean and log-std, as ours has."""
        both = nn.Linear(8, 2)
        for name in ("weight", "bias"):
            heads = [getattr(layer, name) for layer in (theirs.actor.mu, theirs.actor.log_std)]
            getattr(both, name).data = torch.cat(heads).detach()
        return [*linears(theirs.actor.latent_pi), both]

    with torch.no_grad():
        theirs.actor.mu.bias += mean
    copy_linears(their_actor(), linears(policy.actor))
    policy.critics.load_state_dict(their_critics(theirs.critic))
    ours.target_critics.load_state_dict(their_critics(theirs.critic_target))

    torch.manual_seed(0)
    obs, following = torch.randn(2, 16, OBS_DIM)
    action, reward, terminated = torch.rand(16, 1) * 2 - 1, torch.randn(16), torch.arange(16) % 4 == 0
    batch = {
        "obs": obs,
        "action": 2 * action,
        "reward": reward,
        "discount": 0.9 * ~terminated,
        "next": {"obs": following},
    }
    samples = ReplayBufferSamples(obs, action, following, terminated.float().unsqueeze(1), reward.unsqueeze(1))
    monkeypatch.setattr(ReplayBuffer, "sample", lambda *_: TensorDict(batch, batch_size=[16]).repeat(updates))
    monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *_, **__: samples)
    # Both draw the same noise: a constant.
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.full_like(x, 0.5))
    monkeypatch.setattr(
        "torch.distributions.normal._standard_normal",
        lambda shape, dtype, device: torch.full(shape, 0.5, dtype=dtype, device=device),
    )
    before = linears(policy.actor)[0].weight.detach().clone()
    ours.update(allocate_rollout(1, updates, OBS_DIM, 1, "cpu", has_final=True))
    theirs.train(updates, batch_size=16)

    assert (linears(policy.actor)[0].weight - before).abs().max() > rate
    assert_near(linears(policy.actor), their_actor(), 1e-5)
    for critics, other in ((policy.critics, theirs.critic), (ours.target_critics, theirs.critic_target)):
        torch.testing.assert_close(dict(critics.state_dict()), their_critics(other), rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.temperature.log, theirs.log_ent_coef[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("num_envs", "ratio", "updates"), [(1, 0.5, 4), (4, 0.125, 4), (4, 1.0, 32)])
def test_sac_makes_as_many_updates_of_as_many_steps(num_envs: int, ratio: float, updates: int) -> None:
    steps = 8
    cfg = {"learning_rate": 1e-3, "batch_size": 4, "gamma": 0.9, "tau": 0.1, "replay_capacity": 64}
    ours, block, settings = build(
        "sac", "soft_actor_critic", {"activation": "relu", "orthogonal_init": False},
        **cfg, learning_starts=1, updates_per_step=ratio,
    )  # fmt: skip
    assert isinstance(ours, SAC)
    theirs = make_sac(make_vec_env(TASK, num_envs), block, settings, steps, seed=0)
    theirs.learn(num_envs * steps)
    rollout = allocate_rollout(num_envs, steps, OBS_DIM, 1, "cpu", has_final=True)
    rollout["obs"] = torch.randn(num_envs, steps + 1, OBS_DIM)
    ours.update(rollout)
    assert theirs.num_timesteps == ours.replay.num_added == num_envs * steps  # type: ignore[union-attr]
    assert theirs._n_updates == ours.state_dict()["num_updates"] == updates


@pytest.mark.parametrize(("task", "obs_dim"), [(TASK, OBS_DIM), ("CartPole-v1", 4)])
def test_updates_of_ppo_are_equal(task: str, obs_dim: int) -> None:
    num_envs, steps, gamma = 2, 8, 0.9
    cfg = {
        "learning_rate": 1e-2, "lr_schedule": "constant", "n_epochs": 5, "batch_size": num_envs * steps, "gamma": gamma,
        "gae_lambda": 0.8, "clip_coef": 0.1, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.5,
        "normalize_advantages": "none",
    }  # fmt: skip
    ours, block, settings = build("ppo", "actor_critic", {"activation": "tanh", "orthogonal_init": True}, task, **cfg)
    assert isinstance(ours, PPO)
    policy = ours.policy
    assert isinstance(policy, ActorCritic)
    theirs = make_ppo(make_vec_env(task, num_envs), block, settings, steps, seed=0)
    theirs.normalize_advantage = False
    theirs.set_logger(Logger(folder=None, output_formats=[]))
    theirs._current_progress_remaining = 1.0
    extractor = theirs.policy.mlp_extractor
    actor = linears(extractor.policy_net, theirs.policy.action_net)
    critic = linears(extractor.value_net, theirs.policy.value_net)
    copy_linears(actor, linears(policy.actor))
    copy_linears(critic, linears(policy.critic))

    torch.manual_seed(0)
    rollout = allocate_rollout(num_envs, steps, obs_dim, 1, "cpu")
    rollout["obs"] = torch.randn(num_envs, steps + 1, obs_dim)
    rollout["reward"] = torch.randn(num_envs, steps + 1)
    rollout["terminated"][0, 2], rollout["truncated"][1, 4] = True, True
    rollout["done"] = rollout["terminated"] | rollout["truncated"]
    final = policy.get_value(TensorDict({"obs": torch.randn(1, obs_dim)}, batch_size=[1]))["value"].detach()
    rollout["final_value"][1, 4] = final[0]
    with torch.no_grad():
        chosen = policy(rollout.select("obs").clone())
    for name in ("action", "sample_log_prob", "value"):
        rollout[name] = chosen[name]

    # As in its collect_rollouts: the value at a time limit is in the reward, and the values are its own policy's.
    reward = rollout["reward"] + gamma * rollout["final_value"] * rollout["truncated"]
    buffer, starts = theirs.rollout_buffer, np.ones(num_envs, bool)
    for t in range(steps):
        with torch.no_grad():
            taken = rollout["action"][:, t].flatten() if policy.choices else rollout["action"][:, t]
            value, log_prob, _ = theirs.policy.evaluate_actions(rollout["obs"][:, t], taken)
        numbers = [x[:, t].numpy() for x in (rollout["obs"], rollout["action"], reward)]
        buffer.add(*numbers, starts, value, log_prob)
        starts = rollout["done"][:, t].numpy()
    with torch.no_grad():
        last = theirs.policy.predict_values(rollout["obs"][:, -1])
    buffer.compute_returns_and_advantage(last, starts)

    ours.update(rollout)
    theirs.train()
    assert_near(linears(policy.actor), actor, 1e-5)
    assert_near(linears(policy.critic), critic, 1e-5)
    if not policy.choices:
        torch.testing.assert_close(policy.log_std, theirs.policy.log_std, rtol=0, atol=1e-5)
