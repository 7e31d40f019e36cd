"""A run's policy: opened with its environment, acting on observations, and recorded for an export's comparison.

Shapes: N environments or rows, A action size, H actions of a choice. ``--record`` writes a dataset of the episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.agents.rl.run_config import scene_env, with_scene
from embodichain.agents.rl.vec_env import TaskEnv, step_with
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs.managers import datasets
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.lab.gym.envs.managers.measurements import Measurement
from embodichain.utils import CommandFailedError, ConfigError, replace, unknown_name
from embodichain.utils.module_utils import imports_allowed_by_environment
from embodichain.utils.observations import IMAGE_DIMS, entry_columns, entry_spaces, select_entries


def check_is_free(folder: Path) -> None:
    """Raise a ConfigError if the folder of ``--record`` exists."""
    if folder.exists():
        raise ConfigError(f"--record {folder}: is there already: name another folder, or remove it")


def recorded(cfg: TaskCfg, folder: Path | None, num_episodes: int) -> TaskCfg:
    """Return an environment's config with a recorder of a LeRobot dataset of E episodes; the same without a folder.

    The dataset has ``observation.environment_state``. See :func:`write_into`.
    """
    if folder is None:
        return cfg
    params = {"save_path": folder.name, "environment_state": True, "num_episodes": num_episodes}
    return replace(with_scene(cfg, "--record"), dataset={"episodes": DatasetCfg(datasets.LeRobotRecorder, params)})


def write_into(env: TaskEnv, folder: Path | None) -> None:
    """Let an environment that is built from a config of :func:`recorded` write into the folder."""
    if folder is not None and scene_env(env) is not None:
        env.write_into(folder.parent)


class TrainedPolicy:
    """Acts on the observations of the environment that it was trained in.

    Args:
        policy: policy in evaluation mode, on ``device``.
        observed: the environment's observation space, which observations are checked against.
        acted: its action space, to which actions are clipped, as the environment does.

    Attributes:
        policy: the network with its normaliser, a ``torch.nn.Module``.
    """

    def __init__(self, policy: Policy, device: torch.device, observed: spaces.Dict, acted: spaces.Box) -> None:
        self.policy = policy
        self._device = device
        entries = entry_spaces(observed)
        keys = [*(entry_columns(observed) if policy.reads_flat_obs else ()), *policy.obs_keys]
        self._shapes = {name: list(entries[name].shape) for name in dict.fromkeys(keys)}
        self._images = {name for name in self._shapes if entries[name].dtype == np.uint8}
        self._low, self._high = (torch.from_numpy(bound).to(device) for bound in (acted.low, acted.high))
        self._state: torch.Tensor | None = None  # [N, S] of a recurrent policy

    def act(
        self, obs: TensorDict | Mapping[str, Any] | np.ndarray | torch.Tensor, deterministic: bool = True
    ) -> torch.Tensor:
        """Choose actions.

        A recurrent policy remembers the observations since the last ``reset``.

        Args:
            obs: observation of N environments, as they return it: a TensorDict, or nested dictionaries of arrays
                [N, ...]; an array [N, O] where the observation has one entry, as in most of Gymnasium's environments.
                Without the dimension N it is the observation of one environment.
            deterministic: take the most likely actions; else explore, as in training.

        Returns:
            [N, A] float32; [N, H, A] of a policy that chooses several actions at once. Without N for one environment.
        """
        observation, is_single = self._as_tensordict(obs)
        self._check_entries(observation)
        if self.policy.state_size and self._state is None:
            self._state = torch.zeros(len(observation), self.policy.state_size, device=self._device)
        step = self.policy.get_action(policy_input(self.policy, observation, self._state, self._device), deterministic)
        if self.policy.state_size:
            self._state = step["next_state"]
        action = step["action"].clamp(self._low, self._high)
        return action[0] if is_single else action

    def _as_tensordict(self, obs: Any) -> tuple[TensorDict, bool]:
        """Return an observation of batch size [N], and whether it was given without N."""
        name, shape = next(iter(self._shapes.items()))
        if isinstance(obs, np.ndarray | torch.Tensor):
            if len(self._shapes) > 1:
                raise ConfigError(
                    f"obs: an array does not say which entry is where: pass a dictionary of {', '.join(self._shapes)}"
                )
            obs = {tuple(name.split("/")): obs}
        obs = obs.copy() if isinstance(obs, TensorDict) else TensorDict(obs, batch_size=[])
        first = obs.get(tuple(name.split("/")), None)
        if first is None or first.dim() == len(shape):
            return obs.unsqueeze(0), True
        obs.batch_size = first.shape[:1]
        return obs, False

    def _check_entries(self, obs: TensorDict) -> None:
        """Raise ConfigError if entries are missing, of another shape, or would shift the others in the flat vector."""
        given = {name: list(value.shape[1:]) for name, value in obs.flatten_keys("/").items()}
        for name, shape in self._shapes.items():
            if name not in given:
                raise ConfigError(f"obs: lacks '{name}'; the policy reads {', '.join(self._shapes)}")
            if given[name] != shape:
                wanted, got = (", ".join(map(str, ["N", *dims])) for dims in (shape, given[name]))
                raise ConfigError(f"obs: '{name}' must be of shape [{wanted}], got [{got}]")
            if name in self._images and (dtype := obs[tuple(name.split("/"))].dtype) != torch.uint8:
                raise ConfigError(f"obs: '{name}' is an image of uint8, got {str(dtype).removeprefix('torch.')}")
        others = (name for name, shape in given.items() if name not in self._shapes and len(shape) < IMAGE_DIMS)
        if self.policy.reads_flat_obs and (unknown := next(others, None)):
            raise ConfigError(f"obs: {unknown_name('entry', unknown, self._shapes)}")

    def reset(self, done: torch.Tensor | np.ndarray | None = None) -> None:
        """Forget the observations of rows with ended episodes, a mask [N] bool; None: all rows."""
        if done is None:
            self._state = None
        elif self._state is not None:
            mask = torch.as_tensor(done, dtype=torch.bool, device=self._device)
            self._state = self._state.masked_fill(mask.unsqueeze(-1), 0.0)


def load_policy(target: str, device: str = "cpu", allowed_imports: Sequence[str] = ()) -> TrainedPolicy:
    """Load a run's policy. Its environment is built for a moment, since it determines the policy's input.

    Args:
        target: a run's folder, for its latest checkpoint; ``<folder>/best``; a checkpoint's file; or ``latest`` or
            ``best``, of the run in ``outputs`` that saved last.
        device: ``"cpu"``, ``"cuda:0"`` or ``"auto"``.
        allowed_imports: prefixes of modules that the run's config may name, in addition to the ones in the environment
            variable ``EMBODICHAIN_ALLOW_IMPORT``.
    """
    allowed = [*allowed_imports, *imports_allowed_by_environment()]
    with open_run(find_run(target), 1, device, allowed) as opened:
        env = opened.env
        return TrainedPolicy(opened.policy, opened.device, env.single_observation_space, env.single_action_space)


TOLERANCE = 1e-5


class ParityError(CommandFailedError):
    """The actions of the exported policy differ from the policy's."""


