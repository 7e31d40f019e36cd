"""The device of a training's physics."""

from __future__ import annotations

from contextlib import suppress

import torch

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.sim.backend import has_warp, parse_sim_device
from embodichain.utils import ConfigError, logger
from embodichain.utils.device import resolve_device
from embodichain.utils.doors import install_extra
from embodichain.utils.errors import collected


def choose_sim_device(trainer: TrainerCfg, cfg: EmbodiedEnvCfg, problems: list[str]) -> str:
    """Return the device of the physics; errors are added to ``problems``."""
    place, name = "trainer.", trainer.sim_device
    if name is None:
        place, name = "env.sim_cfg.", str(cfg.sim_cfg.sim_device)
    if name == "auto":
        name = "cpu"
        with suppress(ConfigError):  # the learner's device, which is reported with the others
            name = str(resolve_device(trainer.device))
        if name != "cpu" and trainer.device == "auto" and not has_warp():
            logger.log_warning(
                f"the learner runs on {name}, the physics on the processor: for physics on the GPU, "
                f"{install_extra('gpu')}"
            )
            name = "cpu"
    if name.startswith("cuda") and trainer.device == "cpu" and not torch.cuda.is_available():
        logger.log_warning(f"{place}sim_device: '{name}' is not here: the physics runs on the processor, too")
        name = "cpu"
    with collected(problems, place):
        parse_sim_device(name)
    return name
