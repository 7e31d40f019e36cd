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
import importlib.util
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
from embodichain.lab.sim.model import model_files
from embodichain.lab.sim.model.scene import RENDER_CAMERA, CompiledScene, SceneBuilder
from embodichain.utils import ConfigError

ALLOWED = {
    "actuator": "actuators of joints are replaced by drives",
    "jnt_actfrclimited": "actuators of joints are replaced by drives",
    "geom_contype": "links touch everything but each other",
    "geom_conaffinity": "links touch everything but each other",
    "geom_group": "collision shapes beside visual ones are not rendered",
    "light": "lights of the file are not used",
    "sensor": "sensors of the file are not used",
    "floor": "the scene's ground replaces the file's",
    "key": "keyframes after the first are not used",
    "start": "velocities of the keyframe are not used",
    "option": "options of the file that the scene's replace",
}
"""The beginning of the line in the scene's list of changes that allows a field or a kind to differ."""
ALWAYS = (
    *{ALLOWED[kind] for kind in ("actuator", "geom_contype", "light", "sensor", "floor", "key", "start", "option")},
)
"""The lines on what every scene brings itself."""
# Places in other arrays, values derived from other fields or from the scene's visual settings, fields compared apart.
_SKIPPED = re.compile(
    r".*(adr|num|user|sameframe|signature|plugin|ctrlspec|matid|dataid|texid|actuatorid)$|pair_geom\d|wrap_objid"
    r"|cam_(intrinsic|pos0|poscom0|mat0)|body_(contype|conaffinity|simple|treeid)|dof_treeid|jnt_actfrcrange"
)
_NAMED = {"geom_matid": "mat", "site_matid": "mat", "tendon_matid": "mat", "geom_dataid": "mesh", "mat_texid": "tex"}
# What the physics model has not, or derives from all shapes of a body, visual ones too.
_OF_LOOKS = ("cam", "mesh", "mat", "hfield", "skin", "dof_length", "body_margin", *_NAMED)
_OBJECTS = {
    kind: getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    for kind in ("body", "geom", "site", "tendon", "actuator", "mesh", "hfield")
}
_OBJECTS |= {"jnt": mujoco.mjtObj.mjOBJ_JOINT, "cam": mujoco.mjtObj.mjOBJ_CAMERA}
_OBJECTS |= {"mat": mujoco.mjtObj.mjOBJ_MATERIAL, "tex": mujoco.mjtObj.mjOBJ_TEXTURE}
_KINDS = ("body", "jnt", "dof", "site", "eq", "tendon", "wrap", "exclude", "skin", "flex")
_SIZES = {"dof": "nv", "actuator": "nu"}
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_SITE = int(mujoco.mjtWrap.mjWRAP_SITE)  # the last kind of wraps that are no shapes
_LEVEL = 1e-6  # the largest x and y of a level plane's quaternion
_HUGE = 1e10  # the largest number that MuJoCo takes for a control
_UNLIMITED = 1e6  # N or N m: what no robot's joint reaches


def rows_of(model: mujoco.MjModel, prefix: str, physics: bool) -> dict[str, list[int]]:
    """Return the robot's rows by kind, in the file's order, without a floor, drives and what only a scene has.

    Args:
        prefix: prefix of the robot's names in the model; empty for its file.
        physics: whether shapes that physics does not need are left out.
    """
    rows = {kind: list(range(kind == "body", _count(model, kind))) for kind in _KINDS}
    rows["cam"] = [row for row in range(model.ncam) if not prefix or _name(model, "cam", row) != RENDER_CAMERA]
    for kind in ("mesh", "mat", "hfield", "actuator"):
        rows[kind] = [row for row in range(_count(model, kind)) if _name(model, kind, row).startswith(prefix)]
    if prefix:
        rows["actuator"] = [row for row in rows["actuator"] if not _is_drive(model, row)]
    needed = needed_shapes(model)
    floor = floor_of(model)
    rows["geom"] = [row for row in range(model.ngeom) if row not in floor and (needed[row] or not physics)]
    order = {row: place for place, row in enumerate(rows["geom"])}
    ends = list(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True))
    rows["pair"] = sorted(range(model.npair), key=lambda row: sorted(order.get(geom, -1) for geom in ends[row]))
    return rows


