"""The base of managers and terms: functors with state, terms made from configs, and the environment that they see.

Shapes: N environments, n in ``env_ids``, A action size.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg, CommandCfg, FunctorCfg
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.objects import Articulation, Robot, StateCache
from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rows import Snapshot
from embodichain.utils import ConfigError, files
from embodichain.utils.state import attributes, declared_state, load_attributes

Cfg = TypeVar("Cfg", bound=FunctorCfg)


def kind_of(value: object) -> str:
    """Return a description of a term's result, for messages."""
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def is_users(code: object) -> bool:
    """Return whether a term or a task is a user's, who may return the same tensor again, changed."""
    return not code.__module__.startswith("embodichain.")


class TermEnv(Protocol):
    """The attributes of every :class:`~embodichain.lab.gym.envs.EmbodiedEnv`; tasks add their own."""

    cfg: Any
    """An ``EmbodiedEnvCfg``."""
    num_envs: int
    """N."""
    device: torch.device
    """Device of all tensors."""
    sim: SimulationManager
    """The scene."""
    robot: Robot
    """The robot that acts."""
    active_part: str | None
    """The control part that actions move by default; None: all joints."""
    active_joint_ids: list[int]
    """The joints of that part."""
    random: CounterRandom
    """Random streams of the environments: the only source of random numbers."""
    all_env_ids: Tensor
    """[N] int64: 0 to N - 1."""
    stepping_ids: Tensor
    """[n] int64: the environments that make the present control step; all, but within a chunk of actions."""
    elapsed_steps: Tensor
    """[N] int64: steps in the current episode."""
    last_action: Tensor
    """[N, A]: the action of the present step, within its limits."""
    output: files.OutputFolder
    """The folder of the terms' files; ``outputs`` unless the environment's ``write_into`` changes it."""
    single_observation_space: spaces.Dict
    """Space of one environment; not there yet when the terms are built."""
    action_manager: Any
    """The :class:`~embodichain.lab.gym.envs.managers.ActionManager`."""
    command_manager: Any
    """The :class:`~embodichain.lab.gym.envs.managers.CommandManager`."""

    @property
    def state_cache(self) -> StateCache:
        """Cached values of the present state, see :func:`~embodichain.lab.sim.objects.cached_per_state`."""

    @property
    def step_dt(self) -> float:
        """Duration of a control step, s."""

    @property
    def followed_uid(self) -> str | None:
        """The entity that a default camera moves with; None: it stays."""

    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        """Change only the rows of a mask [N] bool inside the block; yields the ``env_ids`` to compute with."""

    def config_data(self) -> dict[str, Any]:
        """Return the environment's config as the content of a file."""

    def instructions(self) -> list[str]:
        """Return each environment's task in words, N of them."""


def own_actuators(env: TermEnv, articulation: Articulation | None = None) -> dict[str, int]:
    """Return the ids of an articulation's actuators that drive no single joint, or of all in a file's scene, by name.

    The default articulation is the robot.
    """
    model = env.sim.model
    names = {i: model.actuator(i).name or f"actuator {i}" for i in range(model.nu)}
    if env.cfg.robot is None:
        return {name: i for i, name in names.items()}
    articulation = articulation or env.robot
    uid, drives = f"{articulation.uid}/", articulation.drives.actuator_ids
    return {name.removeprefix(uid): i for i, name in names.items() if name.startswith(uid) and i not in drives}


