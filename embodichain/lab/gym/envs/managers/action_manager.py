"""Conversion of the policy's actions to targets of the drives. Shapes: N environments, A action size."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import ActionTerm, Manager, TermEnv, kind_of, own_actuators
from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.lab.sim.objects.articulation import columns
from embodichain.utils import ConfigError, logger

_JOINT_KINDS = frozenset({"qpos", "qvel", "qf"})
"""Kinds of targets of joints."""
_DRIVES = {"qpos": "qpos", "qvel": "qvel", "qf": "qf", "eef_pose": "qpos"}
"""Kind of the targets by the ``input_key`` of a term written for EmbodiChain, which converts poses itself."""


class ActionManager(Manager):
    """Passes each term its part of the action, in the order of the config, and sets the drives' targets."""

    state_names = ("metrics", "processed_action")

    def __init__(self, cfgs: Mapping[str, ActionTermCfg], env: TermEnv) -> None:
        built = build_terms(cfgs, env, "env.actions")
        super().__init__(env, built)
        terms: dict[str, ActionTerm] = {term.name: term.func for term in built}
        self.terms = {name: term for name, term in terms.items() if term.cfg.mode == "pre"}
        """The terms of mode ``pre``, by name."""
        self._post = {name: term for name, term in terms.items() if term.cfg.mode == "post"}
        # Called with the action alone.
        self._targets = {term.name: term.calling(_joint_targets(term.func, term.name)) for term in built}
        self._is_first = True  # the next action
        if not self.terms:
            raise ConfigError("env.actions: at least one action term is needed")
        _check_joints(self.terms)
        for name, post in self._post.items():
            given = [joint for term in self.terms.values() if term.kind == post.kind for joint in term.joint_ids]
            if given != post.joint_ids:
                names = (", ".join(env.robot.joint_names[joint] for joint in ids) for ids in (given, post.joint_ids))
                raise ConfigError("env.actions.{}: the targets are of {}, and it is for {}".format(name, *names))
        controlling = [term for term in self.terms.values() if term.kind == "ctrl"]
        self._controls = {term: columns(list(term.actuators.values()), env.device) for term in controlling}
        if env.cfg.robot is not None:
            _warn_of_idle_actuators(env, bool(self._controls))
        lows, highs = zip(*(term.action_limits for term in self.terms.values()), strict=True)
        self.low: Tensor = torch.cat(lows)
        """Lowest action, [A]."""
        self.high: Tensor = torch.cat(highs)
        """Highest action, [A]."""
        self.metrics: dict[str, Tensor] = {}
        """Metrics of the terms for the last action, [N] each."""
        self.processed_action: dict[str, Tensor] = {}
        """The last action's targets after the terms of mode ``post``, if any, by kind, [N, J], for datasets."""

    @property
    def total_action_dim(self) -> int:
        """A, over all terms of mode ``pre``."""
        return sum(term.action_dim for term in self.terms.values())

    @property
    def action_type(self) -> str:
        """The first term's name; an action may be given to the environment as ``{action_type: tensor}``."""
        return next(iter(self.terms))

    def process_action(
        self, action: Tensor | Mapping[str, Tensor], mode: Literal["pre", "post"] = "pre"
    ) -> dict[str, Tensor]:
        """Return the terms' results for an action, without setting the drives' targets.

        Args:
            action: ``pre``: actions [N, A], as one tensor or by term name. ``post``: targets [N, J] by kind.
            mode: mode of the terms.

        Returns:
            ``pre``: the targets [N, J] by kind, several terms' side by side, and whatever else the terms report.
            ``post``: the targets, changed.
        """
        if mode == "post":
            assert not isinstance(action, Tensor), "targets come by kind"
            processed = dict(action)
            for name, term in self._post.items():
                processed |= self._call(name, term, processed[term.kind])
            return processed
        merged: dict[str, Tensor] = {}
        for term, result in self._process(action):
            for key, value in result.items():
                merged[key] = torch.cat((merged[key], value), dim=1) if key in merged and key == term.kind else value
        return merged

    def apply_action(self, action: Tensor | Mapping[str, Tensor]) -> None:
        """Set the drives' targets, or the actuators' controls, by actions [N, A], as one tensor or by term name."""
        results = self._process(action)
        self.metrics = {}
        for term, result in results:
            if term.kind == "qpos":
                self._env.robot.set_qpos(result["qpos"], term.joint_ids)
            elif term.kind == "ctrl":
                self._env.sim.backend.write("ctrl", self._controls[term], result["ctrl"])
            elif term.kind:
                self._env.robot.drives.set_targets(result[term.kind], term.joint_ids)
            for name, value in result.items():
                if name != term.kind and value.dim() == 1:
                    own, others = value.float(), self.metrics.get(name)
                    self.metrics[name] = own if others is None else torch.minimum(own, others)
        if self._post:
            targets: dict[str, Tensor] = {}
            for kind in {term.kind for term, _ in results if term.kind}:
                targets[kind] = torch.cat([result[kind] for term, result in results if term.kind == kind], dim=1)
            self.processed_action = self.process_action(targets, "post")

    def _process(self, action: Tensor | Mapping[str, Tensor]) -> list[tuple[ActionTerm, Mapping[str, Tensor]]]:
        """Return each term and its result for its part of the action."""
        if not isinstance(action, Tensor):
            action = torch.cat([action[name] for name in self.terms], dim=1)
        random = self._env.random
        results = []
        first = 0
        with random.stream("actions", tick=self._env.elapsed_steps):
            for name, term in self.terms.items():
                random.turn_to(f"actions.{name}")
                part = action[:, first : first + term.action_dim] if len(self.terms) > 1 else action
                results.append((term, self._call(name, term, part)))
                first += term.action_dim
        self._is_first = False
        return results

    def _call(self, name: str, term: ActionTerm, action: Tensor) -> Mapping[str, Tensor]:
        result = self._targets[name](action)
        if self._is_first:
            _check_result(f"env.actions.{name}", term, result, self._env.num_envs)
        return result