def floor_of(model: mujoco.MjModel) -> list[int]:
    """Return the level planes of the world."""
    is_plane = (model.geom_bodyid == 0) & (model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE))
    return [int(row) for row in np.flatnonzero(is_plane) if abs(model.geom_quat[row, 1:3]).max() < _LEVEL]


def needed_shapes(model: mujoco.MjModel) -> np.ndarray:
    """Return a mask [ngeom] of the geoms that physics needs: in contacts, in pairs, or wrapped by tendons."""
    needed: np.ndarray = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    for geoms in (model.pair_geom1, model.pair_geom2, model.wrap_objid[model.wrap_type > _SITE]):
        needed[geoms] = True
    return needed


def _count(model: mujoco.MjModel, kind: str) -> int:
    return int(getattr(model, _SIZES.get(kind, f"n{kind}")))


def _name(model: mujoco.MjModel, kind: str, row: int) -> str:
    return mujoco.mj_id2name(model, _OBJECTS[kind], row) or "" if kind in _OBJECTS and row >= 0 else ""


def _is_drive(model: mujoco.MjModel, actuator: int) -> bool:
    joint = int(model.actuator_trnid[actuator, 0])
    is_joint = model.actuator_trntype[actuator] == int(mujoco.mjtTrn.mjTRN_JOINT)
    return bool(is_joint) and _name(model, "actuator", actuator) == _name(model, "jnt", joint)


def values_of(model: mujoco.MjModel, kind: str) -> dict[str, np.ndarray]:
    """Return every field of a kind, a row an element, with names in place of ids."""
    found = {name: getattr(model, name) for name in dir(model) if name.startswith(f"{kind}_")}
    found = {
        name: values
        for name, values in found.items()
        if isinstance(values, np.ndarray) and len(values) == _count(model, kind) and not _SKIPPED.fullmatch(name)
    }
    for name, target in _NAMED.items():
        if name.startswith(f"{kind}_"):
            ids = [np.atleast_1d(row).tolist() for row in getattr(model, name)]
            names = [[_name(model, target, i).removeprefix("robot/") for i in row] for row in ids]
            found[name] = np.array(names, dtype=object)
    if kind == "geom":
        found["geom_dataid"][model.geom_type == int(mujoco.mjtGeom.mjGEOM_HFIELD)] = ""  # of another kind
        found["geom_is_needed"] = needed_shapes(model)
    if kind == "pair":
        bodies = model.geom_bodyid[np.stack((model.pair_geom1, model.pair_geom2), axis=1)]
        found["pair_bodies"] = np.sort(bodies, axis=1)
    return found


