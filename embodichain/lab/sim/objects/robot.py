"""An articulation that acts. Shapes: N environments, n in ``env_ids`` (None: all), B any batch, J joints of a part."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.assets import LINK_ALIASES
from embodichain.lab.sim.backend.base import Backend, cached_per_state
from embodichain.lab.sim.cfg import RobotCfg, SolverCfg
from embodichain.lab.sim.kinematics import SerialChain, bodies_between, frame_pose
from embodichain.lab.sim.math import pose_from_pos_quat, row_from_pose
from embodichain.lab.sim.model.model_files import FLANGE_NAMES
from embodichain.lab.sim.objects.articulation import Articulation, body_pose
from embodichain.utils import ConfigError, unknown_name


class Robot(Articulation):
    """An articulation with control parts, each of which may have a tool centre point."""

    cfg: RobotCfg

    def __init__(
        self,
        cfg: RobotCfg,
        backend: Backend,
        joints: Mapping[str, str],
        links: Mapping[str, str],
        control_parts: dict[str, list[str]],
    ) -> None:
        super().__init__(cfg, backend, joints, links)
        self.control_parts = control_parts
        names = self.joint_names
        self._part_ids = {part: [names.index(name) for name in chosen] for part, chosen in control_parts.items()}
        self._chains: dict[str, tuple[SerialChain, int]] = {}  # by part, with the moving body at its root; 0: the world
        for part in cfg.solver_cfg:  # configured chains are checked now, the others at their first use
            self._chain(part)

    def compute_fk(
        self, qpos: Tensor, name: str = "arm", to_matrix: bool = True, env_ids: Tensor | None = None
    ) -> Tensor:
        """Return the pose of a control part's tool centre point, [B, 4, 4], at joint positions [B, J], rad or m.

        It is in the environment's frame; ``to_matrix`` false: [B, 7] (x, y, z, qw, qx, qy, qz). Where the chain's root
        moves, B is n, and the root's present poses are used.
        """
        chain, moving_root = self._chain(name)
        pose = chain.forward(qpos)
        root = self._root_pose(moving_root, env_ids)
        if root is not None:
            pose = root @ pose
        return pose if to_matrix else row_from_pose(pose)

    def compute_ik(
        self,
        pose: Tensor,
        joint_seed: Tensor | None = None,
        name: str = "arm",
        iterations: int = 30,
        env_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find joint positions that put a control part's tool centre point at a pose.

        Args:
            pose: [n, 4, 4] or [n, 7] (x, y, z, qw, qx, qy, qz) in the environment's frame.
            joint_seed: [n, J] start of the search, or None for the present positions.
            iterations: steps of the search; each takes 0.25 ms for 64 poses.

        Returns:
            ``(success [n] bool, qpos [n, J])``: within 1 mm and 0.01 rad, and inside the joint limits.
        """
        if pose.shape[-2:] != (4, 4):
            pose = pose_from_pos_quat(pose[:, :3], pose[:, 3:])
        chain, moving_root = self._chain(name)
        root = self._root_pose(moving_root, env_ids)
        if root is not None:
            pose = torch.linalg.solve_ex(root, pose)[0]  # without a check that would wait
        if joint_seed is None:
            joint_seed = self.get_qpos(name) if env_ids is None else self.get_qpos(name)[env_ids]
        return chain.inverse(pose, joint_seed, iterations)

    @cached_per_state
    def get_eef_pose(self, name: str = "arm") -> Tensor:
        """Return the present pose of a control part's tool centre point, [N, 4, 4]; do not write into it."""
        return self.compute_fk(self.get_qpos(name), name)

    def add_part(self, name: str, joint_ids: Sequence[int]) -> None:
        """Name a group of joints, in addition to the configured control parts."""
        self._part_ids[name] = list(joint_ids)

    def _root_pose(self, moving_root: int, env_ids: Tensor | None) -> Tensor | None:
        """Return the transform of a chain's poses, [n, 4, 4]: the pose of a moving root, or the base's shift."""
        pose = body_pose(self._backend, moving_root) if moving_root else self.base.shift
        return pose if pose is None or env_ids is None else pose[env_ids]

    def _chain(self, name: str) -> tuple[SerialChain, int]:
        """Return a control part's chain and its moving root, or 0; ConfigError where its joints or links make none."""
        if name not in self._chains:
            place = f"robot '{self.uid}': control part '{name}'"
            joints = self.get_joint_ids(name)
            if not joints:
                raise ConfigError(f"{place} has no joints")
            model = self._backend.model
            solver = self.cfg.solver_cfg.get(name, SolverCfg())
            first, last = (int(model.jnt_bodyid[self._joint_ids[j]]) for j in (joints[0], joints[-1]))
            root = int(model.body_parentid[first])
            if solver.root_link_name is not None:
                root = self._frame(solver.root_link_name, f"{place}: root_link_name")[0]
            if solver.end_link_name is None:
                body, frame = self._end_of(last)
            else:
                body, frame = self._frame(solver.end_link_name, f"{place}: end_link_name")
            between = bodies_between(model, root, body)
            if between is None:
                raise ConfigError(f"{place}: '{self._name(root)}' does not carry '{self._name(body)}'")
            aside = [self.joint_names[j] for j in joints if int(model.jnt_bodyid[self._joint_ids[j]]) not in between]
            if aside:
                raise ConfigError(
                    f"{place} has no tool pose: the way from '{self._name(root)}' to '{self._name(body)}' does not "
                    f"pass {', '.join(aside)}; solver_cfg.{name}.end_link_name names another end"
                )
            ids = [self._joint_ids[j] for j in joints]
            passed = [j for j in range(model.njnt) if int(model.jnt_bodyid[j]) in between and j not in ids]
            if passed:
                names = ", ".join(_last(model.joint(j).name) for j in passed)
                raise ConfigError(
                    f"{place} has no tool pose: the way from '{self._name(root)}' to '{self._name(body)}' passes "
                    f"{names}, which move without it; solver_cfg.{name} names another root_link_name or end_link_name"
                )
            if ids != sorted(ids):
                raise ConfigError(f"{place} has no tool pose: its joints must be in order from base to tool")
            tcp = frame @ np.array(solver.tcp)
            moving_root = root if model.body_weldid[root] else 0
            serial = SerialChain(model, ids, body, tcp, self._backend.device, moving_root)
            self._chains[name] = serial, moving_root
        return self._chains[name]

    def _end_of(self, link: int) -> tuple[int, np.ndarray]:
        """Return the flange that is fixed to a link, or the link: its body, and the pose in it."""
        model = self._backend.model
        fixed = [body for body in self._links.values() if model.body_weldid[body] == model.body_weldid[link]]
        for site in range(model.nsite):
            if int(model.site_bodyid[site]) in fixed and _last(model.site(site).name) in FLANGE_NAMES:
                return int(model.site_bodyid[site]), frame_pose(model.site_pos[site], model.site_quat[site])
        for body in fixed:
            if _last(model.body(body).name) in FLANGE_NAMES:
                return body, np.eye(4)
        return link, np.eye(4)

    def _frame(self, name: str, place: str) -> tuple[int, np.ndarray]:
        """Return the body of a link or site of the robot, and the pose in it."""
        if name in self._links:
            return self._links[name], np.eye(4)
        model = self._backend.model
        bodies = set(self._links.values())
        sites = {_last(model.site(s).name): s for s in range(model.nsite) if int(model.site_bodyid[s]) in bodies}
        site = name if name in sites else LINK_ALIASES.get(name)
        if site not in sites:
            raise ConfigError(f"{place}: {unknown_name('link or site', name, [*self._links, *sites])}")
        found = sites[site]
        return int(model.site_bodyid[found]), frame_pose(model.site_pos[found], model.site_quat[found])

    def _name(self, body: int) -> str:
        return next((name for name, id_ in self._links.items() if id_ == body), "world")


def _last(name: str) -> str:
    return name.rpartition("/")[2].removeprefix("left_").removeprefix("right_")