def _check_result(place: str, term: ActionTerm, result: object, num_envs: int) -> None:
    """Raise a ConfigError where a term's result is not what its class says it moves."""
    what, kind, shape = f"{place}: {type(term).__name__}.process_action", term.kind, [num_envs, len(term.joint_ids)]
    if not isinstance(result, Mapping):
        raise ConfigError(f"{what} must return a dict of tensors, {{'qpos': [N, J]}}, not {kind_of(result)}")
    if not kind and (moving := sorted({*_JOINT_KINDS, "ctrl"} & result.keys())):
        raise ConfigError(f"{what} returns {moving}, but its class has no kind: write kind = {moving[0]!r} there")
    if kind in _JOINT_KINDS:
        target = result.get(kind)
        sizes = [1] * (2 - target.dim()) + list(target.shape) if isinstance(target, Tensor) else []
        if len(sizes) != 2 or any(size not in (1, wanted) for size, wanted in zip(sizes, shape, strict=True)):
            raise ConfigError(f"{what} must return '{kind}' [N, J] = {shape}, not {kind_of(target)}")


def _check_joints(terms: Mapping[str, ActionTerm]) -> None:
    """Raise a ConfigError where two terms move the same joint or actuator."""
    owners: dict[str, str] = {}
    for name, term in terms.items():
        joints = term.joint_ids if term.kind else []
        moved = [f"joint {joint} ('{term.env.robot.joint_names[joint]}')" for joint in joints]
        moved += [f"actuator '{actuator}'" for actuator in (term.actuators if term.kind == "ctrl" else ())]
        for each in moved:
            if each in owners:
                other = (
                    "others by params.actuators" if term.kind == "ctrl" else "another control part by params.part_name"
                )
                raise ConfigError(f"env.actions.{name}: {each} is moved by '{owners[each]}' already; choose {other}")
            owners[each] = name


def _joint_targets(term: ActionTerm, name: str) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """Return the function from actions [N, A] to a term's targets [N, J] by kind, and metrics [N].

    A term written for EmbodiChain overrides ``input_key``, and may return the targets as a tensor, or those of all of
    the robot's joints.
    """
    if type(term).input_key is ActionTerm.input_key:
        return term.process_action
    if term.input_key not in _DRIVES:
        given = f"{type(term).__name__}.input_key is '{term.input_key}'"
        raise ConfigError(f"env.actions.{name}: {given}, not one of {[*_DRIVES]}")
    kind = vars(term)["kind"] = _DRIVES[term.input_key]

    def process(action: Tensor) -> Mapping[str, Tensor]:
        result: Any = term.process_action(action)
        results = {kind: result} if isinstance(result, Tensor) else dict(result.items())
        if kind in results and results[kind].shape[-1] == term.env.robot.dof:
            results[kind] = results[kind][:, term.joint_ids]
        return results

    return process


def _warn_of_idle_actuators(env: TermEnv, robot_is_moved: bool) -> None:
    """Log the actuators, other than drives, of articulations that no term moves; only the robot's can be moved."""
    hint = "; the action term ActuatorTerm moves them"
    robot = [] if robot_is_moved else [("robot", env.robot, hint)]
    for kind, entity, remedy in (*robot, *(("articulation", one, "") for one in env.sim.articulations.values())):
        if idle := own_actuators(env, entity):
            logger.log_warning(
                f"env.actions: nothing moves the actuators {', '.join(idle)} of {kind} '{entity.uid}', which stay at "
                f"their first controls{remedy}"
            )