def efforts_of(plain: mujoco.MjModel, kept: Collection[int] = ()) -> dict[int, np.ndarray]:
    """Return the range [2] of the effort, N or N m, that a file's actuators can give each joint that they move alone.

    Each actuator is simulated at its extreme controls, at and far from the reference pose. One that moves several
    joints counts for the one that leads the others by equalities. Those in ``kept`` do not count.
    """
    plain = copy.copy(plain)
    plain.actuator_history[:] = 0  # delays
    data = mujoco.MjData(plain)
    mujoco.mj_forward(plain, data)
    moments = np.zeros((plain.nu, plain.nv))
    if plain.nu:
        mujoco.mju_sparse2dense(
            moments, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
    leaders = {
        int(plain.eq_obj1id[e]): (int(plain.eq_obj2id[e]), plain.eq_data[e, 1])
        for e in range(plain.neq)
        if plain.eq_type[e] == int(mujoco.mjtEq.mjEQ_JOINT) and plain.eq_obj2id[e] >= 0 and plain.eq_active0[e]
    }
    forces = np.array([_forces_at(plain, data, far) for far in (-_HUGE, 0.0, _HUGE)])
    forces = forces.reshape(6, plain.nu)
    found: dict[int, np.ndarray] = {}
    for actuator in range(plain.nu):
        joints = {int(plain.dof_jntid[dof]): moments[actuator, dof] for dof in np.flatnonzero(moments[actuator])}
        for follower in [joint for joint in joints if joint in leaders and len(joints) > 1]:
            leader, slope = leaders[follower]
            joints[leader] = joints.get(leader, 0.0) + slope * joints.pop(follower)
        if len(joints) == 1 and _moves_joints(plain, actuator) and actuator not in kept:
            ((joint, arm),) = joints.items()
            ends = arm * np.array([forces[:, actuator].min(), forces[:, actuator].max()])
            found[joint] = found.get(joint, np.zeros(2)) + np.sort(ends)
    return {joint: _clipped(plain, joint, force) for joint, force in found.items()}


def _moves_joints(plain: mujoco.MjModel, actuator: int) -> bool:
    kind, target = int(plain.actuator_trntype[actuator]), int(plain.actuator_trnid[actuator, 0])
    if kind == int(mujoco.mjtTrn.mjTRN_TENDON):
        first = plain.tendon_adr[target]
        wraps = plain.wrap_type[first : first + plain.tendon_num[target]]
        return bool(np.all(wraps == int(mujoco.mjtWrap.mjWRAP_JOINT)))
    joints = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    return kind in joints and plain.jnt_type[target] in _SCALAR


def _forces_at(plain: mujoco.MjModel, data: mujoco.MjData, far: float) -> list[np.ndarray]:
    """Return the actuators' forces at their lowest and highest controls, at a length and velocity."""
    found = []
    for end, control in enumerate((-_HUGE, _HUGE)):
        data.ctrl[:] = np.where(plain.actuator_ctrllimited, plain.actuator_ctrlrange[:, end], control)
        for i in range(plain.nu):
            if plain.actuator_actnum[i]:
                is_filter = plain.actuator_dyntype[i] != int(mujoco.mjtDyn.mjDYN_INTEGRATOR)
                act = data.ctrl[i] if is_filter else control
                act = np.clip(act, *plain.actuator_actrange[i]) if plain.actuator_actlimited[i] else act
                data.act[plain.actuator_actadr[i] + plain.actuator_actnum[i] - 1] = act
        data.actuator_length[:] = data.actuator_velocity[:] = far
        mujoco.mj_fwdActuation(plain, data)
        found.append(data.actuator_force.copy())
    return found


def _clipped(plain: mujoco.MjModel, joint: int, force: np.ndarray) -> np.ndarray:
    """Return a range of effort within the joint's own; infinite where either end is beyond all that a robot has."""
    if plain.jnt_actfrclimited[joint]:
        force = np.clip(force, *plain.jnt_actfrcrange[joint])
    return force if np.abs(force).max() < _UNLIMITED else np.array([-np.inf, np.inf])


@dataclass
class Comparison:
    """What differs between a robot in a scene and its file.

    Attributes:
        silent: a line for each difference that the scene's list of changes does not name.
        changes: the scene's list.
    """

    silent: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Note a difference, which is silent unless the list of changes has the line that allows it."""
        line = ALLOWED.get(kind)
        if line is None or not any(change.startswith(line) for change in self.changes):
            self.silent.append(text)


def build(name: str, plain: mujoco.MjModel) -> CompiledScene:
    """Return a scene with a robot, named ``robot``, that moves as freely as in its file."""
    builder = SceneBuilder(SimulationManagerCfg())
    is_free = plain.jnt_type == _FREE
    trees = plain.body_rootid[plain.jnt_bodyid]
    robots = trees[np.isin(plain.jnt_type, _SCALAR)] if np.isin(plain.jnt_type, _SCALAR).any() else trees
    builder.add(RobotCfg("robot", fpath=name, fix_base=not np.isin(trees[is_free], robots).any()))
    return builder.compile()


def compare(plain: mujoco.MjModel, scene: CompiledScene) -> Comparison:
    """Compare every field of a robot in a scene with its plain compiled file."""
    result = Comparison(changes=scene.changes["robot"])
    if (plain.nbody, plain.nq) != (scene.model.nbody, scene.model.nq):
        bodies = f"{plain.nbody} bodies, {plain.nq} positions"
        result.silent.append(f"{bodies} -> {scene.model.nbody}, {scene.model.nq}")
        return result
    plain = _on_the_ground(_with_rotors(plain))
    _compare_elements(result, plain, scene.visual_model, physics=False)
    _compare_elements(result, plain, scene.model, physics=True)
    _compare_start(result, plain, scene.model)
    _compare_efforts(result, plain, scene.model)
    if unseen := _seen_bodies(plain) - _seen_bodies(scene.visual_model) - {0}:
        result.silent.append(f"bodies that are not rendered: {', '.join(plain.body(body).name for body in unseen)}")
    left = {"light": plain.nlight, "sensor": plain.nsensor, "floor": len(floor_of(plain)), "key": plain.nkey - 1}
    for kind, count in left.items():
        if count > 0:
            result.note(kind, f"{kind}: {count} removed")
    options = next((line for line in result.changes if line.startswith(ALLOWED["option"])), "")
    for name in (name for name in dir(plain.opt) if not name.startswith("_")):
        old, new = getattr(plain.opt, name), getattr(scene.model.opt, name)
        if not (callable(old) or np.array_equal(old, new) or re.search(rf"\b{name}\b", options)):
            result.silent.append(f"option {name}: {old} -> {new}")
    return result


def _with_rotors(plain: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy in which the armature and damping of a joint's actuators are the joint's."""
    model = copy.copy(plain)
    for i in np.flatnonzero(plain.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)):
        dof, gear = plain.jnt_dofadr[plain.actuator_trnid[i, 0]], plain.actuator_gear[i, 0]
        model.dof_armature[dof] += gear**2 * plain.actuator_armature[i]
        model.dof_damping[dof] += gear**2 * plain.actuator_damping[i]
    return model


