"""The demonstrations of a training: read from a dataset, or recorded by the task's scripted expert.

Shapes: N environments, T steps of an episode, O flattened observation size, A action size.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer import EXPERT, Demonstrations, check_finite
from embodichain.agents.rl.checkpoint.files import load_checkpoint, save_checkpoint
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError, doors, logger, placed, replace

FILE = "demonstrations.pt"
"""The expert's episodes in the run's folder."""
PLACE = "algorithm.cfg.demonstrations"

_NUM_ENVS, _NUM_EPISODES = 16, 50  # of the expert


@dataclass(frozen=True)
class Task:
    """Task that a dataset must fit."""

    observation_space: spaces.Dict
    action_space: spaces.Box
    success_terminates: bool
    joint_names: list[str] | None  # robot's joints; None where ``observation.state`` is something else
    config: Mapping[str, Any]  # environment's, as plain data with every default
    # The policy reads the flat observation. Otherwise the dataset may be another environment's, with the same entries.
    reads_obs: bool = True
    imitates: bool = False  # actions alone are learned from, and no rewards
    step_dt: float | None = None  # the control period, s


@dataclass(frozen=True)
class ExpertEpisode:
    """An episode of the expert."""

    observed: TensorDict  # the policy's input, ``obs`` [T+1, O] and ``entries``; the last one is after the last step
    acted: TensorDict  # ``action`` [T, A], ``reward`` [T] and ``terminated`` [T] of its steps
    is_success: bool

    def rollout(self) -> TensorDict:
        """Return the episode as a rollout of one environment, [1, T+1]."""
        padding = self.acted[-1:].clone().zero_()
        return TensorDict.cat((self.acted, padding)).update(self.observed).unsqueeze(0)


def load_demonstrations(
    run: RunConfig, folder: Path, env: VecEnv, algorithm: BaseAlgorithm, is_resumed: bool
) -> Demonstrations:
    """Return the demonstrations that ``algorithm.cfg`` names, rank 0's on all ranks; log their source.

    Args:
        folder: the run's folder. The expert's episodes are written into it, and read again if the run is resumed.
        env: the training's environment.
        algorithm: the learner; one that imitates gets no rewards, and no failed episodes of the expert.
    """
    cfg, policy, imitates = algorithm.cfg, algorithm.policy, algorithm.learns_from == "demonstrations"
    source: str = cfg.demonstrations
    assert isinstance(env, EmbodiedEnv)  # the config refuses others

    def find() -> dict[str, Any]:
        if source != EXPERT:
            config, seen, space = run.resolved["gym_config"], env.single_observation_space, env.single_action_space
            joints = None if "state" in seen.spaces else env.robot.joint_names
            ends = bool(env.success_terminates)
            task = Task(seen, space, ends, joints, config, policy.reads_flat_obs, imitates, env.step_dt)
            read = doors.load(doors.DATASETS, "lerobot")
            found: Demonstrations = read(source, cfg.num_demonstrations, task, policy.obs_keys)
            return found.to_data()
        path = folder / FILE
        if not is_resumed:
            return _record_expert(run, path, cfg.num_demonstrations or _NUM_EPISODES, policy, imitates)
        with placed(f"{PLACE}: the expert's episodes of this run: "):
            return load_checkpoint(path)

    process_group = get_process_group()
    found = Demonstrations.from_data(process_group.run_on_main(find))
    if process_group.is_main:
        whose = f"the scripted expert of {run.env_id}" if source == EXPERT else source
        logger.log_info(f"demonstrations: {whose}: {found.describe()}")
    return found


def _record_expert(run: RunConfig, path: Path, num_episodes: int, policy: Policy, imitates: bool) -> dict[str, Any]:
    """Let the expert play in environments of its own, and write its episodes into a file."""
    assert isinstance(run.env, EmbodiedEnvCfg)  # the config refuses others
    cfg = replace(
        run.env, num_envs=min(num_episodes, _NUM_ENVS), first_env_id=0, group_size=1, dataset={}, curriculum={}
    )
    with closing(build_env(run.env_id, cfg)) as env:
        episodes = play_expert(env, num_episodes, policy, run.trainer.seed)
    num_succeeded = sum(episode.is_success for episode in episodes)
    if not num_succeeded:
        raise ConfigError(f"{PLACE}: the scripted expert of {run.env_id} failed in all {num_episodes} episodes")
    rollouts = [episode.rollout() for episode in episodes if episode.is_success or not imitates]
    for i, rollout in enumerate(rollouts):
        check_finite(rollout[0].flatten_keys("/"), f"{PLACE}: the scripted expert of {run.env_id}: episode {i}", {})
    if imitates:
        unused = ["reward", "terminated"] + ([] if policy.reads_flat_obs else ["obs"])
        rollouts = [rollout.exclude(*unused) for rollout in rollouts]
    data = Demonstrations(rollouts, num_succeeded).to_data()
    save_checkpoint(path, data)
    return data


def play_expert(env: EmbodiedEnv, num_episodes: int, policy: Policy, seed: int) -> list[ExpertEpisode]:
    """Let the scripted expert play the first episodes of a seed to their ends, whatever N is.

    Args:
        env: has ``expert_action() -> [N, A]``.
        policy: decides which entries of the observation are recorded.
    """
    having_one: Any = env
    obs, _ = env.reset(seed=seed, options={"enumerate_episodes": True})
    number = torch.arange(env.num_envs, device=env.device)  # of each environment's episode
    running: list[list[tuple[TensorDict, TensorDict]]] = [[] for _ in range(env.num_envs)]
    episodes: dict[int, ExpertEpisode] = {}
    while len(episodes) < num_episodes:
        observed = policy_input(policy, obs, None, env.device).clone()
        action = env.take_action(having_one.expert_action())
        obs, reward, terminated, truncated, info = env.step(action)
        acted = TensorDict({"action": action, "reward": reward, "terminated": terminated}, batch_size=[env.num_envs])
        for i, steps in enumerate(running):
            steps.append((observed[i], acted[i].clone()))
        done = terminated | truncated
        if not done.any():
            continue
        final = policy_input(policy, info["final_obs"], None, env.device)
        for i in done.nonzero().squeeze(1).tolist():
            if number[i] < num_episodes:
                before, after = zip(*running[i], strict=True)
                both = TensorDict.stack((*before, final[i])), TensorDict.stack(after)
                episodes[int(number[i])] = ExpertEpisode(*both, bool(info["success"][i]))
            running[i] = []
            number[i] += env.num_envs
    return [episodes[i] for i in sorted(episodes)]
