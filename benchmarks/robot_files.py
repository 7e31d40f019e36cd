"""Comparison of robots in a scene with their plain compiled files, field by field.

    python -m benchmarks.robot_files                    # the bundled assets, and the files of gymnasium
    python -m benchmarks.robot_files FOLDER [FILE ...]  # each MJCF that no other includes, and each URDF, below folders

A file is ``as meant`` where the robot differs from it only in what every scene brings itself: drives, ground, lights,
sensors, options and the contacts of links. ``listed``: the scene's list of changes names more. ``refused``: in one
line. What differs and is not in the list is ``SILENT``. Files without joints, or that MuJoCo alone cannot compile, do
not count.
"""

from __future__ import annotations

import argparse
import copy
import logging
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np

from embodichain.lab.sim import assets
from embodichain.lab.sim.cfg import RobotCfg, SimulationManagerCfg
from embodichain.lab.sim.model import drives, model_files
from embodichain.lab.sim.model.scene import RENDER_CAMERA, CompiledScene, SceneBuilder, scene_path
from embodichain.lab.sim.model.terrain import GROUND
from embodichain.utils import ConfigError

ALLOWED = {
    "actuator": "actuators of joints and their gains are replaced",
    "jnt_actfrclimited": "actuators of joints and their gains are replaced",
    "geom_contype": "links touch everything but each other",
    "geom_conaffinity": "links touch everything but each other",
    "geom_group": "collision shapes of links with visual shapes are not rendered",
    "light": "lights of the file are not used",
    "sensor": "sensors of the file are not used",
    "floor": "the scene's ground replaces the file's",
    "key": "keyframes after the first are not used",
    "start_qpos": "joints start where their couplings put them",
    "start_qvel": "velocities of the keyframe are not used",
    "option": "options of the file that the scene's replace",
}
"""The beginning of the line in the scene's list of changes that allows a field or a kind to differ."""
ALWAYS = tuple(line for kind, line in ALLOWED.items() if kind not in ("geom_group", "start_qpos"))
"""The lines on what every scene brings itself."""
# Places in other arrays, values derived from other fields or from the scene's visual settings, fields compared apart.
_SKIPPED = re.compile(
    r".*(adr|num|user|sameframe|signature|plugin|ctrlspec|matid|dataid|texid|actuatorid)$|pair_geom\d|wrap_objid"
    r"|cam_(intrinsic|pos0|poscom0|mat0)|body_(contype|conaffinity|simple|treeid)|dof_treeid|jnt_actfrcrange"
)
_NAMED = {"geom_matid": "mat", "site_matid": "mat", "tendon_matid": "mat", "geom_dataid": "mesh", "mat_texid": "tex"}
_LOOKS = ("cam", "mesh", "mat", "hfield", "skin")
_WITH_NAMES = ("body", "jnt", "geom", "site", "flex", "eq", "tendon", "exclude", "actuator", *_LOOKS)
_KINDS = (*_WITH_NAMES, "dof", "wrap", "pair")
# What the physics model has not, or derives from all shapes of a body, visual ones too.
_OF_LOOKS = (*_LOOKS, "dof_length", "body_margin", "body_is_seen", *_NAMED)
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_LEVEL = 1e-6  # the largest x and y of a level plane's quaternion
_SITE = int(mujoco.mjtWrap.mjWRAP_SITE)  # the last kind of wraps that are no shapes
_JOINT = int(mujoco.mjtTrn.mjTRN_JOINT)
_HUGE = 1e10  # the largest number that MuJoCo takes for a control
_UNLIMITED = 1e6  # N or N m: what no robot's joint reaches
_ANY = np.array([-np.inf, np.inf])


def names_of(model: mujoco.MjModel, kind: str) -> list[str]:
    """Return the names of all elements of a kind, with the prefix of a scene; empty where there is none."""
    starts = getattr(model, f"name_{kind}adr")
    return [model.names[start : model.names.index(b"\0", start)].decode() for start in starts]


def floor_of(model: mujoco.MjModel) -> np.ndarray:
    """Return a mask [ngeom] of the level planes of the world."""
    is_level: np.ndarray = abs(model.geom_quat[:, 1:3]).max(axis=1) < _LEVEL
    return is_level & (model.geom_bodyid == 0) & (model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE))


