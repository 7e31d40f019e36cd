"""Physical attributes of rigid bodies and of links, in each environment; a reset does not change them.

Shapes: N environments, n in ``env_ids`` (None: all), L links, G collision shapes.
"""

from collections.abc import Iterable, Mapping, Sequence

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend, ModelPart
from embodichain.lab.sim.cfg import RigidObjectCfg
from embodichain.lab.sim.math import matrix_from_quat
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.model.scene import CENTRED
from embodichain.utils.device import constant

_HIDDEN = mujoco.mjNGROUP - 1  # the group of geoms that is not drawn
# Which sides of a shape must keep their proportion when it is scaled, by the scene's names of the shapes.
_EVEN_SIDES = {"Sphere": (0, 1, 2), "Capsule": (0, 1, 2), "Cylinder": (0, 1), "Cube": (0,)}
# Which of the sides MuJoCo's size parameters follow: box half edges; radius; radius and half height.
_SIZE_SIDES = {"Sphere": [0], "Capsule": [0, 2], "Cylinder": [0, 2], "Cube": [0, 1, 2]}


class BodyPhysics:
    """Mass, inertia, centre of mass, friction and size of one body."""

    state_names = ("_mass", "_center", "_squares", "_axes", "_scale", "_units", "_offset")

    def __init__(self, cfg: RigidObjectCfg, backend: Backend, variants: Sequence[mujoco.MjModel] = ()) -> None:
        self._cfg = cfg
        self._backend = backend
        model, device = backend.model, backend.device
        self._body = int(model.body(cfg.uid).id)
        # Without collisions the physics model has no geom.
        self._geom = int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, cfg.uid))
        self._dof = int(model.body_dofadr[self._body])

        def tensor(values: object) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        n = backend.num_envs
        self.initial_mass: Tensor = tensor(model.body_mass[self._body])
        """kg, []."""
        self.least_mass: Tensor = 1e-3 * self.initial_mass
        """kg, []: the lower bound of a random mass."""
        self._size = tensor(model.geom_size[self._geom]) if self._geom >= 0 else torch.zeros(3, device=device)
        self._mass = self.initial_mass.repeat(n)
        self._center = tensor(model.body_ipos[self._body]).repeat(n, 1)
        self._squares = _squares(tensor(model.body_inertia[self._body]), self.initial_mass).repeat(n, 1)
        # Turns principal moments of inertia into those about the body's axes.
        self._axes = matrix_from_quat(tensor(model.body_iquat[self._body])).square().repeat(n, 1, 1)
        self._is_centred = not variants and bool(model.body_simple[self._body])
        body, dofs = self._body, slice(self._dof, self._dof + 6)
        self._weights = [
            ModelPart("body_mass", body, 0),
            ModelPart("body_inertia", body, slice(3, 6)),
            ModelPart("dof_damping", dofs, slice(6, 12)),
        ]
        # The constants of a free body with its centre of mass at its origin are known: they are its mass along each
        # axis, and its moment of inertia about it. The engine derives the others', which takes longer.
        if self._is_centred:
            self._weights += [ModelPart("body_subtreemass", body, 0), ModelPart("dof_M0", dofs, slice(0, 6))]
        by_axis = slice(0, 6, 3)
        self._eases = [ModelPart("body_invweight0", body, by_axis), ModelPart("dof_invweight0", dofs, slice(0, 6))]
        self._scale = torch.ones(n, 3, device=device)
        # [N, 18], of 1 kg, in the free joint's six directions: mass or moment of inertia, damping, and (the mean of)
        # the first's inverse
        self._units = torch.ones(n, 18, device=device)
        self._offset = torch.zeros(n, 3, device=device)
        self._update_shape(torch.arange(n, device=device))
        self._no_frame = torch.zeros((), dtype=torch.int32, device=device)
        self.num_variants: int = len(variants)
        """Number of mesh variants, the configured one included; 0: no variants."""
        self._geoms = [self._geom]  # of all variants
        if variants:
            masses = tensor([v.body_mass[1] for v in variants])
            self._variant_masses = masses
            self._variant_squares = _squares(tensor(np.stack([v.body_inertia[1] for v in variants])), masses[:, None])
            self._variant_centers = tensor(np.stack([v.body_ipos[1] for v in variants]))
            self._variant_quats = tensor(np.stack([v.body_iquat[1] for v in variants]))
            first = int(model.body_geomadr[self._body])
            self._geoms = list(range(first, first + int(model.body_geomnum[self._body])))
            self._bits = tensor([model.geom_contype[self._geom], model.geom_conaffinity[self._geom]])
            self.choose_variant(torch.zeros(n, dtype=torch.int64, device=device), torch.arange(n, device=device))

    def get_mass(self) -> Tensor:
        """Return the mass, [N, 1], kg."""
        return self._mass[:, None]

    def get_inertia(self) -> Tensor:
        """Return the moments of inertia about the principal axes, [N, 3], kg m^2."""
        return self._mass[:, None] * self._units[:, 3:6]

    def get_friction(self) -> Tensor:
        """Return the sliding friction coefficient, [N, 1]."""
        self._check_collides()
        return self._backend.read_model("geom_friction")[:, self._geom, :1].float()

    def get_damping(self) -> Tensor:
        """Return the rate at which linear velocity decays, [N, 1], 1/s."""
        return self._units[:, 6:7]

    def get_body_scale(self) -> Tensor:
        """Return the size as a factor of the configured one, along the body's axes, [N, 3]."""
        return self._scale

    def get_center_of_mass(self) -> Tensor:
        """Return the centre of mass in the body's frame, [N, 3], m."""
        return self._center * self._scale + self._offset

    def set_mass(self, mass: Tensor, env_ids: Tensor) -> None:
        """Set the mass [n] (kg) of a dynamic body; its moments of inertia and its damping follow in proportion."""
        self._check_dynamic("mass")
        self._mass = self._mass.index_copy(0, env_ids, mass)
        self._write_inertia(mass[:, None], env_ids)

    def set_friction(self, friction: Tensor, env_ids: Tensor) -> None:
        """Set the sliding friction coefficient [n]; of two touching bodies the larger counts."""
        self._check_collides()
        self._backend.write_model("geom_friction", (self._geoms, 0), friction[:, None], env_ids)

    def set_center_of_mass_offset(self, offset: Tensor, env_ids: Tensor) -> None:
        """Move the centre of mass by [n, 3] (m, body's frame) from where it is by the config; damping follows.

        Call ``SimulationManager.vary_inertia`` before the scene is compiled.
        """
        self._check_dynamic("centre of mass")
        self._offset = self._offset.index_copy(0, env_ids, offset)
        # The frames of the inertia and of the body are no longer the same: an optimisation of the compiled model.
        self._backend.write_model("body_sameframe", self._body, self._no_frame)
        self._backend.write_model("body_ipos", self._body, self.get_center_of_mass()[env_ids], env_ids)
        self._update_shape(env_ids)
        self._write_inertia(self._mass[env_ids, None], env_ids)

    def set_body_scale(self, scale: Tensor, env_ids: Tensor) -> None:
        """Set the size to factors [n, 3] of the configured one, along the body's axes; the mass stays.

        Meshes and planes cannot be scaled; spheres and capsules only alike along all axes, cylinders along x and y.
        """
        self._check_collides()
        shape = self._cfg.shape.shape_type
        if shape not in _SIZE_SIDES:
            raise ValueError(f"rigid object '{self._cfg.uid}': a {shape} cannot be scaled in single environments")
        even = scale[:, constant(_EVEN_SIDES[shape], scale.device)]
        is_one_factor = scale.stride(1) == 0 or even.shape[1] == 1  # reading the values waits for the device
        if not is_one_factor and not torch.equal(even, even[:, :1].expand_as(even)):
            axes = ", ".join("xyz"[side] for side in _EVEN_SIDES[shape])
            raise ValueError(f"rigid object '{self._cfg.uid}': a {shape} is scaled by the same factor along {axes}")
        self._scale = self._scale.index_copy(0, env_ids, scale)
        self._update_shape(env_ids)
        sides = _SIZE_SIDES[shape]
        size = self._size[: len(sides)] * scale[:, constant(tuple(sides), scale.device)]
        self._backend.write_model("geom_size", (self._geom, slice(0, len(sides))), size, env_ids)
        if self._cfg.body_type == "dynamic":
            self._write_inertia(self._mass[env_ids, None], env_ids)

    def choose_variant(self, choice: Tensor, env_ids: Tensor) -> None:
        """Give environments [n] the meshes number ``choice`` [n] int64; 0 is the configured one.

        The present mass stays; without a configured one it becomes the mesh's, by its volume.
        """
        is_chosen = torch.arange(self.num_variants, device=choice.device) == choice[:, None]
        self._backend.write_model("geom_contype", self._geoms, is_chosen * self._bits[0], env_ids)
        self._backend.write_model("geom_conaffinity", self._geoms, is_chosen * self._bits[1], env_ids)
        self._backend.write_model("geom_group", self._geoms, torch.where(is_chosen, 0, _HIDDEN), env_ids)
        self._backend.write_model("body_sameframe", self._body, self._no_frame)
        self._backend.write_model("body_iquat", self._body, self._variant_quats[choice], env_ids)
        self._axes = self._axes.index_copy(0, env_ids, matrix_from_quat(self._variant_quats[choice]).square())
        self._center = self._center.index_copy(0, env_ids, self._variant_centers[choice])
        self._squares = self._squares.index_copy(0, env_ids, self._variant_squares[choice])
        self._update_shape(env_ids)
        self._backend.write_model("body_ipos", self._body, self.get_center_of_mass()[env_ids], env_ids)
        if self._cfg.body_type == "dynamic":
            self.set_mass(self._mass[env_ids] if self._cfg.attrs.mass > 0 else self._variant_masses[choice], env_ids)

    def _update_shape(self, env_ids: Tensor) -> None:
        """Update the constants that depend on shape, size and centre of mass, for 1 kg."""
        squares = self._squares[env_ids] * self._scale[env_ids].square()
        inertia = squares.sum(dim=1, keepdim=True) - squares
        ones, attrs = torch.ones_like(inertia), self._cfg.attrs
        # The free joint is at the body's origin, where damping would turn a body with its centre of mass elsewhere.
        is_centred = (self.get_center_of_mass()[env_ids].abs() < CENTRED).all(dim=1, keepdim=True)
        linear = attrs.linear_damping * is_centred * ones
        angular = attrs.angular_damping * torch.bmm(self._axes[env_ids], inertia[:, :, None]).squeeze(2)
        means = (1.0 / inertia).mean(dim=1, keepdim=True).expand(-1, 3)
        units = torch.cat((ones, inertia, linear, angular, ones, means), dim=1)
        self._units = self._units.index_copy(0, env_ids, units)

    def _write_inertia(self, mass: Tensor, env_ids: Tensor) -> None:
        """Write mass [n, 1], moments of inertia, damping and inverse weights."""
        units = self._units[env_ids]
        write, derive = self._backend.write_model_parts, not self._is_centred
        write(self._weights, units[:, :12] * mass, env_ids, derive)
        if self._is_centred:
            write(self._eases, units[:, 12:] / mass, env_ids, derive)

    def _check_collides(self) -> None:
        if self._geom < 0:
            raise ValueError(f"rigid object '{self._cfg.uid}' touches nothing (enable_collision is false)")

    def _check_dynamic(self, what: str) -> None:
        if self._cfg.body_type != "dynamic":
            raise ValueError(f"rigid object '{self._cfg.uid}' is {self._cfg.body_type}: its {what} means nothing")


