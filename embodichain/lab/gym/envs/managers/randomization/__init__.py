"""Events that draw at random: ``func(env, env_ids, **params)``."""

from embodichain.lab.gym.envs.managers.randomization import physics, spatial, visual
from embodichain.lab.gym.envs.managers.randomization.physics import *  # noqa: F403
from embodichain.lab.gym.envs.managers.randomization.spatial import *  # noqa: F403
from embodichain.lab.gym.envs.managers.randomization.visual import *  # noqa: F403

__all__ = [*physics.__all__, *spatial.__all__, *visual.__all__]
