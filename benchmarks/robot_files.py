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
from collections.abc import Collection, Hashable, Iterable, Iterator
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
    "start": "velocities and activations of the keyframe are not used",
    "option": "options of the file that the scene's replace",
}
"""The beginning of the line in the scene's list of changes that allows a field or a kind to differ."""
ALWAYS = (
    *{ALLOWED[kind] for kind in ("actuator", "geom_contype", "light", "sensor", "floor", "key", "start", "option")},
)
"""The lines on what every scene brings itself."""
# Places and numbers of elements (compared through their owners), what follows from other fields, and what is compared
# apart: collision bits of bodies, poses of free roots and cameras in the reference pose, limits of effort.
_SKIPPED = re.compile(
    r".*(adr|num|user|sameframe|signature|plugin|ctrlspec)$|.*(jnt|dof|tree|actuator|obj|obj1|obj2|trn|parent|data|mat|tex)id$"
    r"|wrap_objid|cam_intrinsic|pair_geom\d|cam_(pos|poscom|mat)0|body_(contype|conaffinity|simple)|jnt_actfrcrange|(mesh|hfield)_.*adr"
)
_OBJECT = mujoco.mjtObj
_OBJECTS = {
    "body": _OBJECT.mjOBJ_BODY,
    "jnt": _OBJECT.mjOBJ_JOINT,
    "geom": _OBJECT.mjOBJ_GEOM,
    "site": _OBJECT.mjOBJ_SITE,
    "cam": _OBJECT.mjOBJ_CAMERA,
    "tendon": _OBJECT.mjOBJ_TENDON,
    "actuator": _OBJECT.mjOBJ_ACTUATOR,
    "mesh": _OBJECT.mjOBJ_MESH,
    "mat": _OBJECT.mjOBJ_MATERIAL,
    "hfield": _OBJECT.mjOBJ_HFIELD,
    "tex": _OBJECT.mjOBJ_TEXTURE,
}
_NAMED = {"geom_matid": "mat", "site_matid": "mat", "tendon_matid": "mat", "geom_dataid": "mesh", "mat_texid": "tex"}
_KIND_OF = {int(kind): name for name, kind in _OBJECTS.items()}
_IN_ORDER = ("eq", "tendon", "exclude", "wrap", "skin", "flex")
_SIZES = {"dof": "nv", "actuator": "nu"}
# What the physics model has not, or derives from all shapes of a body, visual ones too.
_OF_LOOKS = {"dof_length", "body_margin", "geom_matid", "site_matid", "tendon_matid"}
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_SITE = int(mujoco.mjtWrap.mjWRAP_SITE)  # the last kind of wraps that are no shapes
_HUGE = 1e10  # the largest number that MuJoCo takes for a control
_UNLIMITED = 1e6  # N or N m: what no robot's joint reaches

Rows = dict[str, dict[Hashable, int]]


def rows_of(model: mujoco.MjModel, prefix: str) -> Rows:
    """Return each element's row by kind and key; a file and a scene of it, with its prefix, have the same keys."""
    # Shapes that physics needs, although their bits touch nothing.
    used = {*model.pair_geom1.tolist(), *model.pair_geom2.tolist(), *model.wrap_objid[model.wrap_type > _SITE].tolist()}
    rows: Rows = {"body": {body: body for body in range(1, model.nbody)}}
    for kind in ("jnt", "geom", "site", "cam"):  # by body, in order: they may have no names
        count: Counter[tuple[int, bool]] = Counter()
        rows[kind] = {}
        for row, body in enumerate(getattr(model, f"{kind}_bodyid").tolist()):
            is_floor = kind == "geom" and body == 0 and model.geom_type[row] == int(mujoco.mjtGeom.mjGEOM_PLANE)
            if is_floor or (kind == "cam" and body == 0 and prefix and _name(model, kind, row) == RENDER_CAMERA):
                continue
            touches = kind == "geom" and (row in used or bool(model.geom_contype[row] or model.geom_conaffinity[row]))
            rows[kind][body, touches, count[body, touches]] = row
            count[body, touches] += 1
    rows["dof"] = {
        (key, i): model.jnt_dofadr[joint] + i
        for key, joint in rows["jnt"].items()
        for i in range(np.sum(model.dof_jntid == joint))
    }
    for kind in ("mesh", "mat", "hfield", "actuator"):
        names = [_name(model, kind, row) or f"{kind}{row}" for row in range(_count(model, kind))]
        rows[kind] = {name.removeprefix(prefix): row for row, name in enumerate(names) if name.startswith(prefix)}
    actuators = {key: row for key, row in rows["actuator"].items() if not (prefix and _is_drive(model, row))}
    # One that is kept, with a joint's name, has another in the scene.
    rows["actuator"] = {str(key).removesuffix("_actuator"): row for key, row in actuators.items()}
    rows |= {kind: {row: row for row in range(_count(model, kind))} for kind in _IN_ORDER}
    geoms = {row: key for key, row in rows["geom"].items()}
    ends = zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)
    rows["pair"] = {frozenset((geoms.get(a, "floor"), geoms.get(b, "floor"))): row for row, (a, b) in enumerate(ends)}
    return rows