def drives_of(model: mujoco.MjModel) -> dict[int, int]:
    """Return a scene's drive of each joint that has one: an actuator with the joint's name."""
    joints, actuators = names_of(model, "jnt"), names_of(model, "actuator")
    pairs = [(int(model.actuator_trnid[i, 0]), int(i)) for i in np.flatnonzero(model.actuator_trntype == _JOINT)]
    return {joint: row for joint, row in pairs if actuators[row] == joints[joint]}


def fields_of(model: mujoco.MjModel, actuators: list[int], is_scene: bool, physics: bool) -> dict[str, np.ndarray]:
    """Return every field of a robot, by name: a row for each element, in the file's order, with names in place of ids.

    Args:
        actuators: rows of the file's own actuators.
        physics: whether looks are left out, and shapes that are in no contacts or pairs and that no tendon wraps.
    """
    needed = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    for geoms in (model.pair_geom1, model.pair_geom2, model.wrap_objid[model.wrap_type > _SITE]):
        needed[geoms] = True
    sizes = {kind: model.nv if kind == "dof" else getattr(model, f"n{kind}") for kind in _KINDS}
    rows = {kind: list(range(kind == "body", sizes[kind])) for kind in _KINDS}
    rows |= {"actuator": actuators, "geom": np.flatnonzero(~floor_of(model) & (needed | (not physics))).tolist()}
    order = {row: place for place, row in enumerate(rows["geom"])}
    ends = np.stack((model.pair_geom1, model.pair_geom2), axis=1)
    rows["pair"].sort(key=lambda row: sorted(order.get(geom, -1) for geom in ends[row].tolist()))
    found = {"geom_is_needed": needed, "pair_bodies": np.sort(model.geom_bodyid[ends], axis=1)}
    seen = model.geom_bodyid[model.geom_group < model_files.SEEN_GROUPS]
    found["body_is_seen"] = np.isin(np.arange(model.nbody), seen)
    for kind in _WITH_NAMES:
        found[f"{kind}_name"] = np.array([name.removeprefix("robot/") for name in names_of(model, kind)], dtype=object)
    for name in (name for name in dir(model) if name.partition("_")[0] in _KINDS and not _SKIPPED.fullmatch(name)):
        values = getattr(model, name)
        if isinstance(values, np.ndarray) and len(values) == sizes[name.partition("_")[0]]:
            found[name] = values.copy()
    for name, kind in _NAMED.items():
        names = [name.removeprefix("robot/") for name in names_of(model, kind)]
        found[name] = np.array([*names, ""], dtype=object)[getattr(model, name)]  # the last for -1, none
    found["geom_dataid"][model.geom_type == int(mujoco.mjtGeom.mjGEOM_HFIELD)] = ""  # of another kind
    for name in ("body_pos", "body_quat"):  # a free body's pose is in the keyframe
        found[name][model.jnt_bodyid[model.jnt_type == _FREE]] = 0.0
    if is_scene:
        rows["mat"] = [row for row, name in enumerate(names_of(model, "mat")) if name != GROUND]
        rows["cam"] = [row for row, name in enumerate(names_of(model, "cam")) if name != RENDER_CAMERA]
    kinds = {name: name.partition("_")[0] for name in found}
    looks = _OF_LOOKS if physics else ()
    return {name: found[name][rows[kind]] for name, kind in kinds.items() if name not in looks and kind not in looks}


def start_of(model: mujoco.MjModel, actuators: list[int]) -> dict[str, np.ndarray]:
    """Return the state of keyframe 0, or without one of the reference pose within the joints' limits, by name."""
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    else:
        limited = np.isin(model.jnt_type, _SCALAR) & (model.jnt_limited != 0)
        places = model.jnt_qposadr[limited]
        data.qpos[places] = np.clip(data.qpos[places], *model.jnt_range[limited].T)
    first, count = model.actuator_actadr, model.actuator_actnum
    active = [place for i in actuators for place in range(first[i], first[i] + count[i])]
    found = {"qpos": data.qpos, "qvel": data.qvel, "mocap_pos": data.mocap_pos}
    found |= {"ctrl": data.ctrl[actuators], "act": data.act[active]}
    return {f"start_{name}": values for name, values in found.items()}


