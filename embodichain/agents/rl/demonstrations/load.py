"""The demonstrations of a training: read or recorded at its start, and the same ones again when it is resumed.

Shapes: T steps of an episode.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.buffer import EXPERT, Demonstrations
from embodichain.agents.rl.checkpoint.content import loading
from embodichain.agents.rl.checkpoint.file import load_checkpoint, save_checkpoint
from embodichain.agents.rl.demonstrations.dataset import PLACE, Task, read_demonstrations
from embodichain.agents.rl.demonstrations.expert import ExpertEpisode, play_expert
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.datasets.checks import check_finite
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.registry import get_env_spec
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.errors import placed

FILE = "demonstrations.pt"
"""The expert's episodes in the run's folder."""

_NUM_ENVS, _NUM_EPISODES = 16, 50  # of the expert


def load_demonstrations(
    run: RunConfig, folder: Path, env: VecEnv, algorithm: BaseAlgorithm, is_resumed: bool
) -> Demonstrations:
    """Return the demonstrations that ``algorithm.cfg`` names, on all ranks those that rank 0 finds; log what they are.

    Args:
        folder: of the run. The expert's episodes are written into it, and read again if the run is resumed.
        env: of the training.
        algorithm: what learns from them; one that imitates gets no rewards, and of the expert no failed episodes.

    Raises:
        ConfigError: there are none, or they do not fit the environment.
    """
    cfg, policy, imitates = algorithm.cfg, algorithm.policy, algorithm.learns_from == "demonstrations"
    source: str = cfg.demonstrations
    assert isinstance(env, EmbodiedEnv)  # the config refuses others

    def find() -> dict[str, Any]:
        if source != EXPERT:
            task = replace_fields(task_of(run, env), reads_obs=policy.reads_flat_obs, imitates=imitates)
            return read_demonstrations(source, cfg.num_demonstrations, task, policy.obs_keys).to_data()
        if is_resumed:
            return _read_recorded(folder / FILE)
        return _record_expert(run, folder / FILE, cfg.num_demonstrations or _NUM_EPISODES, policy, imitates)

    process_group = get_process_group()
    found = Demonstrations.from_data(process_group.run_on_main(find))
    if process_group.is_main:
        whose = f"the scripted expert of {run.env_id}" if source == EXPERT else source
        logger.log_info(f"demonstrations: {whose}: {found.describe()}")
    return found


def task_of(run: RunConfig, env: EmbodiedEnv) -> Task:
    """Return what a dataset must fit."""
    cfg, cls, action_space = run.env, get_env_spec(run.env_id).cls, env.single_action_space
    # The config refuses others.
    assert isinstance(cfg, EmbodiedEnvCfg)
    assert issubclass(cls, EmbodiedEnv)
    assert isinstance(action_space, spaces.Box)
    has_state = "state" in env.single_observation_space.spaces
    return Task(
        observation_space=env.single_observation_space,
        action_space=action_space,
        success_terminates=bool(cfg.extensions.get("success_terminates", cls.success_terminates)),
        joint_names=None if has_state else env.robot.joint_names,
        config=run.resolved["gym_config"],
    )


def _record_expert(run: RunConfig, path: Path, num_episodes: int, policy: Policy, imitates: bool) -> dict[str, Any]:
    """Let the expert play in environments of its own, and write its episodes into a file."""
    assert isinstance(run.env, EmbodiedEnvCfg)  # the config refuses others
    cfg = replace(
        run.env, num_envs=min(num_episodes, _NUM_ENVS), first_env_id=0, group_size=1, dataset={}, curriculum={}
    )
    with closing(build_env(run.env_id, cfg)) as env:
        episodes = play_expert(env, num_episodes, policy.obs_keys, run.trainer.seed)
    num_succeeded = sum(episode.is_success for episode in episodes)
    if not num_succeeded:
        raise ConfigError(f"{PLACE}: the scripted expert of {run.env_id} failed in all {num_episodes} episodes")
    if imitates:
        episodes = [episode for episode in episodes if episode.is_success]
    rollouts = [_rollout(episode) for episode in episodes]
    for i, rollout in enumerate(rollouts):
        check_finite(rollout[0].flatten_keys("/"), f"{PLACE}: the scripted expert of {run.env_id}: episode {i}", {})
    if imitates:
        unused = ["reward", "terminated"] + ([] if policy.reads_flat_obs else ["obs"])
        rollouts = [rollout.exclude(*unused) for rollout in rollouts]
    data = Demonstrations(rollouts, num_succeeded).to_data()
    save_checkpoint(path, data)
    return data


def _read_recorded(path: Path) -> dict[str, Any]:
    with placed(f"{PLACE}: the expert's episodes of this run: "), loading(path):
        data = load_checkpoint(path)
        Demonstrations.from_data(data).digest()
    return data


def _rollout(episode: ExpertEpisode) -> TensorDict:
    """Return an episode as a rollout of one environment, [1, T+1]."""
    padding = episode.acted[-1:].clone().zero_()
    return TensorDict.cat((episode.acted, padding)).update(episode.observed).unsqueeze(0)
