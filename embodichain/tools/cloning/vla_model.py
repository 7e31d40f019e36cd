"""The vision-language-action model of a cloning: what it begins from, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch

from embodichain.agents.rl.models import SmolVLA, VLAPolicy, save_vla_model
from embodichain.agents.rl.models.block import PolicySpaces, check_action_dim, space_size
from embodichain.ext.vla.gaussian_vla import STATE
from embodichain.ext.vla.lerobot.features import find_entries
from embodichain.ext.vla.lerobot.folder import LeRobotFolder, for_other_robot
from embodichain.ext.vla.lerobot.writing import write_lerobot_folder, write_statistics
from embodichain.ext.vla.loading import read_model_path
from embodichain.ext.vla.policy import VLAPolicyCfg, build_stored_policy, without_adapters
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import entry_spaces

Save = Callable[[Path], None]
"""Writes the model into a folder, which is created if missing; raises a ConfigError or OSError if it cannot."""


def build_vla(
    cfg: VLAPolicyCfg, start_from: str | None, env: EmbodiedEnv, device: torch.device
) -> tuple[VLAPolicy, Save]:
    """Build the policy that is trained, with the weights of ``start_from`` or random ones.

    A clone of LeRobot's SmolVLA is written in LeRobot's format, with the processors of the folder that it began from;
    the statistics become those of the demonstrations, as in LeRobot.

    Raises:
        ConfigError: there is no such model, or it does not fit the config or the environment.
    """
    spaces = entry_spaces(env.single_observation_space)
    stored = None if start_from is None else read_model_path(start_from, "start_from")
    if isinstance(stored, LeRobotFolder) and STATE in spaces:
        stored = for_other_robot(stored, spaces[STATE].shape[0], env.action_manager.total_action_dim)
    given = PolicySpaces(
        space_size(env.flattened_observation_space),
        space_size(env.single_action_space),
        env.single_action_space,
        env.single_observation_space,
    )
    check_action_dim(cfg.action_dim, given)
    policy = build_stored_policy(cfg, stored, given, device)

    def save(out: Path) -> None:
        model = without_adapters(policy)
        if not isinstance(stored, LeRobotFolder):
            save_vla_model(model, policy.model_config, out)
            return
        entries = find_entries(stored.cfg, cfg.vla_config.features)
        shapes = {entry: spaces[entry].shape for entry in entries.values()}
        out.mkdir(parents=True, exist_ok=True)
        write_lerobot_folder(out, cast(SmolVLA, model), stored, entries, shapes)
        write_statistics(out, cast(SmolVLA, model))

    return policy, save
