"""A run's policy as something that acts. Shapes: N rows, A action size, H actions of a choice."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import Policy, policy_input
from embodichain.tools.open_run import open_run
from embodichain.utils import ConfigError, unknown_name
from embodichain.utils.observations import IMAGE_DIMS, entry_columns, entry_spaces

__all__ = ["TrainedPolicy", "load_policy"]


class TrainedPolicy:
    """Acts on the observations of the environment that it was trained in.

    Args:
        policy: policy in evaluation mode, on ``device``.
        observed: the environment's observation space, which observations are checked against.

    Attributes:
        policy: the network with its normaliser, a ``torch.nn.Module``.
    """

    def __init__(self, policy: Policy, device: torch.device, observed: spaces.Dict) -> None:
        self.policy = policy
        self._device = device
        entries = entry_spaces(observed)
        keys = [*(entry_columns(observed) if policy.reads_flat_obs else ()), *policy.obs_keys]
        self._shapes = {name: list(entries[name].shape) for name in dict.fromkeys(keys)}
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

        Raises:
            ConfigError: the entries of ``obs`` are not the policy's, or of other shapes.
        """
        observation, is_single = self._as_tensordict(obs)
        self._check_entries(observation)
        if self.policy.state_size and self._state is None:
            self._state = torch.zeros(len(observation), self.policy.state_size, device=self._device)
        step = self.policy.get_action(policy_input(self.policy, observation, self._state, self._device), deterministic)
        if self.policy.state_size:
            self._state = step["next_state"]
        action: torch.Tensor = step["action"]
        return action[0] if is_single else action

    def _as_tensordict(self, obs: Any) -> tuple[TensorDict, bool]:
        """Return an observation of batch size [N], and whether it was given without N."""
        name, shape = next(iter(self._shapes.items()))
        if isinstance(obs, np.ndarray | torch.Tensor):
            if len(self._shapes) > 1:
                raise ConfigError(
                    f"obs: an array does not say which entry is where: pass a dictionary of {', '.join(self._shapes)}"
                )
            *groups, leaf = name.split("/")
            obs = {leaf: obs}
            for group in reversed(groups):
                obs = {group: obs}
        if not isinstance(obs, TensorDict):
            obs = TensorDict(obs, batch_size=[])
        first = obs.get(tuple(name.split("/")), None)
        if first is None or first.dim() == len(shape):
            return obs.unsqueeze(0), True
        obs.batch_size = first.shape[:1]
        return obs, False

    def _check_entries(self, obs: TensorDict) -> None:
        """Raise ConfigError if entries are missing, of another shape, or would shift the others in the flat vector."""
        given = {
            "/".join((key,) if isinstance(key, str) else key): list(value.shape[1:])
            for key, value in obs.items(include_nested=True, leaves_only=True)
        }
        for name, shape in self._shapes.items():
            if name not in given:
                raise ConfigError(f"obs: lacks '{name}'; the policy reads {', '.join(self._shapes)}")
            if given[name] != shape:
                wanted, got = (", ".join(map(str, ["N", *dims])) for dims in (shape, given[name]))
                raise ConfigError(f"obs: '{name}' must be of shape [{wanted}], got [{got}]")
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
        allowed_imports: prefixes of modules that the run's config may name.
    """
    with open_run(find_run(target), 1, device, allowed_imports) as opened:
        return TrainedPolicy(opened.policy, opened.device, opened.env.single_observation_space)