def efforts_of(plain: mujoco.MjModel, kept: Collection[int] = ()) -> dict[int, np.ndarray]:
    """Return the range [2] of the effort, N or N m, that a file's actuators can give each joint that they move alone.

    Each actuator is simulated at its extreme controls, at and far from the reference pose. One that moves several
    joints counts for the one that leads the others by equalities. Those in ``kept`` do not count.
    """
    plain = copy.copy(plain)
    plain.actuator_history[:] = 0  # delays
    data, moments = mujoco.MjData(plain), np.zeros((plain.nu, plain.nv))
    mujoco.mj_forward(plain, data)
    if plain.nu:
        sparse = data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        mujoco.mju_sparse2dense(moments, *sparse)
    leaders = {follower: (leader, line[1]) for follower, leader, line in drives.couplings(plain)}
    forces = [_forces_at(plain, data, far, end) for far in (-_HUGE, 0.0, _HUGE) for end in (0, 1)]
    found: dict[int, np.ndarray] = {}
    for actuator in (row for row in range(plain.nu) if row not in kept and _moves_joints(plain, row)):
        joints = {int(plain.dof_jntid[dof]): moments[actuator, dof] for dof in np.flatnonzero(moments[actuator])}
        for follower in [joint for joint in joints if joint in leaders and len(joints) > 1]:
            leader, slope = leaders[follower]
            joints[leader] = joints.get(leader, 0.0) + slope * joints.pop(follower)
        if len(joints) == 1:
            ((joint, arm),) = joints.items()
            efforts = [arm * force[actuator] for force in forces]
            found[joint] = found.get(joint, 0.0) + np.array([min(efforts), max(efforts)])
    return {joint: _clipped(plain, joint, force) for joint, force in found.items()}


def _moves_joints(plain: mujoco.MjModel, actuator: int) -> bool:
    kind, target = int(plain.actuator_trntype[actuator]), int(plain.actuator_trnid[actuator, 0])
    if kind == int(mujoco.mjtTrn.mjTRN_TENDON):
        wraps = plain.wrap_type[plain.tendon_adr[target] :][: plain.tendon_num[target]]
        return bool(np.all(wraps == int(mujoco.mjtWrap.mjWRAP_JOINT)))
    return kind in (_JOINT, int(mujoco.mjtTrn.mjTRN_JOINTINPARENT)) and plain.jnt_type[target] in _SCALAR


def _forces_at(plain: mujoco.MjModel, data: mujoco.MjData, far: float, end: int) -> np.ndarray:
    """Return the actuators' forces [nu] at their lowest or highest controls, at a length and velocity."""
    control = (-_HUGE, _HUGE)[end]
    data.ctrl[:] = np.where(plain.actuator_ctrllimited, plain.actuator_ctrlrange[:, end], control)
    for i in np.flatnonzero(plain.actuator_actnum):
        act = control if plain.actuator_dyntype[i] == int(mujoco.mjtDyn.mjDYN_INTEGRATOR) else data.ctrl[i]
        act = np.clip(act, *plain.actuator_actrange[i]) if plain.actuator_actlimited[i] else act
        data.act[plain.actuator_actadr[i] + plain.actuator_actnum[i] - 1] = act
    data.actuator_length[:] = data.actuator_velocity[:] = far
    mujoco.mj_fwdActuation(plain, data)
    return data.actuator_force.copy()


def _clipped(plain: mujoco.MjModel, joint: int, force: np.ndarray) -> np.ndarray:
    """Return a range of effort within the joint's own; infinite where either end is beyond all that a robot has."""
    if plain.jnt_actfrclimited[joint]:
        force = np.clip(force, *plain.jnt_actfrcrange[joint])
    return force if np.abs(force).max() < _UNLIMITED else _ANY


