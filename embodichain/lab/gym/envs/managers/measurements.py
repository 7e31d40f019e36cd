"""Recipes from a robot's measurements to observations, so that an exported policy can be given raw measurements.

A term states its recipe by :func:`deployed_as`; ``embodichain export`` writes it into the policy's file, and
the exported runner carries it out. Shapes: N environments, D size of a measurement.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import TermEnv

Func = TypeVar("Func", bound=Callable[..., Any])


@dataclass(frozen=True)
class Measurement:
    """A measurement that a robot's software gives to an exported policy."""

    name: str
    meaning: str
    """Meaning and unit."""
    read: Callable[[], Tensor]
    """Function that returns its present value in the environments, [N, D]."""
    components: list[str] = field(default_factory=list)
    """Names of the D numbers; empty: a vector's."""


@dataclass(frozen=True)
class Recipe:
    """The steps of a term on an entry's value without an environment."""

    steps: list[dict[str, Any]]
    """Plain data, carried out one after the other: ``{"measurement": name}``, ``{"subtract": [D numbers]}``,
    ``{"multiply": [D numbers]}``, ``{"last_action": true}``, ``{"gait_clock": {...}}``, ``{"history": k}``. Empty for
    a term that modifies an entry as a real sensor does: it leaves the value as it is."""
    measurements: list[Measurement] = field(default_factory=list)
    """Measurements that the steps read."""

    def followed_by(self, other: "Recipe") -> "Recipe":
        """Return the recipe of both, one after the other."""
        return Recipe(self.steps + other.steps, self.measurements + other.measurements)


def deployed_as(recipe: Callable[..., Recipe]) -> Callable[[Func], Func]:
    """Describe an observation term for export by ``recipe(env, **params)``, called with all parameters of the term."""

    def decorate(term: Func) -> Func:
        # Static, so that instances of a class do not pass themselves.
        term.recipe = staticmethod(recipe)  # type: ignore[attr-defined]
        return term

    return decorate


def measured(meaning: str, components: Callable[[TermEnv], list[str]] = lambda env: []) -> Callable[[Func], Func]:
    """Describe an observation term that a robot can measure: the value's meaning, with its unit, and its D names."""

    def decorate(term: Func) -> Func:
        def recipe(env: TermEnv, **params: Any) -> Recipe:
            return raw(Measurement(term.__name__, meaning, lambda: term(env, **params), components(env)))

        return deployed_as(recipe)(term)

    return decorate


def raw(measurement: Measurement) -> Recipe:
    """Return the recipe of a measurement as it is."""
    return Recipe([{"measurement": measurement.name}], [measurement])


def recipe_of(env: TermEnv, term: Any, params: Mapping[str, Any]) -> Recipe | None:
    """Return the recipe of a term, a function or a Functor, with its config's parameters; None: it has none."""
    recipe: Callable[..., Recipe] | None = getattr(term, "recipe", None)
    if recipe is None:
        return None
    arguments = inspect.signature(term).parameters.values()
    defaults = {a.name: a.default for a in arguments if a.default is not a.empty}
    return recipe(env, **defaults | dict(params))