def checked_difference(ours: np.ndarray, theirs: np.ndarray, what: str, tolerance: float = TOLERANCE) -> float:
    """Return the largest difference of two arrays; ParityError with ``what`` if it is above a tolerance, or NaN."""
    difference = float(np.abs(ours - theirs).max())
    if not difference <= tolerance:
        raise ParityError(f"{what} by {difference:.3g}, allowed are {tolerance:g}")
    return difference


@dataclass(frozen=True)
class Step:
    """A step of N environments, as the policy took it.

    Attributes:
        inputs: exported policy's inputs by name, [N, ...] each; without the hidden state.
        action: policy's action, clipped as the environment does, [N, A], or a chunk [N, H, A].
        begins: environments in which an episode begins with this step, [N] bool.
        measured: raw measurements by name, [N, D] each.
    """

    inputs: dict[str, np.ndarray]
    action: np.ndarray
    begins: np.ndarray
    measured: dict[str, np.ndarray] = field(default_factory=dict)


@torch.no_grad()
def record_steps(
    env: TaskEnv,
    policy: Policy,
    device: torch.device,
    entries: Sequence[str],
    count: int,
    seed: int,
    measurements: Sequence[Measurement] = (),
) -> list[Step]:
    """Record at least ``count`` observations (their ``entries``) and measurements, with deterministic actions."""
    obs, _ = env.reset(seed=seed)
    state = torch.zeros(env.num_envs, policy.state_size, device=device) if policy.state_size else None
    begins = np.ones(env.num_envs, dtype=bool)
    low, high = env.single_action_space.low, env.single_action_space.high
    act = step_with(env, policy.chunk_length)
    steps: list[Step] = []
    while len(steps) * env.num_envs < count:
        chosen = policy.get_action(policy_input(policy, obs, state, device), deterministic=True)
        selected = select_entries(obs, entries)
        inputs = {name: selected[name].cpu().numpy().copy() for name in entries}
        measured = {each.name: each.read().cpu().numpy().copy() for each in measurements}
        steps.append(Step(inputs, np.clip(chosen["action"].cpu().numpy(), low, high), begins, measured))
        obs, _, terminated, truncated, _ = act(chosen["action"].to(env.device))
        done = terminated | truncated
        begins = done.cpu().numpy()
        if state is not None:
            state = chosen["next_state"].masked_fill(done.to(device).unsqueeze(-1), 0.0)
    return steps


def format_export(export: Mapping[str, Any]) -> list[str]:
    """Return the lines for the screen about the plain data of an export."""
    lines = [
        f"parity     {export['observations']} observations, actions differ by {export['difference']:.2g} at most",
        f"inputs     {', '.join(export['inputs'])}",
        *([f"measured   {', '.join(export['measurements'])}"] if export["measurements"] else []),
        f"outputs    {', '.join(export['outputs'])}",
    ]
    return [*lines, *(f"written    {file}" for file in export["files"])]
