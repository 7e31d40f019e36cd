"""Physical attributes of an articulation's links. Shapes: N environments, n in ``env_ids``, L links, G shapes.

A reset does not change them; the physics has them in its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.model.drives import match_names
from embodichain.utils.device import constant


class LinkPhysics:
    """Masses, centres of mass and friction of links, as they are by the model and as they are set."""

    def __init__(self, backend: Backend, links: Mapping[str, int]) -> None:
        """Read the links from the compiled model.

        Args:
            links: their bodies by name.
        """
        self._backend = backend
        self._links = dict(links)

    def find(self, patterns: str | Iterable[str] | None, place: str) -> list[int]:
        """Return the bodies of links by names or regular expressions; None: all. ConfigError where one matches none."""
        if patterns is None:
            return list(self._links.values())
        given = [patterns] if isinstance(patterns, str) else patterns
        return [self._links[name] for name in match_names(given, list(self._links), place, "link")]

    def get_mass(self, bodies: Sequence[int]) -> Tensor:
        """Return the masses of links, [N, L], kg."""
        return self._backend.read_model("body_mass")[:, constant(tuple(bodies), self._backend.device)].float()

    def initial_mass(self, bodies: Sequence[int]) -> Tensor:
        """Return the masses of links by the model, [L], kg."""
        return self._of_model("body_mass", bodies)

    def set_mass(self, mass: Tensor, bodies: Sequence[int], env_ids: Tensor) -> None:
        """Set the masses of links, [n, L], kg; their moments of inertia follow in proportion."""
        ratio = mass / self.initial_mass(bodies)
        write, index = self._backend.write_model, list(bodies)
        write("body_mass", index, mass, env_ids)
        write("body_inertia", index, ratio[..., None] * self._of_model("body_inertia", bodies), env_ids)

    def set_center_of_mass_offset(self, offset: Tensor, bodies: Sequence[int], env_ids: Tensor) -> None:
        """Move the centres of mass of links by [n, L, 3] (m, frame of the link) from where they are by the model."""
        index = list(bodies)
        # The frames of the inertia and of the body are no longer the same: an optimisation of the compiled model.
        self._backend.write_model("body_sameframe", index, torch.zeros_like(offset[..., 0], dtype=torch.int32), env_ids)
        self._backend.write_model("body_ipos", index, self._of_model("body_ipos", bodies) + offset, env_ids)

    def shapes(self, bodies: Sequence[int]) -> list[int]:
        """Return the collision shapes of links."""
        model = self._backend.model
        collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        return [int(geom) for geom in np.flatnonzero(collides & np.isin(model.geom_bodyid, list(bodies)))]

    def initial_friction(self, shapes: Sequence[int]) -> Tensor:
        """Return the sliding friction coefficients of shapes by the model, [G]."""
        return self._of_model("geom_friction", shapes)[:, 0]

    def set_friction(self, friction: Tensor, shapes: Sequence[int], env_ids: Tensor) -> None:
        """Set the sliding friction coefficients of shapes, [n, G]."""
        self._backend.write_model("geom_friction", (list(shapes), 0), friction, env_ids)

    def _of_model(self, name: str, numbers: Sequence[int]) -> Tensor:
        """Return rows of a field of the compiled model."""
        rows = getattr(self._backend.model, name)[list(numbers)].tolist()
        plain = tuple(tuple(row) if isinstance(row, list) else row for row in rows)
        return constant(plain, self._backend.device, torch.float32)