@dataclass
class Comparison:
    """The scene's list of ``changes`` to a robot's file, and a line for each difference that it does not name."""

    changes: list[str]
    silent: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Note a difference, which is silent unless the list of changes has the line that allows it."""
        if not any(change.startswith(ALLOWED[kind]) for change in self.changes if kind in ALLOWED):
            self.silent.append(text)

    def note_fields(self, theirs: dict[str, np.ndarray], ours: dict[str, np.ndarray], place: str = "") -> None:
        """Note the fields that differ, with the first row that does."""
        for name, one in theirs.items():
            two, kind = ours[name], name.partition("_")[0]
            if len(one) != len(two):
                text = f"{place}{kind}: {len(one)} -> {len(two)}"
                self.silent += [text] * (text not in self.silent)
                continue
            if name.endswith("_name"):  # elements without one have one in a scene; an actuator's may be a drive's
                two = np.where((one == "") | (two == one + "_actuator"), one, two)
            differs = ~np.isclose(one, two, rtol=1e-6, atol=1e-9) if one.dtype.kind == "f" else one != two
            moved = np.flatnonzero(differs.any(axis=tuple(range(1, differs.ndim))))
            for i in moved[:1]:
                label = theirs[f"{kind}_name"][i] if f"{kind}_name" in theirs else ""
                old, new = (np.ravel(values[i])[:6] for values in (one, two))
                self.note(name, f"{place}{name} of {len(moved)} of {len(one)}: '{label or i}' {old} -> {new}")


def build(name: str, plain: mujoco.MjModel) -> CompiledScene:
    """Return a scene with a robot, named ``robot``, that moves as freely as in its file."""
    builder = SceneBuilder(SimulationManagerCfg())
    is_free, is_scalar = plain.jnt_type == _FREE, np.isin(plain.jnt_type, _SCALAR)
    trees = plain.body_rootid[plain.jnt_bodyid]
    robots = trees[is_scalar] if is_scalar.any() else trees
    builder.add(RobotCfg("robot", fpath=name, fix_base=not np.isin(trees[is_free], robots).any()))
    return builder.compile()


def _adapted(plain: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy with the motors' rotors and friction as the joints', and its first level plane at a height of 0."""
    model, floor = copy.copy(plain), np.flatnonzero(floor_of(plain))
    for i in np.flatnonzero(plain.actuator_trntype == _JOINT):
        dof, gear = plain.jnt_dofadr[plain.actuator_trnid[i, 0]], plain.actuator_gear[i, 0]
        model.dof_armature[dof] += gear**2 * plain.actuator_armature[i]
        model.dof_damping[dof] += gear**2 * plain.actuator_damping[i]
    height = plain.geom_pos[floor[0], 2] if len(floor) else 0.0
    for kind in ("geom", "site", "cam"):
        getattr(model, f"{kind}_pos")[getattr(model, f"{kind}_bodyid") == 0, 2] -= height
    model.body_pos[1:][model.body_parentid[1:] == 0, 2] -= height
    heights = model.jnt_qposadr[model.jnt_type == _FREE] + 2
    model.qpos0[heights] -= height
    model.key_qpos[:, heights] -= height
    model.key_mpos[:, 2::3] -= height
    return model


def _touched(model: mujoco.MjModel, driven: Collection[int]) -> np.ndarray:
    """Return which collision shapes, less floors, may touch the trees that actuators move from outside."""
    rows = np.flatnonzero(~floor_of(model) & ((model.geom_contype | model.geom_conaffinity) != 0))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    moved = data.moment_colind[: data.moment_rownnz.sum()]
    trees = model.body_rootid[np.append(model.dof_bodyid[moved], model.jnt_bodyid[list(driven)])]
    is_robot = np.isin(model.body_rootid[model.geom_bodyid[rows]], trees)
    meets = (model.geom_contype[rows][:, None] & model.geom_conaffinity[rows]) != 0
    found: np.ndarray = ((meets | meets.T) & is_robot[:, None]).any(axis=0) & ~is_robot
    return found