def _count(model: mujoco.MjModel, kind: str) -> int:
    return int(getattr(model, _SIZES.get(kind, f"n{kind}")))


def _name(model: mujoco.MjModel, kind: str, row: int) -> str:
    return mujoco.mj_id2name(model, _OBJECTS[kind], row) or "" if kind in _OBJECTS and row >= 0 else ""


def _is_drive(model: mujoco.MjModel, actuator: int) -> bool:
    joint = int(model.actuator_trnid[actuator, 0])
    is_joint = model.actuator_trntype[actuator] == int(mujoco.mjtTrn.mjTRN_JOINT)
    return bool(is_joint) and _name(model, "actuator", actuator) == _name(model, "jnt", joint)


def values_of(model: mujoco.MjModel, kind: str, rows: Rows) -> dict[str, dict[Hashable, np.ndarray]]:
    """Return every field of a kind, by element: numbers, and names or keys in place of ids."""
    fields = {
        name: values
        for name in dir(model)
        if name.startswith(f"{kind}_")
        and isinstance(values := getattr(model, name), np.ndarray)
        and len(values) == _count(model, kind)
        and not _SKIPPED.fullmatch(name)
    }
    found = {name: {key: values[row] for key, row in rows[kind].items()} for name, values in fields.items()}
    for name, target in _NAMED.items():
        if name.startswith(f"{kind}_"):
            ids = {key: np.atleast_1d(getattr(model, name)[row]).tolist() for key, row in rows[kind].items()}
            names = {key: [_name(model, target, i).removeprefix("robot/") for i in each] for key, each in ids.items()}
            found[name] = {key: np.array(each) for key, each in names.items()}
    if kind == "geom":  # the data of height fields are of another kind
        is_field = model.geom_type == int(mujoco.mjtGeom.mjGEOM_HFIELD)
        found["geom_dataid"] = {
            key: each for key, each in found["geom_dataid"].items() if not is_field[rows[kind][key]]
        }
    if kind == "eq":
        for end in ("eq_obj1id", "eq_obj2id"):
            found[end] = {}
            for row in range(model.neq):
                objects = rows.get(_KIND_OF.get(int(model.eq_objtype[row]), ""), {})
                owner = [str(key) for key, place in objects.items() if place == getattr(model, end)[row]]
                found[end][row] = np.array(owner)
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
    if plain.nbody != scene.model.nbody:
        result.silent.append(f"bodies: {plain.nbody} -> {scene.model.nbody}")
        return result
    _compare_elements(result, plain, scene.visual_model, "")
    _compare_elements(result, plain, scene.model, "physics: ")
    _compare_start(result, plain, scene.model)
    _compare_efforts(result, plain, scene.model)
    planes = [row for row in np.flatnonzero(plain.geom_bodyid == 0) if plain.geom_type[row] == 0]
    left = {"light": plain.nlight, "sensor": plain.nsensor, "floor": len(planes), "key": plain.nkey - 1}
    for kind, count in left.items():
        if count > 0:
            result.note(kind, f"{kind}: {count} removed")
    options = next((line for line in result.changes if line.startswith(ALLOWED["option"])), "")
    for name in (
        name for name in dir(plain.opt) if not name.startswith("_") and not callable(getattr(plain.opt, name))
    ):
        old, new = getattr(plain.opt, name), getattr(scene.model.opt, name)
        if not np.array_equal(old, new) and not re.search(rf"\b{name}\b", options):
            result.silent.append(f"option {name}: {old} -> {new}")
    return result


def _compare_elements(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel, place: str) -> None:
    old_rows, new_rows = rows_of(plain, ""), rows_of(model, "robot/")
    free = set(plain.jnt_bodyid[plain.jnt_type == _FREE].tolist())
    replaced = {name for name, row in old_rows["actuator"].items() if _moves_joints(plain, row)}
    for kind in old_rows:
        if place and kind in ("cam", "mesh", "mat", "hfield", "skin"):
            continue  # which physics does not need
        old, new = set(old_rows[kind]), set(new_rows[kind])
        if place and kind == "geom":
            old = {key for key in old if key[1]}  # type: ignore[index]
        for key in sorted(old - new, key=str):
            name = _name(plain, kind, old_rows[kind][key]) or str(key)
            result.note(kind if key in replaced else "", f"{place}{kind} '{name}' is gone")
        for key in sorted(new - old, key=str):
            result.note("", f"{place}{kind} '{_name(model, kind, new_rows[kind][key]) or key}' is new")
        both = sorted(old & new, key=lambda key: old_rows[kind][key])
        for name in _OBJECTS.keys() & {kind} - {"actuator"}:
            for key in both:
                one, two = _name(plain, name, old_rows[kind][key]), _name(model, name, new_rows[kind][key])
                if one and two.removeprefix("robot/") != one:
                    result.silent.append(f"{place}{kind} '{one}' is named '{two}'")
        theirs, ours = values_of(plain, kind, old_rows), values_of(model, kind, new_rows)
        for name in theirs.keys() - (_OF_LOOKS if place else set()):
            moved = [key for key in both if key in theirs[name] and not _same(theirs[name][key], ours[name][key])]
            if name in ("body_pos", "body_quat"):  # a free body's pose is in the keyframe
                moved = [key for key in moved if key not in free]
            if moved:
                first = _name(plain, kind, old_rows[kind][moved[0]]) or moved[0]
                values = f"{_shown(theirs[name][moved[0]])} -> {_shown(ours[name][moved[0]])}"
                result.note(name, f"{place}{name} of {len(moved)} of {len(both)}: '{first}' {values}")


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    if one.dtype.kind in "fc":
        return bool(np.allclose(one, two, rtol=1e-6, atol=1e-9))
    return bool(np.array_equal(one, two))


