"""Demonstrations from a LeRobot dataset.

Shapes: F frames of an episode, O flattened observation size, A action size.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.buffer import Demonstrations, check_finite
from embodichain.agents.rl.demonstrations import PLACE, Task
from embodichain.agents.rl.run_config import differences
from embodichain.ext.lerobot import dataset, recorder
from embodichain.lab.gym.utils.instructions import encode_instructions
from embodichain.utils import ConfigError, logger, observations, placed

_OBS, _ACTION, _REWARD, _SUCCESS = "observation.environment_state", "action", "next.reward", "next.success"
_JOINTS = "observation.state"
# Mark the frames in which a person acted: in LeRobot's HIL-SERL, and in its recordings with corrections (DAgger).
_INTERVENTIONS = ("complementary_info.is_intervention", "intervention")
_VECTORS = ("state", "instruction")  # entries of VLA policies that are no images
_ACTED = ("actions", "sim_steps_per_control", "sim_cfg")  # of a record: what actions mean
_FPS_TOLERANCE = 0.05  # of the frames in a control period; a whole number of fps is written
_TOLERANCE = 1e-5  # of the action limits


def read_demonstrations(
    path: str, num_episodes: int | None, task: Task, keys: Sequence[str], place: str = PLACE
) -> Demonstrations:
    """Read the episodes of a dataset that ``LeRobotRecorder`` has written with ``environment_state``.

    A dataset has no observation after an episode's last step. If that step reached success, and success terminates the
    task, none is needed. Otherwise the last frame is the observation after the step before it.

    If a feature marks the frames in which a person intervened, these alone are demonstrations: each unbroken series of
    them, up to the frame behind it.

    Args:
        num_episodes: to read, from the first; None: all.
        keys: the observation's entries that the policy reads besides the flat one.
        place: place of the path in the config, for messages.
    """
    found: list[tuple[TensorDict, bool]] = []
    with placed(f"{place}: "):
        info = dataset.read_info(Path(path))
        if task.step_dt is not None and abs(info["fps"] * task.step_dt - 1.0) > _FPS_TOLERANCE:
            logger.log_warning(
                f"{place}: {path}: has {info['fps']:g} frames a second, this environment {1.0 / task.step_dt:g} steps"
            )
        episodes = islice(dataset.read_lerobot(path), num_episodes)
        first = next(episodes, None)
        if first is None:
            raise ConfigError(f"{path}: has no episodes")
        # Before the features: where it is of another task, these differ as well.
        has_record = _check_record(path, first, task) or not task.reads_obs
        reader = _Reader(path, info["features"], task, keys)
        if not has_record:
            logger.log_warning(
                f"{place}: {path}: does not say what its numbers mean: its actions, observations and rewards are taken "
                "for this environment's"
            )
        for number, episode in enumerate(chain([first], episodes)):
            found += reader.rollouts(episode, number)
        if not found:
            marked = "" if reader.mark is None else f" that '{reader.mark}' marks"
            raise ConfigError(f"{path}: has no steps{marked}")
    return Demonstrations([rollout for rollout, _ in found], sum(is_success for _, is_success in found))


def _check_record(path: str, episode: dataset.LeRobotEpisode, task: Task) -> bool:
    """Check that the dataset's numbers mean what they mean in an environment's config; False: it does not say.

    Where the policy does not read the flat observation, the numbers are the actions.
    """
    text = episode.description.get("environment")
    if text is None:
        return False
    record, own = json.loads(text), recorder.task_record(task.config)
    if posts := [name for name, term in record["env"].get("actions", {}).items() if term.get("mode") == "post"]:
        raise ConfigError(
            f"{path}: has targets in the place of actions, by the action term '{posts[0]}' of mode 'post'"
        )
    if not task.reads_obs:
        record, own = ({"env": {name: each["env"].get(name) for name in _ACTED}} for each in (record, own))
    elif record["id"] != own["id"]:
        raise ConfigError(f"{path}: was recorded in the task {record['id']!r}, and this is '{own['id']}'")
    for each in (record, own) if task.imitates else ():
        each["env"].pop("rewards", None)
    lines = differences(record, own, "", "the dataset")
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise ConfigError(f"{path}: was recorded in another environment: {lines[0]}{more}")
    return True


class _Reader:
    """Makes rollouts of a dataset's episodes.

    Attributes:
        mark: the feature that marks interventions, or None.
    """

    def __init__(self, path: str, features: Mapping[str, Any], task: Task, keys: Sequence[str]) -> None:
        self._path = path
        space = task.action_space
        self._low, self._high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        self._task = task
        self._images = {key: f"observation.images.{_camera_of(key)}" for key in keys if key not in _VECTORS}
        self._vectors = [key for key in keys if key in _VECTORS]
        self.mark = next((name for name in _INTERVENTIONS if name in features), None)
        self._check_features(features, task)

    def rollouts(self, episode: dataset.LeRobotEpisode, number: int) -> Iterator[tuple[TensorDict, bool]]:
        """Yield rollouts [1, T+1] of an episode, each with whether its last step reached success."""
        place = f"{self._path}: episode {number}"
        frames = self._frames(episode, place)
        count = len(frames)
        is_success = frames["success"]
        terminated = is_success & self._task.success_terminates
        terminated[:-1] = False
        for first, end in _series(frames["marked"]):
            # The rows up to ``last`` have an observation behind them, or need none.
            last = min(end, count - 1)
            rows = torch.arange(first, last + 1)
            if end == count and (terminated[-1] or self._task.imitates):
                rows = torch.cat((rows, rows[-1:]))
            if len(rows) < 2:
                continue
            rollout = frames[rows].exclude("success", "marked")
            if not self._task.imitates:
                rollout["terminated"] = terminated[rows]
            yield rollout.unsqueeze(0), bool(is_success[rows[-2]])

    def _check_features(self, features: Mapping[str, Any], task: Task) -> None:
        obs = (_OBS,) if task.reads_obs else ()
        rewards = () if task.imitates else (_REWARD, _SUCCESS)
        joints = (_JOINTS,) if "state" in self._vectors else ()
        for name in (*obs, _ACTION, *rewards, *joints, *self._images.values()):
            if name not in features:
                raise ConfigError(f"{self._path}: has no feature '{name}'; it has {', '.join(features)}")
        spaces = observations.entry_spaces(task.observation_space)
        for key, name in self._images.items():
            size, own = dataset.image_size(features[name]), spaces[key].shape[:2]
            if size != own:
                raise ConfigError(f"{self._path}: {name} has images of {size}, this environment's are of {own}")
        recorded = dataset.names_of(features.get(_JOINTS, {}))
        if None not in (recorded, task.joint_names) and recorded != task.joint_names:
            raise ConfigError(
                f"{self._path}: is of another robot: its joints are {recorded}, this one's {task.joint_names}"
            )

    def _frames(self, episode: dataset.LeRobotEpisode, place: str) -> TensorDict:
        """Return the checked frames of an episode, [F]."""
        task = self._task
        numbers = {"action": (_ACTION, len(self._low))}
        if task.reads_obs:
            numbers["obs"] = (_OBS, len(observations.column_names(task.observation_space)))
        if not task.imitates:
            numbers |= {"reward": (_REWARD, 1), "success": (_SUCCESS, 1)}
        if self.mark is not None:
            numbers["marked"] = (self.mark, 1)
        if "state" in self._vectors:
            numbers["state"] = (_JOINTS, observations.entry_spaces(task.observation_space)["state"].shape[0])
        found = {key: _rows(episode, name, size, place) for key, (name, size) in numbers.items()}
        check_finite(found, place, {key: name for key, (name, _) in numbers.items()})
        action = found["action"]
        beyond = ((action < self._low - _TOLERANCE) | (action > self._high + _TOLERANCE)).nonzero()
        if task.reads_obs and len(beyond):
            frame, column = beyond[0].tolist()
            raise ConfigError(
                f"{place}, frame {frame}: {_ACTION}[{column}] is {action[frame, column]:.4g}; this environment's "
                f"actions are between {self._low[column]:.4g} and {self._high[column]:.4g}"
            )
        count = len(found["action"])
        entries = {key: torch.from_numpy(episode.frames[name].copy()) for key, name in self._images.items()}
        if "state" in found:
            entries["state"] = found.pop("state")
        if "instruction" in self._vectors:
            entries["instruction"] = encode_instructions([episode.task]).repeat(count, 1)
        marked, is_success = (found.pop(key, None) for key in ("marked", "success"))
        frames = TensorDict(found, batch_size=[count])
        if not task.imitates:
            frames["reward"] = found["reward"].squeeze(1)
        for key, flags, default in (("marked", marked, True), ("success", is_success, False)):
            frames[key] = torch.full((count,), default) if flags is None else flags.squeeze(1) > 0.5
        if entries:
            frames["entries"] = TensorDict(entries, batch_size=[count])
        return frames


def _camera_of(key: str) -> str:
    """Return the camera of an entry ``image/<camera>`` or ``sensor/<camera>/color``."""
    match key.split("/"):
        case ["image", uid] | ["sensor", uid, "color"]:
            return uid
    raise ConfigError(f"the policy reads '{key}', which datasets do not have: of images, they have colours alone")


def _series(marked: Tensor) -> Iterator[tuple[int, int]]:
    """Yield first and end (exclusive) of each unbroken series in [F] bool."""
    edges = torch.nn.functional.pad(marked.int(), (1, 1)).diff()
    yield from zip((edges == 1).nonzero().flatten().tolist(), (edges == -1).nonzero().flatten().tolist(), strict=True)


def _rows(episode: dataset.LeRobotEpisode, name: str, size: int, place: str) -> Tensor:
    """Return a feature as float32 [F, size]."""
    values = episode.frames[name]
    with np.errstate(over="ignore"):  # overflow becomes infinite, which is reported
        rows = values.astype(np.float32).reshape(len(values), -1)
    if rows.shape[1] != size:
        raise ConfigError(f"{place}: {name} has {rows.shape[1]} numbers, this environment's {size}")
    return torch.from_numpy(rows)