class Functor:
    """A term with state; a term without state is better a plain function.

    A subclass writes ``__call__`` with the arguments that a function in its place would have.
    """

    is_global: ClassVar[bool] = False
    """Whether it acts on all environments together; as an interval event it is never called for some of them alone."""
    only_reads: ClassVar[bool] = False
    """Whether an interval event leaves the environment as it is, so that nothing has to be observed again."""
    is_stateful: ClassVar[bool] = True
    """Whether its calls change its state; false if everything is computed in ``__init__``. Observation terms without
    state are cheaper where episodes begin."""

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        self.cfg = cfg
        self.env = self._env = env
        self.num_envs = env.num_envs
        self.device = env.device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the term; arguments and result as for the manager's functions."""
        raise NotImplementedError

    @classmethod
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        """Prepare the scene for the functor with its config's ``params``, before the scene is compiled."""

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> list[str]:
        """Return the problems of all parameters together, defaults included, each beginning with a parameter's name.

        Each by itself is checked against the annotations of ``__call__`` already. This runs when the config is read.
        """
        return []

    def shows_first_state(self) -> bool:
        """Return whether to call an interval event now, before a step; a recorder, where an episode begins."""
        return False

    def begin_step(self) -> None:
        """Read the state from which the next step starts, after resets and events; of reward terms alone."""

    def after_rewards(self, reward: Tensor, done: Tensor, success: Tensor) -> None:
        """Take the results [N] of a control step, after which an interval event may be called."""

    def reset(self, env_ids: Tensor) -> None:
        """Reset the state of environments [n], which ended an episode."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: by default the attributes that are plain data (see ``utils.state``).

        For other state override this and :meth:`load_state_dict`.
        """
        return attributes(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`."""
        load_attributes(self, state)

    def close(self) -> None:
        """Release resources when the environment closes."""


@dataclass(frozen=True)
class CommandMap:
    """The map from an action to physical commands: command = clip(offset + factor * action, low, high). C commands.

    It is exported with a policy, for robot software that runs without an environment. It does not depend on the robot's
    state: a command that is a change must be added to the present value by its receiver.
    """

    meaning: str
    """Meaning of the commands, with units."""
    names: list[str]
    """Names of the commands: C joints, or coordinates."""
    offset: Tensor
    """[C], like ``factor``, ``low`` and ``high``; ``factor * action`` broadcasts an action [N, 1] over all."""
    factor: Tensor
    low: Tensor
    high: Tensor


class ActionTerm(Functor):
    """The meaning of (a part of) the action; its parameters are the arguments of :meth:`configure`.

    Shapes: N environments, A action size, J joints of the term.
    """

    cfg: ActionTermCfg
    kind: ClassVar[str] = ""
    """Kind of the targets from :meth:`process_action`: ``qpos``, ``qvel``, ``qf``, or ``ctrl`` of the file's actuators;
    empty: nothing."""
    part: str | None
    """The control part of the joints that the targets are for; None: all joints."""
    joint_ids: list[int]
    """These joints of the robot; the environment's active ones unless ``choose_joints`` is called."""
    choices: tuple[int, ...] = ()
    """The number of possibilities of each of the term's A discrete actions; empty: actions are numbers."""
    _action_limits: Tensor | None = None  # [2, A] of ``limit_action``

    def __init__(self, cfg: ActionTermCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self.choose_joints(None)
        self.configure(**cfg.params)

    def configure(self, *args: Any, **params: Any) -> None:
        """Read the config's ``params``; a subclass writes its own as arguments, or reads ``cfg.params`` itself."""

    def choose_joints(self, part_name: str | None) -> None:
        """Move the joints of a control part; None: the environment's active joints."""
        self.part = self.env.active_part if part_name is None else part_name
        self.joint_ids = list(self.env.robot.get_joint_ids(self.part))
        if self.kind and not (self.joint_ids and {*self.joint_ids} <= {*self.env.robot.driven_ids}):
            names = ", ".join(own_actuators(self.env))
            instead = f"; ActuatorTerm sets the controls of its actuators {names}" if names else ""
            raise ConfigError(
                f"func: no joint of robot '{self.env.robot.uid}' has a drive for {type(self).__name__}{instead}"
            )

    @property
    def actuators(self) -> dict[str, int]:
        """The actuators of a term of kind ``ctrl``, ids by name; by default all that the file has but the drives'."""
        return own_actuators(self.env)

    def present_qpos(self) -> Tensor:
        """Return the present positions of the term's joints, [N, J], rad or m."""
        return self.env.robot.get_qpos(self.part)

    @property
    def input_key(self) -> str:
        """The term's ``kind``; overridden where :meth:`process_action` returns a tensor."""
        return self.kind

    @property
    def action_dim(self) -> int:
        """Size of the term's part of the action; by default that of its limits, or the number of its joints."""
        return len(self.joint_ids) if self._action_limits is None else self._action_limits.shape[1]

    @property
    def action_limits(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest action, [A] each, to which the environment clips: ``limit_action``'s, or -1 and 1."""
        own = self._action_limits
        if own is not None and own.shape[1] == self.action_dim:  # which a subclass may change
            return own[0], own[1]
        ones = torch.ones(self.action_dim, device=self.env.device)
        return -ones, ones

    def limit_action(self, low: Tensor, high: Tensor) -> None:
        """Set the size and the limits of the term's part of the action, [A] each; :meth:`configure` calls it."""
        self._action_limits = torch.stack((low, high))

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        """Return targets of the term's joints under the term's ``kind``, [N, J], for actions [N, A].

        A tensor [N] under another name becomes a metric of the environment.
        """
        raise NotImplementedError

    def command_map(self) -> CommandMap | None:
        """Return the map from actions to physical commands, for export; None if there is no such map."""
        return None

    def joint_command(
        self,
        meaning: str,
        factor: Tensor | float,
        offset: Tensor | float = 0.0,
        low: Tensor | float = float("-inf"),
        high: Tensor | float = float("inf"),
        names: list[str] | None = None,
    ) -> CommandMap:
        """Return a map to commands with these names, [C] or one number for all; None: one for each of the joints."""
        names = [self.env.robot.joint_names[joint] for joint in self.joint_ids] if names is None else names
        ones = torch.ones(len(names), device=self.env.device)
        return CommandMap(meaning, names, *(ones * value for value in (offset, factor, low, high)))


class CommandTerm(Functor):
    """A command that the policy follows; its parameters are the arguments of :meth:`configure`.

    It is drawn at the start of each episode and after each ``resampling_time``.
    """

    cfg: CommandCfg
    size: int
    """C, the length of the command."""
    numbers: tuple[str, ...] = ()
    """Name and unit of each of its C numbers, for sliders."""

    def __init__(self, cfg: CommandCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self.configure(**cfg.params)  # may set the size
        self._held: Tensor | None = None
        self.command: Tensor = torch.zeros(env.num_envs, self.size, device=env.device)
        """[N, C], which the next action is to follow."""
        self.tracked: Tensor = self.command
        """[N, C], which the last action followed: rewards and metrics are about this one."""
        self.time_left: Tensor = torch.zeros(env.num_envs, device=env.device)
        """[N], until the next draw, s."""

    def configure(self, *args: Any, **params: Any) -> None:
        """Read the config's ``params``; a subclass writes its own as arguments."""

    def draw(self, env_ids: Tensor) -> Tensor:
        """Return new commands for environments [n], [n, C]."""
        raise NotImplementedError

    def follow(self) -> None:
        """Change ``command`` with the present state, where it depends on it; called after each draw and each step."""

    def limits(self) -> tuple[list[float], list[float]]:
        """Return the lowest and the highest value of each number, for sliders."""
        raise NotImplementedError

    def hold(self, command: Sequence[float] | None) -> None:
        """Give all environments this command (C numbers) from now on, in place of drawn ones; None: draw again."""
        was_held, self._held = self._held is not None, None if command is None else self.command.new_tensor(command)
        if self._held is not None:
            self.command = self._held.expand_as(self.command)
        elif was_held:
            self.time_left = torch.zeros_like(self.time_left)

    def advance(self) -> None:
        """Let a control step pass, after its physics."""
        self.tracked = self.command
        if self._held is not None:
            return
        self.time_left = self.time_left - self.env.step_dt
        # Times are rounded to whole steps, so that sums of them need not be exact.
        with self.env.choose(self.time_left < 0.5 * self.env.step_dt) as due:
            if len(due):
                self._draw(due)
        self.follow()

    def move(self, done: Tensor) -> Tensor:
        """Put robots where a new command wants them, after a step's rewards; return which, [N] bool.

        ``done`` [N] bool says which episodes have ended.
        """
        raise NotImplementedError  # called where a subclass has its own

    def reset(self, env_ids: Tensor) -> None:
        """Draw commands for environments [n], which begin an episode."""
        others = self.command
        self._draw(env_ids)
        if self._held is None:
            self.follow()
        else:
            self.command = self._held.expand_as(self.command)
        rows = self.command[env_ids]
        self.command = others.index_copy(0, env_ids, rows)
        self.tracked = self.tracked.index_copy(0, env_ids, rows)

    def _draw(self, env_ids: Tensor) -> None:
        shortest, longest = self.cfg.resampling_time
        times = self.env.random.uniform(env_ids, shortest, longest, 1)[:, 0]
        self.time_left = self.time_left.index_copy(0, env_ids, times)
        drawn: object = self.draw(env_ids)
        if not (isinstance(drawn, Tensor) and drawn.shape == (len(env_ids), self.size)):
            wanted = f"[n, size] = [{len(env_ids)}, {self.size}], a row for each of env_ids"
            raise ConfigError(f"{type(self).__qualname__}.draw must return a tensor {wanted}, not {kind_of(drawn)}")
        self.command = self.command.index_copy(0, env_ids, drawn)


@dataclass(frozen=True)
class Term(Generic[Cfg]):
    """A term ready to be called, with the keyword arguments ``params`` of each call."""

    name: str
    cfg: Cfg
    func: Any
    """The function, or the instance of the class."""
    params: dict[str, Any]
    place: str
    """Place in the config, ``env.rewards.near``."""

    @cached_property
    def stream(self) -> str:
        """The random stream that its calls draw from; events draw from a stream of their own name."""
        return self.place.removeprefix("env.")

    def calling(self, func: Any) -> "Term[Cfg]":
        """Return a term of the same name and stream that calls another function, without ``params``."""
        return replace(self, func=func, params={})

    def __call__(self, *given: Any) -> Any:
        """Call the function with its manager's arguments and the ``params``; errors name the term."""
        try:
            return self.func(*given, **self.params)
        except Exception as error:
            error.add_note(self.place)
            raise


class Manager:
    """The terms of one block of the config."""

    state_names: tuple[str, ...] = ()
    """The manager's own state, without its terms'."""

    def __init__(self, env: TermEnv, terms: Sequence[Term[Any]]) -> None:
        self._env = env
        self._functors: dict[str, Functor] = {}
        self._resets: list[Term[Any]] = []
        self._add(terms)

    def _add(self, terms: Sequence[Term[Any]]) -> None:
        for term in terms:
            if isinstance(term.func, Functor):
                self._functors[term.name] = term.func
                if type(term.func).reset is not Functor.reset:
                    self._resets.append(term.calling(term.func.reset))

    @property
    def functors(self) -> list[Functor]:
        """The terms that are classes."""
        return list(self._functors.values())

    def stateful(self) -> list[Functor]:
        """Return the terms with rows restored while other environments change."""
        return self.functors

    def reset(self, env_ids: Tensor) -> None:
        """Reset the terms for environments [n], which begin a new episode."""
        for term in self._resets:
            with self._env.random.stream(f"{term.stream}.reset"):
                term(env_ids)

    @contextmanager
    def leaving_no_trace(self) -> Iterator[None]:
        """Restore the terms' state at the end of the block."""
        before = self._snapshots()
        yield
        self._restore(before)

    def _snapshots(self) -> dict[str, Snapshot]:
        """Return the state of the functors that have some."""
        return {name: Snapshot(func.state_dict()) for name, func in self._functors.items() if func.is_stateful}

    def _restore(self, states: Mapping[str, Snapshot]) -> None:
        """Restore the functors' states, and delete attributes created since."""
        for name, snapshot in states.items():
            functor, state = self._functors[name], snapshot.restore()
            if type(functor).state_dict is Functor.state_dict:
                for added in functor.state_dict().keys() - state.keys():
                    delattr(functor, added)
            functor.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the manager and its terms, for a checkpoint."""
        terms = {name: functor.state_dict() for name, functor in self._functors.items()}
        return {"attributes": declared_state(self), "terms": terms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`; a term without saved state starts afresh."""
        load_attributes(self, state["attributes"])
        for name, functor in self._functors.items():
            saved = state["terms"].get(name)
            if saved is not None:
                functor.load_state_dict(saved)
