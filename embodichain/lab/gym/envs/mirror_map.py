"""From the config block ``env.symmetry`` to the environment's mirror map.

The mirror is the x-z plane of the robot's base: x points forward, y to the left, z up.

Legend: D components of an entry, X Y points of a grid, J joints, A action size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, get_args

import torch
from gymnasium import spaces
from pydantic import Discriminator, PositiveInt, Tag

from embodichain.lab.gym.envs.managers.action_manager import ActionManager
from embodichain.lab.gym.envs.managers.base import ActionTerm
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.objects import Robot
from embodichain.lab.sim.objects.mirrored_joints import mirror_joints, partners
from embodichain.utils import ConfigError, configclass
from embodichain.utils.errors import collected, raise_problems, unknown_name
from embodichain.utils.mirror import Mirror, MirrorMap, check_limits
from embodichain.utils.observations import entry_columns, entry_spaces

_SIGNS = {"vector": (1, -1, 1), "pseudovector": (-1, 1, -1), "planar_command": (1, -1, -1)}
_SAME_COMMAND = 1e-4  # rad, m, rad/s, m/s, Nm or N


@configclass
class MirrorComponentsCfg:
    """Components one by one: component i of the mirror image is ``signs[i] * x[permutation[i]]``."""

    permutation: list[int]
    """Where each component comes from, an index from 0."""
    signs: list[Literal[-1, 1]] | None = None
    """Factor of each component; None: all are 1."""
    repeat: PositiveInt = 1
    """Number of such vectors in a row: the length of a history."""


@configclass
class MirrorJointsCfg:
    """Values of some of the robot's joints, such as positions, velocities or efforts."""

    joints: list[str]
    """The joints, by names or regular expressions; their values are in the robot's order."""
    repeat: PositiveInt = 1
    """Number of such vectors in a row: the length of a history."""


@configclass
class MirrorLinksCfg:
    """One value for each of some links, such as which feet touch the ground: left and right change places."""

    links: list[str]
    """The links, by names or regular expressions; their values are in the robot's order."""
    repeat: PositiveInt = 1
    """Number of such vectors in a row: the length of a history."""


@configclass
class MirrorGridCfg:
    """Values at the points of a grid that is as wide to the left as to the right, such as a height scan."""

    grid: tuple[PositiveInt, PositiveInt]
    """Points along x and along y; the values of one x follow each other."""
    repeat: PositiveInt = 1
    """Number of such vectors in a row: the length of a history."""


_Block = MirrorComponentsCfg | MirrorJointsCfg | MirrorLinksCfg | MirrorGridCfg
_Name = Literal["joints", "action", "vector", "pseudovector", "planar_command", "keep"]
_NAMES = get_args(_Name)
_BLOCKS = ("permutation", "joints", "links", "grid")


def _tag(value: Any) -> str | None:
    if isinstance(value, str):
        return "name" if value in _NAMES else None
    keys = value if isinstance(value, Mapping) else getattr(value, "__dict__", ())
    return next((f"by {key}" for key in _BLOCKS if key in keys), None)  # no key of the file, so that paths lack it


MirrorCfg = Annotated[
    Annotated[_Name, Tag("name")]
    | Annotated[MirrorComponentsCfg, Tag("by permutation")]
    | Annotated[MirrorJointsCfg, Tag("by joints")]
    | Annotated[MirrorLinksCfg, Tag("by links")]
    | Annotated[MirrorGridCfg, Tag("by grid")],
    Discriminator(
        _tag,
        custom_error_type="mirror",
        custom_error_message=f"should be one of {', '.join(map(repr, _NAMES))}, or an object with one of "
        f"{', '.join(map(repr, _BLOCKS))}",
    ),
]
"""How an entry or an action is mirrored. ``joints``: values of all of the robot's joints; of an action: of its term's.
``action``: an entry like the whole action, such as the last one. ``vector`` (x, y, z): y changes its sign.
``pseudovector`` (x, y, z), such as an angular velocity: x and z do. ``planar_command`` (forward, left, yaw rate): the
last two do. ``keep``: nothing changes."""


@configclass
class EnvSymmetryCfg:
    """How observations and actions look in a mirror that exchanges left and right."""

    observations: dict[str, MirrorCfg] = {}
    """By entry name, such as ``robot/qpos``: all entries of the flat observation. Where an entry has k times the size
    of a kind that is a name, as of a history of k steps, its k parts are mirrored alike."""
    actions: dict[str, MirrorCfg] = {}
    """By action term."""


class MirroredEnv(Protocol):
    """What of an environment its mirror map depends on."""

    sim: SimulationManager
    robot: Robot
    action_manager: ActionManager

    @property
    def single_observation_space(self) -> spaces.Dict:
        """Space of one environment's observation."""
        ...


def build_mirror_map(cfg: EnvSymmetryCfg, env: MirroredEnv) -> MirrorMap:
    """Return the mirror map of a built environment, on the CPU.

    Raises:
        ConfigError: a line for each entry or action term that is missing, unknown, or not of the size that its kind
            needs; for joints that are no mirror images of each other; and for action terms that move mirrored joints
            differently.
    """
    problems: list[str] = []
    action = _mirror_of_action(cfg.actions, env, problems)
    shapes = entry_spaces(env.single_observation_space)
    entries = {name: shapes[name].shape for name in entry_columns(env.single_observation_space)}
    place = "env.symmetry.observations"
    problems += _unlisted(cfg.observations, entries, place, "entry of the flat observation")
    parts: list[Mirror] = []
    for name, shape in entries.items():
        kind = cfg.observations.get(name)
        if kind is None or (kind == "action" and action is None):
            continue  # reported already
        with collected(problems):
            parts.append(_mirror_of_entry(kind, shape, action, env, f"{place}.{name}"))
    raise_problems(problems)
    assert action is not None
    return MirrorMap(Mirror.joined(parts), action)