def _squares(inertia: Tensor, mass: Tensor) -> Tensor:
    """Return the integrals of x^2, y^2, z^2 over 1 kg, [..., 3]; the last two add up to the moment about x."""
    return (inertia.sum(dim=-1, keepdim=True) / 2 - inertia) / mass.clamp(min=1e-12)


class LinkPhysics:
    """Masses, centres of mass and friction of links, as they are by the model and as they are set."""

    def __init__(self, backend: Backend, links: Mapping[str, int]) -> None:
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
        """Set the masses [n, L] (kg) of links that have one in the model; their moments of inertia follow."""
        initial, write, index = self.initial_mass(bodies), self._backend.write_model, list(bodies)
        mass = torch.where(initial > 0.0, mass, 0.0)
        ratio = mass / initial.clamp(min=1e-12)
        write("body_mass", index, mass, env_ids)
        write("body_inertia", index, ratio[..., None] * self._of_model("body_inertia", bodies), env_ids)

    def set_center_of_mass_offset(self, offset: Tensor, bodies: Sequence[int], env_ids: Tensor) -> None:
        """Move the centres of mass of links by [n, L, 3] (m, frame of the link) from where they are by the model."""
        index = list(bodies)
        # The frames of the inertia and of the body are no longer the same: an optimisation of the compiled model.
        self._backend.write_model("body_sameframe", index, torch.zeros_like(offset[..., 0], dtype=torch.int32), env_ids)
        self._backend.write_model("body_ipos", index, self._of_model("body_ipos", bodies) + offset, env_ids)

    def shapes(self, bodies: Sequence[int]) -> list[int]:
        """Return the collision shapes of links, and their shapes in contact pairs of the file."""
        model = self._backend.model
        collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        collides[model.pair_geom1] = collides[model.pair_geom2] = True
        return [int(geom) for geom in np.flatnonzero(collides & np.isin(model.geom_bodyid, list(bodies)))]

    def set_friction(self, friction: Tensor, shapes: Sequence[int], env_ids: Tensor, relative: bool = False) -> None:
        """Set the sliding friction coefficient of shapes, and of the file's pairs with them, to [n], at least 0.

        With ``relative`` it is added to each one's coefficient by the model.
        """
        model = self._backend.model
        pairs = np.flatnonzero(np.isin(model.pair_geom1, shapes) | np.isin(model.pair_geom2, shapes)).tolist()
        for name, rows, columns in (("geom_friction", list(shapes), 1), ("pair_friction", pairs, 2)):
            if rows:
                values = friction[:, None, None].expand(-1, len(rows), columns)
                if relative:
                    values = values + self._of_model(name, rows)[:, :columns]
                self._backend.write_model(name, (rows, slice(0, columns)), values.clamp(min=0.0), env_ids)

    def _of_model(self, name: str, numbers: Sequence[int]) -> Tensor:
        """Return rows of a field of the compiled model."""
        rows = getattr(self._backend.model, name)[list(numbers)].tolist()
        plain = tuple(tuple(row) if isinstance(row, list) else row for row in rows)
        return constant(plain, self._backend.device, torch.float32)
