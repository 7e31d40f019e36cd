"""N Gymnasium environments as one of Gymnasium's vector environments."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from embodichain.lab.gym.wrappers.gymnasium_env.autoreset import VectorEnv
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.member import MakeMember
from embodichain.lab.gym.wrappers.gymnasium_env.registry import find_spec
from embodichain.utils.module_utils import folder_on_path

_PRELOAD = "embodichain.lab.gym.wrappers.gymnasium_env.member"


def make_vector_env(cfg: GymnasiumEnvCfg) -> VectorEnv:
    """Build the vector environment of a config.

    Gymnasium's own reset nothing by themselves; see ``SameStepReset``.
    """
    spec, here = find_spec(cfg.id), os.getcwd()
    if cfg.vectorization == "vector_entry_point":
        limit: dict[str, Any] = {}
        if cfg.max_episode_steps is not None:
            limit = {"max_episode_steps": cfg.max_episode_steps}
        with folder_on_path(here):
            return gym.make_vec(spec, cfg.num_envs, cfg.vectorization, **limit, **cfg.kwargs)
    members = [MakeMember(spec, cfg.kwargs, cfg.max_episode_steps, i, here) for i in range(cfg.num_envs)]
    if cfg.vectorization == "sync":
        return SyncVectorEnv(members, copy=False, autoreset_mode=AutoresetMode.DISABLED)
    # A server with the imports done forks: a process of this one's would inherit its threads' locks.
    multiprocessing.get_context("forkserver").set_forkserver_preload([_PRELOAD])
    return AsyncVectorEnv(members, copy=False, context="forkserver", autoreset_mode=AutoresetMode.DISABLED)
