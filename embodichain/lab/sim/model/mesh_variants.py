"""Mesh variants of a body, of which each environment uses one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from embodichain.lab.sim.cfg import RigidObjectCfg
from embodichain.utils import ConfigError


@dataclass(frozen=True)
class MeshVariant:
    """The mass properties of a mesh as a body's.

    Attributes:
        mass: kg.
        inertia: [3] about the principal axes, kg m^2.
        pos: [3] centre of mass in the body's frame, m.
        quat: [4] orientation of the principal axes, wxyz.
    """

    mass: float
    inertia: np.ndarray
    pos: np.ndarray
    quat: np.ndarray


def measure_mesh(cfg: RigidObjectCfg, path: Path) -> MeshVariant:
    """Return the mass properties of a mesh as this body's; ConfigError where it cannot be read."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name="mesh", file=str(path.expanduser().resolve()))
    body = spec.worldbody.add_body()
    set_mass(body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh"), cfg)
    try:
        model = spec.compile()
    except ValueError as error:
        raise ConfigError(f"rigid object '{cfg.uid}': cannot use the mesh '{path}': {error}") from error
    return MeshVariant(float(model.body_mass[1]), model.body_inertia[1], model.body_ipos[1], model.body_iquat[1])


def set_mass(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    """Set a geom's mass, or its density where the config has no mass."""
    if cfg.attrs.mass > 0:
        geom.mass = cfg.attrs.mass
    else:
        geom.density = cfg.attrs.density
