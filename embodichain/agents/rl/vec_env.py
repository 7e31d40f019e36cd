"""Contract between the learner and the environments.

Legend: N envs, T rollout steps, H actions of a chunk, O flattened observation size, A action size.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.utils import ConfigError, placed
from embodichain.utils.observations import MirrorMap

Step = Callable[[torch.Tensor], tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]]
"""``VecEnv.step`` or ``step_chunk``."""


class VecEnv(Protocol):
    """N environments that step together and reset themselves.

    An environment that is done resets in the same step: the observation returned for it is its next episode's first,
    and the ended episode's last one is in ``info["final_obs"]``.

    Optional methods, which the learner looks for where it needs them:

    - ``step_chunk(action [N, H, A])``: makes H control steps, in each environment up to the end of its episode, and
      then resets the ended ones. It returns the same as ``step``, but ``reward`` and the entries of ``info["rewards"]``
      and ``info["metrics"]`` are [N, H], 0 where nothing was executed, and ``info["executed"]`` is [N, H] bool. A
      shared rollout has ``reward`` and ``executed`` [N, T+1, H]; each chunk fills a slot.
    - ``state_dict()`` and ``load_state_dict(state)``: plain data (see ``embodichain.utils.state``), from which a
      resumed training continues; loading returns False if the episodes do not continue. Without them, new ones begin.
    - ``knows_success()``: whether ``info["success"]``, which is false else, means anything by now.
    - ``mirror_map()``: the mirror images of observations [..., O] and actions [..., A], for ``algorithm.cfg.symmetry``.
    - ``recorded()``: the recordings (a ``Footage``) since ``start_recording``, see ``EvalEnv``.
    - ``add_events(cfgs)``, ``number_envs(first_env_id, group_size)``, ``config_data()`` and ``terms_data(terms)``: what
      a script's ``Trainer`` adds to environments, numbers them by, and describes them by in its checkpoints.
    """

    @property
    def num_envs(self) -> int:
        """N."""

    @property
    def device(self) -> torch.device:
        """Device of observations, rewards, flags and actions."""

    @property
    def flattened_observation_space(self) -> spaces.Box:
        """Space with last dimension O, the width of ``flatten_dict_observation(obs)``."""

    @property
    def action_space(self) -> spaces.Space[Any]:
        """A Box with last dimension A. Actions beyond it are clipped by the environment."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[TensorDict, dict[str, Any]]:
        """Start new episodes everywhere, or in the rows ``options["reset_ids"]`` only.

        Returns:
            The observation (nested TensorDict of batch size [N]) and ``info``.
        """

    def step(self, action: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Advance every environment by one control step.

        Args:
            action: float32 [N, A], never written to.

        Returns:
            ``obs`` TensorDict [N]; ``reward`` float32 [N]; ``terminated`` and ``truncated`` bool [N]; ``info`` with

            - ``rewards``, ``metrics``: dictionaries of name -> tensor [N], of the same names until the next rollout or
              full reset; a metric is NaN in environments that do not have it at this step;
            - ``success``, ``fail``: bool [N];
            - ``elapsed_steps``: int [N], length of the episode so far, the ended one's where an episode ended;
            - ``final_obs``: TensorDict [N], every environment's observation before any reset of this step. Rows that
              did not reset equal ``obs``;
            - ``diverged``: bool [N], which episodes ended because the physics became invalid. Missing where none did.
        """

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        """Share a rollout [N, T+1] with the environment, and count its steps from 0 again.

        From now on the k-th step (k = 0, 1, ...) writes ``reward``, ``done``, ``terminated`` and ``truncated`` into
        slot k, the environment's ``current_rollout_step``. It writes no other field, and at most T slots.
        """


class EvalEnv(VecEnv, Protocol):
    """Environments for evaluation."""

    def start_recording(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        """Write videos of the first ``num_episodes``, named after ``label``, into ``folder`` from now on."""

    def stop_recording(self) -> list[Path]:
        """Finish the videos and return their paths."""

    def close(self) -> None:
        """Release the environments' resources."""


class TaskEnv(EvalEnv, Protocol):
    """Environments of a training."""

    @property
    def single_observation_space(self) -> spaces.Dict:
        """The structured space of one environment."""

    @property
    def step_dt(self) -> float | None:
        """The time between two actions, s; None: not known."""

    @property
    def single_action_space(self) -> spaces.Box:
        """The actions of one environment, [A]."""

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Write files into a folder from now on, and into the allowed ones that the config names."""


def knows_success(env: object) -> bool:
    """Return whether an environment's ``info["success"]`` means anything."""
    return bool(env.knows_success()) if hasattr(env, "knows_success") else True


def mirror_map_of(env: Any) -> MirrorMap:
    """Return an environment's mirror map."""
    place, name = "algorithm.cfg.symmetry: ", type(env).__name__
    if not hasattr(env, "mirror_map"):
        raise ConfigError(f"{place}the environment {name} declares no mirror map: it has no method mirror_map")
    with placed(place):
        mirror_map: MirrorMap = env.mirror_map()
    sizes = {
        "observation": (mirror_map.obs.size, env.flattened_observation_space.shape[-1]),
        "action": (mirror_map.action.size, env.action_space.shape[-1]),
    }
    for what, (size, wanted) in sizes.items():
        if size != wanted:
            raise ConfigError(
                f"{place}the mirror map of {name} is for {what}s of {size} components, and they have {wanted}"
            )
    limits = torch.as_tensor(np.stack((env.action_space.low, env.action_space.high))).float()
    images = mirror_map.action(limits).sort(dim=0).values
    if not torch.allclose(images, limits, atol=1e-3):
        raise ConfigError(f"{place}the mirror map of {name}: the actions' limits are not mirror images of each other")
    return mirror_map


def step_with(env: Any, chunk_length: int) -> Step:
    """Return ``env.step``, or ``env.step_chunk`` for a policy of chunks."""
    if chunk_length > 1 and not hasattr(env, "step_chunk"):
        raise ConfigError(
            f"the policy chooses chunks of {chunk_length} actions (policy.chunk_length), and the environment "
            f"{type(env).__name__} takes single ones: it has no step_chunk"
        )
    step: Step = env.step if chunk_length == 1 else env.step_chunk
    return step