def _shown(value: np.ndarray) -> str:
    return " ".join(f"{number:.5g}" if value.dtype.kind == "f" else str(number) for number in value.flat[:6])


def _compare_start(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel) -> None:
    """Compare keyframe 0, or the reference pose within the joints' limits, with the scene's start."""
    qpos = (plain.key_qpos[0] if plain.nkey else plain.qpos0).copy()
    old, new = rows_of(plain, ""), rows_of(model, "robot/")
    for key, joint in old["jnt"].items():
        size = {_FREE: 7, int(mujoco.mjtJoint.mjJNT_BALL): 4}.get(int(plain.jnt_type[joint]), 1)
        theirs = qpos[plain.jnt_qposadr[joint] :][:size]
        if not plain.nkey and size == 1 and plain.jnt_limited[joint]:
            theirs = np.clip(theirs, *plain.jnt_range[joint])
        if key in new["jnt"]:
            first = model.jnt_qposadr[new["jnt"][key]]
            ours = model.key_qpos[0, first : first + size]
            if not _same(theirs, ours):
                text = f"{_shown(theirs)} -> {_shown(ours)}"
                result.silent.append(f"start of '{_name(plain, 'jnt', joint)}': {text}")
    if not plain.nkey:
        return
    for name, row in old["actuator"].items():
        if name in new["actuator"] and not _same(plain.key_ctrl[0, row], model.key_ctrl[0, new["actuator"][name]]):
            result.silent.append(f"start's control of '{name}': {plain.key_ctrl[0, row]:g}")
    if plain.key_qvel[0].any() or plain.key_act[0].any():
        result.note("start", f"start's velocities and activations: {_shown(plain.key_qvel[0])} -> 0")
    for what in ("mpos", "mquat"):
        theirs, ours = getattr(plain, f"key_{what}")[0], getattr(model, f"key_{what}")[0]
        if not _same(theirs, ours):
            result.silent.append(f"start's {what}: {_shown(theirs)} -> {_shown(ours)}")


def _compare_efforts(result: Comparison, plain: mujoco.MjModel, model: mujoco.MjModel) -> None:
    """Compare each joint's effort with what the file's actuators, or the joint's own limit, allow."""
    old_rows, new_rows = rows_of(plain, ""), rows_of(model, "robot/")
    old, new = old_rows["jnt"], new_rows["jnt"]
    efforts = efforts_of(plain, [row for name, row in old_rows["actuator"].items() if name in new_rows["actuator"]])
    drives = {int(model.actuator_trnid[row, 0]): row for row in range(model.nu) if _is_drive(model, row)}
    for key, joint in ((key, joint) for key, joint in old.items() if key in new):
        own, name = np.array([-np.inf, np.inf]), _name(plain, "jnt", joint)
        if (joint in efforts) != (new[key] in drives) and plain.nu:
            result.silent.append(f"'{name}' " + ("has no drive" if joint in efforts else "has a drive of its own"))
        theirs = efforts.get(joint, _clipped(plain, joint, own))
        ours = model.jnt_actfrcrange[new[key]] if model.jnt_actfrclimited[new[key]] else own
        drive = drives.get(new[key])
        if drive is not None and model.actuator_forcelimited[drive]:
            ours = np.clip(ours, *model.actuator_forcerange[drive])
        if not _same(theirs, ours):
            result.silent.append(f"effort of '{name}': {_shown(theirs)} -> {_shown(ours)}")


def plain_model(path: Path) -> mujoco.MjModel:
    """Return what MuJoCo makes of a file; of a URDF with its visuals, fixed links and packages."""
    if path.suffix == ".urdf":
        return mujoco.MjSpec.from_string(model_files._urdf_text(path, "file", [])).compile()
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
    logging.getLogger("embodichain").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
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
    main()