def compare(plain: mujoco.MjModel, scene: CompiledScene) -> Comparison:
    """Compare every field of a robot in a scene with its plain compiled file."""
    result, model, driven = Comparison(scene.changes["robot"]), scene.model, drives_of(scene.model)
    if (plain.nbody, plain.nq) != (model.nbody, model.nq):
        result.silent.append(f"{plain.nbody} bodies, {plain.nq} positions -> {model.nbody}, {model.nq}")
        return result
    plain = _adapted(plain)
    if drives_of(scene.visual_model) != driven:
        result.silent.append("the model for rendering has other drives")
    own = [row for row in range(model.nu) if row not in driven.values()]
    names = {names_of(model, "actuator")[row].removeprefix("robot/") for row in own}
    names |= {name.removesuffix("_actuator") for name in names}  # it has another name where it has a joint's
    named = [name or f"actuator{row}" for row, name in enumerate(names_of(plain, "actuator"))]
    kept = [row for row, name in enumerate(named) if name in names]
    for row in set(range(plain.nu)) - set(kept):
        result.note("actuator" if _moves_joints(plain, row) else "", f"actuator '{named[row]}' is gone")
    theirs, ours, efforts = start_of(plain, kept), start_of(model, own), efforts_of(plain, kept)
    theirs["jnt_effort"] = np.array([efforts.get(j, _clipped(plain, j, _ANY)) for j in range(plain.njnt)])
    theirs["jnt_driven"] = np.array([joint in (efforts if plain.nu else driven) for joint in range(plain.njnt)])
    limits = np.where(model.actuator_forcelimited[:, None], model.actuator_forcerange, _ANY)
    ours["jnt_effort"] = np.where(model.jnt_actfrclimited[:, None], model.jnt_actfrcrange, _ANY)
    for joint, row in driven.items():
        ours["jnt_effort"][joint] = np.clip(ours["jnt_effort"][joint], *limits[row])
    ours["jnt_driven"] = np.array([joint in driven for joint in range(plain.njnt)])
    theirs, ours = theirs | fields_of(plain, kept, False, False), ours | fields_of(scene.visual_model, own, True, False)
    result.note_fields(theirs, ours)
    result.note_fields(fields_of(plain, kept, False, True), fields_of(model, own, True, True), "physics: ")
    passed = _touched(plain, driven) & ~_touched(model, driven)
    if passed.any():
        result.silent.append(f"shapes that the robot passes through: {np.count_nonzero(passed)}")
    left = {
        "light": plain.nlight,
        "sensor": plain.nsensor,
        "floor": np.count_nonzero(floor_of(plain)),
        "key": plain.nkey - 1,
    }
    for kind, count in left.items():
        if count > 0:
            result.note(kind, f"{kind}: {count} removed")
    options = next((line for line in result.changes if line.startswith(ALLOWED["option"])), "")
    for name in (name for name in dir(plain.opt) if not name.startswith("_")):
        old, new = getattr(plain.opt, name), getattr(model.opt, name)
        if not (callable(old) or np.array_equal(old, new) or re.search(rf"\b{name}\b", options)):
            result.silent.append(f"option {name}: {old} -> {new}")
    return result


def examine(path: Path) -> tuple[str, list[str]] | None:
    """Return a file's verdict, and lines on it; None where MuJoCo alone cannot compile it, or it has no joints."""
    try:
        if path.suffix == ".urdf":  # with its visuals, fixed links and packages
            plain = mujoco.MjSpec.from_string(model_files.urdf_text(path, [])).compile()
        else:
            plain = mujoco.MjModel.from_xml_path(str(path))
    except (ConfigError, LookupError, ValueError):
        return None
    if not plain.njnt:
        return None
    try:
        result = compare(plain, build(str(path), plain))
    except ConfigError as error:
        return "refused" if "\n" not in str(error) else "REFUSED IN LINES", [str(error)]
    except Exception:  # noqa: BLE001
        return "TRACEBACK", traceback.format_exc().splitlines()[-6:]
    if result.silent:
        return "SILENT", result.silent
    other = [line for line in result.changes if not line.startswith(ALWAYS)]
    return ("listed" if other else "as meant"), other


def find_files(places: Iterable[Path]) -> Iterator[Path]:
    """Return the URDFs and the MJCF files in folders that no other one includes."""
    files = {f for p in places for f in ([p] if p.is_file() else p.rglob("*")) if f.suffix in (".xml", ".urdf")}
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()}
    included = {
        (file.parent / name).resolve()
        for file, text in texts.items()
        for name in re.findall(r"""<(?:include|model)\s[^>]*file\s*=\s*["']([^"']+)""", text)
    }
    for file, text in sorted(texts.items()):
        if re.search(r"<(mujoco|robot)\b", text) and file.resolve() not in included:
            yield file


def main() -> None:
    """Print each file's verdict, and their counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, metavar="FOLDER")
    bundled = [Path(assets.__file__).parent, scene_path("gymnasium/ant.xml").parent]
    counts: Counter[str] = Counter()
    for file in find_files(parser.parse_args().places or bundled):
        verdict, lines = examine(file) or ("not counted", [])
        counts[verdict] += 1
        if verdict != "not counted":
            print(f"{verdict:10}{file}", *(f"          {line}" for line in lines), sep="\n", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common()))


if __name__ == "__main__":
    logging.getLogger("embodichain").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    main()
