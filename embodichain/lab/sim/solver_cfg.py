"""Settings of the engine's constraint solver."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from embodichain.utils import configclass


@configclass
class ConstraintSolverCfg:
    """The solver of contact, joint limit and dry friction forces (MuJoCo's Newton solver)."""

    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    """Friction cone. The pyramid is an approximation; with the elliptic one, Go2 is simulated at 0.7 of the speed."""
    iterations: Annotated[int, Field(ge=1)] = 100
    """Newton steps at most; it takes a few."""
    ls_iterations: Annotated[int, Field(ge=1)] = 50
    """Line search steps at most in each Newton step."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-8
    """Scaled improvement below which the solver stops."""
    warm_start: bool = True
    """Begin at the last substep's accelerations where they are the better guess. The result is the same within
    ``tolerance``. Without it a robot on its feet is simulated 4 to 14 % faster; many contacts may need it."""
    islands: bool = True
    """Solve for groups of bodies that do not touch each other one by one. The result is the same within ``tolerance``.
    Without it a scene of one robot is simulated 2 to 7 % faster."""