def _mirror_of_action(cfg: Mapping[str, MirrorCfg], env: MirroredEnv, problems: list[str]) -> Mirror | None:
    """Return the mirror of actions [A]; None with errors, which are added to ``problems``."""
    manager, place = env.action_manager, "env.symmetry.actions"
    found = _unlisted(cfg, manager.terms, place, "action term")
    parts = []
    for name, term in manager.terms.items():
        if name in cfg:
            with collected(found):
                joints = [env.robot.joint_names[joint] for joint in term.joint_ids]
                own = _mirror(cfg[name], env, term.action_dim, joints, f"{place}.{name}")
                if own.size != term.action_dim:
                    raise ConfigError(f"{place}.{name}: is of {own.size} components, the action has {term.action_dim}")
                _check_command(term, own, f"{place}.{name}")
                parts.append(own)
    if not found:
        action = Mirror.joined(parts)
        with collected(found):
            check_limits(action, manager.low, manager.high, place)
    problems += found
    return None if found else action


def _mirror_of_entry(
    kind: MirrorCfg, shape: tuple[int, ...], action: Mirror | None, env: MirroredEnv, place: str
) -> Mirror:
    """Return the mirror of an entry of a shape [D], or [..., D], flattened."""
    size = math.prod(shape)
    own = action if kind == "action" else _mirror(kind, env, size, env.robot.joint_names, place)
    assert own is not None
    # What has a name is mirrored in all of the entry's parts, which must be whole rows if it is a table.
    count, rest = divmod(size, own.size) if isinstance(kind, str) else (1, size - own.size)
    if rest or (len(shape) > 1 and own.size not in (shape[-1], size)):
        what = f"has shape {list(shape)}" if len(shape) > 1 else f"has {size}"
        raise ConfigError(f"{place}: is of {own.size} components, and the entry {what}")
    return own.repeated(count)


def _mirror(kind: MirrorCfg, env: MirroredEnv, size: int, joints: Sequence[str], place: str) -> Mirror:
    """Return the mirror of a kind.

    Args:
        size: of the whole entry or action.
        joints: what ``"joints"`` means.
    """
    if kind == "action":
        raise ConfigError(f"{place}: 'action' is for entries of the observation")
    if isinstance(kind, str):
        return Mirror.of(*_named(kind, env, size, joints, place), place)
    return Mirror.of(*_of_block(kind, env, place), place).repeated(kind.repeat)


def _named(
    name: str, env: MirroredEnv, size: int, joints: Sequence[str], place: str
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the permutation and signs of a kind that is a name."""
    if name == "joints":
        return mirror_joints(env.sim.backend.model, env.robot, joints, place)
    signs = _SIGNS.get(name, [1] * size)
    return range(len(signs)), signs


def _of_block(kind: _Block, env: MirroredEnv, place: str) -> tuple[Sequence[int], Sequence[int]]:
    """Return the permutation and signs of a block."""
    match kind:
        case MirrorComponentsCfg():
            return kind.permutation, [1] * len(kind.permutation) if kind.signs is None else kind.signs
        case MirrorJointsCfg():
            names = match_names(kind.joints, env.robot.joint_names, f"{place}.joints")
            return mirror_joints(env.sim.backend.model, env.robot, names, place)
        case MirrorLinksCfg():
            other = partners(match_names(kind.links, env.robot.link_names, f"{place}.links", "link"))
        case MirrorGridCfg():
            other = torch.arange(math.prod(kind.grid)).reshape(kind.grid).flip(1).flatten().tolist()
    return other, [1] * len(other)


def _check_command(term: ActionTerm, own: Mirror, place: str) -> None:
    """Check that mirrored actions make mirrored commands: command = offset + factor * action."""
    commands = term.command_map()
    if commands is None or len(commands.names) != own.size:
        return
    expected = {
        "offset": own(commands.offset.cpu()),
        "factor": commands.factor.cpu()[own.permutation],
    }
    for what, mirrored in expected.items():
        values = getattr(commands, what).cpu()
        wrong = (values - mirrored).abs() > _SAME_COMMAND
        if wrong.any():
            i = int(wrong.nonzero()[0])
            other = commands.names[int(own.permutation[i])]
            raise ConfigError(
                f"{place}: {commands.names[i]}'s {what} is {values[i]:.6g}, and that of its mirror image, {other}, is "
                f"{mirrored[i]:.6g}: a mirrored action would be another one"
            )


def _unlisted(cfg: Mapping[str, object], known: Collection[str], place: str, what: str) -> list[str]:
    """Return the errors of names that are missing in a block, or unknown, a line each."""
    problems = [f"{place}: {unknown_name(what, name, known)}" for name in cfg if name not in known]
    if missing := [name for name in known if name not in cfg]:
        problems.append(f"{place}: needs every {what}, and lacks {', '.join(missing)}")
    return problems