def _on_the_ground(plain: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy that is moved up or down until its first level plane is at a height of zero."""
    model, floor = copy.copy(plain), floor_of(plain)
    height = plain.geom_pos[floor[0], 2] if floor else 0.0
    for places, owners in ((model.geom_pos, model.geom_bodyid), (model.site_pos, model.site_bodyid)):
        places[owners == 0, 2] -= height
    model.cam_pos[model.cam_bodyid == 0, 2] -= height
    model.body_pos[1:][model.body_parentid[1:] == 0, 2] -= height
    heights = model.jnt_qposadr[model.jnt_type == _FREE] + 2
    model.qpos0[heights] -= height
    model.key_qpos[:, heights] -= height
    model.key_mpos[:, 2::3] -= height
    return model


def _seen_bodies(model: mujoco.MjModel) -> set[int]:
    return set(model.geom_bodyid[model.geom_group < model_files.SEEN_GROUPS].tolist())


def _compare_elements(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel, physics: bool) -> None:
    old_rows, new_rows = rows_of(plain, "", physics), rows_of(model, "robot/", physics)
    names = _kept_names(model)
    for row in old_rows["actuator"]:
        if row not in _kept(plain, names):
            name = _name(plain, "actuator", row)
            result.note("actuator" if _moves_joints(plain, row) else "", f"actuator '{name}' is gone")
    old_rows["actuator"] = _kept(plain, names)
    place = "physics: " if physics else ""
    for kind, old in old_rows.items():
        new = new_rows[kind]
        if physics and kind in _OF_LOOKS:
            continue
        if len(old) != len(new):
            result.silent.append(f"{place}{kind}: {len(old)} -> {len(new)}")
            continue
        shown = [_name(plain, kind, row) for row in old]
        for name, row in zip(shown, new, strict=True):
            if name and _name(model, kind, row).removeprefix("robot/") not in (name, f"{name}_actuator"):
                result.silent.append(f"{place}{kind} '{name}' is named '{_name(model, kind, row)}'")
        theirs, ours = values_of(plain, kind), values_of(model, kind)
        for field_name in theirs.keys() - (set(_OF_LOOKS) if physics else set()):
            one, two = theirs[field_name][old], ours[field_name][new]
            moved = [] if _same(one, two) else [i for i in range(len(old)) if not _same(one[i], two[i])]
            if field_name in ("body_pos", "body_quat"):  # a free body's pose is in the keyframe
                moved = [i for i in moved if old[i] not in plain.jnt_bodyid[plain.jnt_type == _FREE]]
            if moved:
                i = moved[0]
                values = f"'{shown[i] or i}' {_shown(one[i])} -> {_shown(two[i])}"
                result.note(field_name, f"{place}{field_name} of {len(moved)} of {len(old)}: {values}")


def _kept_names(model: mujoco.MjModel) -> set[str]:
    """Return the names of the scene's actuators that are no drives; with a joint's name, one has another there."""
    names = {_name(model, "actuator", row).removeprefix("robot/") for row in rows_of(model, "robot/", True)["actuator"]}
    return names | {name.removesuffix("_actuator") for name in names}


def _kept(plain: mujoco.MjModel, names: set[str]) -> list[int]:
    return [row for row in range(plain.nu) if (_name(plain, "actuator", row) or f"actuator{row}") in names]


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    if one.dtype.kind in "fc":
        return bool(np.allclose(one, two, rtol=1e-6, atol=1e-9))
    return bool(np.array_equal(one, two))


def _shown(value: np.ndarray) -> str:
    return " ".join(f"{number:.5g}" if value.dtype.kind == "f" else str(number) for number in value.flat[:6])


def _compare_start(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel) -> None:
    """Compare keyframe 0, or the reference pose within the joints' limits, with the scene's start."""
    theirs = (plain.key_qpos[0] if plain.nkey else plain.qpos0).copy()
    if not plain.nkey:
        limited = np.isin(plain.jnt_type, _SCALAR) & (plain.jnt_limited != 0)
        places = plain.jnt_qposadr[limited]
        theirs[places] = np.clip(theirs[places], *plain.jnt_range[limited].T)
    kept = _kept(plain, _kept_names(model))
    pairs = {"qpos": (theirs, model.key_qpos[0])}
    if plain.nkey:
        pairs["controls"] = plain.key_ctrl[0, kept], model.key_ctrl[0, rows_of(model, "robot/", True)["actuator"]]
        pairs["mocap"] = plain.key_mpos[0], model.key_mpos[0]
        pairs["activations"] = plain.key_act[0, _activations(plain, kept)], model.key_act[0]
        if plain.key_qvel[0].any():
            result.note("start", "velocities of the start -> 0")
    for name, (one, two) in pairs.items():
        if not _same(one, two):
            result.silent.append(f"{name} of the start: {_shown(one)} -> {_shown(two)}")


def _activations(plain: mujoco.MjModel, actuators: list[int]) -> list[int]:
    """Return the places of some actuators' activations in the state."""
    first, count = plain.actuator_actadr, plain.actuator_actnum
    return [place for i in actuators for place in range(first[i], first[i] + count[i])]


def _compare_efforts(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel) -> None:
    """Compare each joint's effort with what the file's actuators, or the joint's own limit, allow."""
    efforts = efforts_of(plain, _kept(plain, _kept_names(model)))
    drives = {int(model.actuator_trnid[row, 0]): row for row in range(model.nu) if _is_drive(model, row)}
    free = np.array([-np.inf, np.inf])
    for joint in range(plain.njnt):
        name = _name(plain, "jnt", joint)
        if (joint in efforts) != (joint in drives) and plain.nu:
            result.silent.append(f"'{name}' " + ("has no drive" if joint in efforts else "has a drive of its own"))
        theirs = efforts.get(joint, _clipped(plain, joint, free))
        ours = model.jnt_actfrcrange[joint] if model.jnt_actfrclimited[joint] else free
        if joint in drives and model.actuator_forcelimited[drives[joint]]:
            ours = np.clip(ours, *model.actuator_forcerange[drives[joint]])
        if not _same(theirs, ours):
            result.silent.append(f"effort of '{name}': {_shown(theirs)} -> {_shown(ours)}")


def plain_model(path: Path) -> mujoco.MjModel:
    """Return what MuJoCo makes of a file; of a URDF with its visuals, fixed links and packages."""
    if path.suffix == ".urdf":
        return mujoco.MjSpec.from_string(model_files.urdf_text(path, [])).compile()
    return mujoco.MjModel.from_xml_path(str(path))


def examine(path: Path) -> tuple[str, list[str]] | None:
    """Return a file's verdict, and lines on it; None where MuJoCo alone cannot compile it, or it has no joints."""
    try:
        plain = plain_model(path)
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
    places = parser.parse_args().places
    if not places:
        package = importlib.util.find_spec("gymnasium")
        places = [Path(assets.__file__).parent]
        places += [Path(package.origin).parent / "envs/mujoco/assets"] if package and package.origin else []
    counts: Counter[str] = Counter()
    for file in find_files(places):
        if (found := examine(file)) is None:
            counts["not counted"] += 1
            continue
        verdict, lines = found
        counts[verdict] += 1
        print(f"{verdict:10}{file}", *(f"          {line}" for line in lines), sep="\n", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common()))


if __name__ == "__main__":
    logging.getLogger("embodichain").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    main()
