"""Configuration of the managers' terms, and the modules in which their functions are looked up."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from embodichain.lab.gym.envs.managers.types import PositiveRange, StepRange
from embodichain.lab.gym.envs.managers.types import SceneEntityCfg as SceneEntityCfg
from embodichain.utils import configclass


@configclass
class FunctorCfg:
    """A function or class, and the arguments it is called with."""

    given: ClassVar[tuple[str, ...]] = ()
    """Arguments that the manager passes before the ``params``."""
    func: Callable[..., Any] | str
    """The function or class itself, its name among the managers' modules, or a dotted path."""
    params: dict[str, Any] = {}
    """Keyword arguments; ``{"uid": ...}`` becomes a :class:`SceneEntityCfg`."""


@configclass
class ActionTermCfg(FunctorCfg):
    """One action term."""

    mode: Literal["pre", "post"] = "pre"
    """``pre``: turn the action into the drives' targets. ``post``: turn the targets into a dataset's action."""


@configclass
class ObservationCfg(FunctorCfg):
    """One entry of the observation."""

    mode: Literal["add", "modify"] = "add"
    """Make a new entry, or change one that is there."""
    name: str = ""
    """Name of the entry; ``/`` separates groups, as in ``"object/cube_pos"``. Empty: the term's own name."""


@configclass
class RewardCfg(FunctorCfg):
    """One summand of the reward."""

    given: ClassVar[tuple[str, ...]] = ("env", "obs", "action", "info")
    mode: Literal["add"] = "add"
    """Summed up."""
    weight: float = 1.0
    """Factor of the term's value."""


@configclass
class EventCfg(FunctorCfg):
    """One event of the environment."""

    given: ClassVar[tuple[str, ...]] = ("env", "env_ids")
    mode: Literal["startup", "reset", "interval"] = "reset"
    """Once after building (in an evaluation before each reset, so that its episodes do not depend on the number of
    environments; a reset undoes states that it sets), at each reset for the environments concerned, or every
    ``interval_step`` steps."""
    interval_step: PositiveInt | StepRange = 10
    """Control steps between two calls of an interval event; ``[shortest, longest]``: each environment draws them again
    at the start of its episode and after each call, so that the events of the environments come apart."""
    is_global: bool = False
    """Whether an interval event counts the control steps of all environments together and is called for all at once;
    otherwise each environment counts from the start of its own episode. The episodes of an evaluation with a global
    event that changes states depend on the number of its environments."""


@configclass
class CommandCfg(FunctorCfg):
    """One command that the policy follows."""

    resampling_time: PositiveRange = (10.0, 10.0)
    """``[shortest, longest]`` time between draws within an episode, s, in whole control steps."""


@configclass
class TerminationCfg(FunctorCfg):
    """One condition that ends an episode, in addition to the task's own."""

    given: ClassVar[tuple[str, ...]] = ("env",)
    time_out: bool = False
    """Whether it truncates the episode, so that the value of the last state still counts, rather than fails it."""


@configclass
class CurriculumCfg(FunctorCfg):
    """One change of the environment with the policy's progress, in training alone."""

    given: ClassVar[tuple[str, ...]] = ("env", "env_ids")


@configclass
class DatasetCfg(FunctorCfg):
    """A recorder of episodes."""

    given: ClassVar[tuple[str, ...]] = ("env", "action", "reward", "done", "info")
    mode: Literal["save"] = "save"
    """Written when an episode ends."""


TERM_BLOCKS: dict[str, type[FunctorCfg]] = {
    "actions": ActionTermCfg,
    "commands": CommandCfg,
    "observations": ObservationCfg,
    "rewards": RewardCfg,
    "terminations": TerminationCfg,
    "curriculum": CurriculumCfg,
    "events": EventCfg,
    "dataset": DatasetCfg,
}
"""The blocks of terms in ``env``, with their terms' config classes."""
_MANAGERS = "embodichain.lab.gym.envs.managers"
BLOCK_MODULES = {
    "actions": [f"{_MANAGERS}.actions", f"{_MANAGERS}.motion.actions"],
    "commands": [f"{_MANAGERS}.commands", f"{_MANAGERS}.motion.commands"],
    "observations": [
        f"{_MANAGERS}.observations",
        f"{_MANAGERS}.locomotion_observations",
        f"{_MANAGERS}.sensor_models",
        f"{_MANAGERS}.motion.observations",
    ],
    "rewards": [f"{_MANAGERS}.rewards", f"{_MANAGERS}.locomotion_rewards", f"{_MANAGERS}.motion.rewards"],
    "terminations": [f"{_MANAGERS}.terminations", f"{_MANAGERS}.motion.terminations"],
    "curriculum": [f"{_MANAGERS}.curriculum", f"{_MANAGERS}.motion.curriculum"],
    "events": [f"{_MANAGERS}.randomization", f"{_MANAGERS}.events", f"{_MANAGERS}.record"],
    "dataset": [f"{_MANAGERS}.datasets"],
}
"""The shipped functors of each block."""
DEFAULT_MANAGER_MODULES = [module for modules in BLOCK_MODULES.values() for module in modules]
"""All of them, in the order of the look-up."""
