"""Terms that end episodes, ``func(env, **params) -> [N] bool``, and their manager. Shapes: N environments."""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from embodichain.lab.gym.envs.managers import checks, state_values, types
from embodichain.lab.gym.envs.managers.base import Manager, Term, TermEnv
from embodichain.lab.gym.envs.managers.cfg import TerminationCfg

Lean = Annotated[float, Field(gt=0.0, lt=math.pi)]


def bad_orientation(env: TermEnv, limit_angle: Lean = 1.0) -> Tensor:
    """Return where the robot's base leans by more than an angle, [N] bool.

    Args:
        limit_angle: largest angle between the base's z axis and the vertical, rad.
    """
    return -env.robot.base.projected_gravity()[:, 2] < math.cos(limit_angle)


def base_height_below(env: TermEnv, minimum: PositiveFloat) -> Tensor:
    """Return where the robot's base is too close to the ground, [N] bool.

    Args:
        minimum: height of the base's origin above the ground, m.
    """
    return state_values.height_above_ground(env, env.robot.base.get()[:, :3]) < minimum


def illegal_contact(env: TermEnv, sensor: types.SensorName) -> Tensor:
    """Return where any link of a contact sensor is in contact (see ``feet_contact``) in the last substep, [N] bool."""
    return torch.any(env.sim.get_contact_sensor(sensor).in_contact, dim=1)


class TerminationManager(Manager):
    """Computes the terms ``func(env, **params)``, each [N] bool."""

    def __init__(self, cfgs: Mapping[str, TerminationCfg], env: TermEnv) -> None:
        self._terms: list[Term[TerminationCfg]] = checks.build_terms(cfgs, env, "env.terminations")
        super().__init__(env, self._terms)
        self.has_terms = bool(self._terms)
        """Whether there is any."""

    def compute(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return which episodes fail and which are cut short, and each term's value by metric name, [N] bool each."""
        num_envs, device, random = self._env.num_envs, self._env.device, self._env.random
        failed, timed_out = torch.zeros(2, num_envs, dtype=torch.bool, device=device).unbind()
        metrics: dict[str, Tensor] = {}
        with random.stream("terminations", tick=self._env.elapsed_steps):
            for term in self._terms:
                random.turn_to(term.stream)
                value = term(self._env)
                if not (isinstance(value, Tensor) and value.dtype == torch.bool and value.shape == (num_envs,)):
                    raise checks.wrong_return(term.place, term.func, value, f"[N] = [{num_envs}] of bool")
                if term.cfg.time_out:
                    timed_out = timed_out | value
                else:
                    failed = failed | value
                metrics[f"termination/{term.name}"] = value
        return failed, timed_out, metrics
