"""How observations follow from what a robot measures, so that an exported policy can be given raw measurements.

A term says so beside its function, by :func:`deployed_as`; ``embodichain export`` writes it into the policy's file, and
the exported runner carries it out. Shapes: N environments, D size of a measurement.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from embodichain.lab.gym.envs.managers.term_env import TermEnv

__all__ = ["Measurement", "Recipe", "deployed_as", "measured", "recipe_of"]

Func = TypeVar("Func", bound=Callable[..., Any])


@dataclass(frozen=True)
class Measurement:
    """What a robot's software gives to an exported policy.

    Attributes:
        name: by which it is given.
        meaning: with the unit.
        read: returns its present value in the environments, [N, D].
        components: the names of the D numbers; empty: those of a vector.
    """

    name: str
    meaning: str
    read: Callable[[], Tensor]
    components: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recipe:
    """What a term does to the value of an entry where there is no environment.

    Attributes:
        steps: plain data, carried out one after the other: ``{"measurement": name}``, ``{"subtract": [D numbers]}``,
            ``{"last_action": true}``, ``{"gait_clock": {...}}``, ``{"history": k}``. None of a term that modifies an
            entry: it models what a real sensor does by itself, and leaves the value as it is.
        measurements: those that the steps read.
    """

    steps: list[dict[str, Any]]
    measurements: list[Measurement] = field(default_factory=list)

    def followed_by(self, other: Recipe) -> Recipe:
        """Return the recipe of both, one after the other."""
        return Recipe(self.steps + other.steps, self.measurements + other.measurements)


def deployed_as(recipe: Callable[..., Recipe]) -> Callable[[Func], Func]:
    """Describe an observation term, a function or a Functor class, for export.

    Args:
        recipe: ``recipe(env, **params)``, called with all of the term's parameters, defaults included.
    """

    def decorate(term: Func) -> Func:
        # Static, so that instances of a class do not pass themselves.
        term.recipe = staticmethod(recipe)  # type: ignore[attr-defined]
        return term

    return decorate


def measured(meaning: str, components: Callable[[TermEnv], list[str]] = lambda env: []) -> Callable[[Func], Func]:
    """Describe an observation term whose value is what a robot measures, by the name of the function.

    Args:
        meaning: of the value, with its unit.
        components: returns the names of its D numbers.
    """

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
