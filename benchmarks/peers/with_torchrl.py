"""TorchRL's PPO, after its ``sota-implementations/ppo/ppo_mujoco.py``, with TensorBoard.

Differences from that recipe, so that the work is equal: advantages are computed once per iteration instead of once per
epoch, actions are not squashed, gradients are clipped, learning rate and clip range are constant. Nothing is compiled.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import AddStateIndependentNormalScale
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Binary, Composite, LazyTensorStorage, TensorDictReplayBuffer, Unbounded
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import ClipTransform, EnvBase, ExplorationType, RewardSum, StepCounter, TransformedEnv, VecNorm
from torchrl.modules import MLP, IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.advantages import GAE
from torchrl.record.loggers import get_logger

from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import Setting
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import flatten_dict_observation


class TorchRLEnv(EnvBase):  # type: ignore[misc]
    """Our environment with TorchRL's interface.

    TorchRL itself resets the environments that are done, after the step; ours reset within the step. So ``_step``
    returns the last observation of the episodes that ended, and ``_reset`` the first one of the new episodes.
    """

    def __init__(self, env: EmbodiedEnv) -> None:
        super().__init__(device=env.device, batch_size=[env.num_envs])
        self.env = env
        rows, column = self.batch_size, (env.num_envs, 1)
        width, actions = env.flattened_observation_space.shape[-1], env.single_action_space.shape[0]
        self.observation_spec = Composite(observation=Unbounded((*rows, width)), shape=rows)
        self.action_spec = Unbounded((*rows, actions))
        self.reward_spec = Unbounded(column)
        flags = {name: Binary(1, column, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
        self.full_done_spec = Composite(flags, shape=rows)
        self._obs = torch.zeros(*rows, width)
        self._never = torch.zeros(column, dtype=torch.bool)

    def _reset(self, tensordict: TensorDictBase | None) -> TensorDictBase:
        if tensordict is None or "_reset" not in tensordict.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            self._obs = flatten_dict_observation(self.env.reset()[0])
        names = ("done", "terminated", "truncated")
        return TensorDict({"observation": self._obs} | {n: self._never.clone() for n in names}, self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        obs, reward, terminated, truncated, info = self.env.step(tensordict["action"])
        self._obs = flatten_dict_observation(obs)
        final = info["final_obs"]
        fields = {
            "observation": self._obs if final is obs else flatten_dict_observation(final),
            "reward": reward.unsqueeze(1),
            "done": (terminated | truncated).unsqueeze(1),
            "terminated": terminated.unsqueeze(1),
            "truncated": truncated.unsqueeze(1),
        }
        return TensorDict(fields, self.batch_size)

    def _set_seed(self, seed: int | None) -> None:
        """Do nothing: the environment has its seed from its config."""


def _networks(setting: Setting, env: TorchRLEnv) -> tuple[nn.Module, nn.Module]:
    """Return actor and critic as TorchRL's modules."""
    width, actions = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]

    def mlp(outputs: int) -> nn.Module:
        net: nn.Module = MLP(width, outputs, num_cells=setting.hidden_sizes, activation_class=setting.activation_class)
        return net

    scale = AddStateIndependentNormalScale(actions, init_value=setting.init_log_std)
    module = TensorDictModule(nn.Sequential(mlp(actions), scale), in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(
        module,
        in_keys=["loc", "scale"],
        spec=env.full_action_spec_unbatched,
        distribution_class=IndependentNormal,
        return_log_prob=True,
        default_interaction_type=ExplorationType.RANDOM,
    )
    return actor, ValueOperator(mlp(1), in_keys=["observation"])


def train(setting: Setting, env: EmbodiedEnv, clock: Clock, iterations: int) -> None:
    """Train."""
    base = TorchRLEnv(env)
    wrapped = TransformedEnv(base)
    if setting.normalize_obs:
        wrapped.append_transform(VecNorm(in_keys=["observation"], decay=0.99999, eps=1e-2))
        wrapped.append_transform(ClipTransform(in_keys=["observation"], low=-10, high=10))
    wrapped.append_transform(RewardSum())
    wrapped.append_transform(StepCounter())
    actor, critic = _networks(setting, base)
    frames = setting.iteration_steps
    collector = Collector(
        wrapped, actor, frames_per_batch=frames, total_frames=iterations * frames, max_frames_per_traj=-1, device="cpu"
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(frames), sampler=SamplerWithoutReplacement(), batch_size=setting.batch_size
    )
    advantages = GAE(gamma=setting.gamma, lmbda=setting.gae_lambda, value_network=critic)
    objective = ClipPPOLoss(
        actor_network=actor,
        critic_network=critic,
        clip_epsilon=setting.clip,
        loss_critic_type="l2",
        entropy_bonus=setting.entropy_coef > 0,
        entropy_coeff=setting.entropy_coef or None,
        critic_coeff=setting.value_coef,
        normalize_advantage=True,
    )
    parameters = list(objective.parameters())
    optimizer = torch.optim.Adam(parameters, lr=setting.learning_rate, eps=1e-5)
    logger = get_logger("tensorboard", logger_name="torchrl", experiment_name="ppo")
    names = ("loss_critic", "loss_objective")

    for iteration, data in enumerate(collector):
        figures = {}
        with clock.updating(is_last=True):
            with torch.no_grad():
                advantages(data)
            buffer.extend(data.reshape(-1))
            losses = []
            for _ in range(setting.num_epochs):
                for batch in buffer:
                    optimizer.zero_grad(set_to_none=True)
                    loss = objective(batch)
                    sum(value for key, value in loss.items() if key.startswith("loss_")).backward()
                    nn.utils.clip_grad_norm_(parameters, setting.max_grad_norm)
                    optimizer.step()
                    losses.append(loss.detach().select(*names))
            figures = {f"train/{name}": torch.stack([x[name] for x in losses]).mean().item() for name in names}
        done = data["next", "done"]
        if done.any():
            figures["train/reward"] = data["next", "episode_reward"][done].mean().item()
            figures["train/episode_length"] = data["next", "step_count"][done].float().mean().item()
        logger.log_metrics(figures, (iteration + 1) * frames)
    collector.shutdown(close_env=False)
