"""Contacts of links with the ground and with objects. Shapes: N environments, n in ``env_ids``, F links."""

import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.sensors.cfg import ContactSensorCfg


class ContactSensor:
    """Forces on links, and how long each has been in the air or on the ground.

    Forces, positions and velocities are the engine's in the last substep of the control step, so reading them costs no
    computation. After a reset they are 0 until the next step.

    Attributes:
        names: names of the F links.
        force: [N, F, 3] sum of the contact forces on each link, N, world frame.
        in_contact: [N, F] bool, whether the force exceeds ``force_threshold``.
        air_time: [N, F] time since the last contact, s; 0 in contact.
        contact_time: [N, F] time since the present contact began, s; 0 in the air.
        last_air_time: [N, F] duration of the last completed time in the air, s.
        last_contact_time: [N, F] duration of the last completed contact, s.
        first_contact: [N, F] bool, whether the link has landed in this control step.
        pos: [N, F, 3] position of each link's origin, m, world frame.
        vel: [N, F, 3] its velocity, m/s, world frame.
    """

    state_names = (
        *("force", "in_contact", "air_time", "contact_time"),
        *("last_air_time", "last_contact_time", "first_contact", "pos", "vel"),
    )

    def __init__(self, cfg: ContactSensorCfg, backend: Backend, names: list[str], first_column: int) -> None:
        """Bind the sensor to the compiled model.

        Args:
            names: names of the F links.
            first_column: column of ``sensordata`` from which the F forces, positions and velocities follow.
        """
        self.cfg = cfg
        self.names = names
        self._backend = backend
        self._columns = slice(first_column, first_column + 9 * len(names))
        n, f = backend.num_envs, len(names)
        self.force, self.pos, self.vel = torch.zeros(3, n, f, 3, device=backend.device).unbind()
        self.in_contact, self.first_contact = torch.zeros(2, n, f, dtype=torch.bool, device=backend.device).unbind()
        times = torch.zeros(4, n, f, device=backend.device)
        self.air_time, self.contact_time, self.last_air_time, self.last_contact_time = times.unbind()
        backend.read_last("sensordata")  # the engine fills only fields that were read before

    def update(self, duration: float, env_ids: Tensor | None = None) -> None:
        """Read the engine's values after a control step of ``duration`` s in environments [n] (None: all)."""
        before = None if env_ids is None else {name: getattr(self, name) for name in self.state_names}
        self._read(duration)
        if before is not None:
            for name, old in before.items():
                setattr(self, name, old.index_copy(0, env_ids, getattr(self, name)[env_ids]))

    def _read(self, duration: float) -> None:
        values = self._backend.read_last("sensordata")[:, self._columns].unflatten(1, (3, -1, 3))
        force, self.pos, self.vel = values.unbind(1)
        self.force = -force  # the engine's sensor has the force of the link on the others
        touches = self.force.square().sum(dim=2) > self.cfg.force_threshold**2
        flown, stood = self.air_time + duration, self.contact_time + duration
        # A link that has touched the ground since the reset, and before it nothing, has not landed.
        self.first_contact = touches & (self.air_time > 0)
        lifted = ~touches & (self.contact_time > 0)
        self.last_air_time = torch.where(self.first_contact, flown, self.last_air_time)
        self.last_contact_time = torch.where(lifted, stood, self.last_contact_time)
        self.air_time = torch.where(touches, 0.0, flown)
        self.contact_time = torch.where(touches, stood, 0.0)
        self.in_contact = touches

    def reset(self, env_ids: Tensor) -> None:
        """Set everything to 0 in environments [n], which begin an episode."""
        for name in self.state_names:
            setattr(self, name, getattr(self, name).index_fill(0, env_ids, 0))
