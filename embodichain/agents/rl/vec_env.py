"""The one contract between the learner and the environments.

Legend: N envs, T rollout steps, O flattened observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.utils import ConfigError
from embodichain.utils.errors import placed
from embodichain.utils.observations import MirrorMap

Step = Callable[[torch.Tensor], tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]]
"""``VecEnv.step`` or ``StepsChunks.step_chunk``."""


@runtime_checkable
class VecEnv(Protocol):
    """N environments that step together and reset themselves.

    An environment that is done resets in the same step: the observation returned for it is its next episode's first,
    and the ended episode's last one is in ``info["final_obs"]``.
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


@runtime_checkable
class StepsChunks(Protocol):
    """Environments that execute chunks of H actions."""

    def step_chunk(
        self, action: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Make H control steps, in each environment up to the end of its episode.

        An environment that ends an episode is reset at the end of the chunk. A rollout that is shared by
        ``set_rollout_buffer`` has ``reward`` and ``executed`` [N, T+1, H], each chunk fills a slot.

        Args:
            action: float32 [N, H, A], never written to.

        Returns:
            As ``VecEnv.step``, but for ``reward`` and the entries of ``info["rewards"]`` and ``info["metrics"]``:
            [N, H], 0 where nothing was executed; and ``info["executed"]`` [N, H] bool. ``success``, ``fail`` and
            ``elapsed_steps`` [N] are of the last step that was executed.
        """


@runtime_checkable
class SavesState(Protocol):
    """Environments that continue where a checkpoint left them; others begin new episodes when a training is resumed."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (see ``embodichain.utils.state``)."""

    def load_state_dict(self, state: dict[str, Any]) -> bool | None:
        """Load the state of ``state_dict``.

        Returns:
            False: the episodes do not continue, and ``reset`` is to begin the next ones.
        """


@runtime_checkable
class MayLackSuccess(Protocol):
    """Environments of which some do not say whether an episode is a success; ``info["success"]`` is then false."""

    def knows_success(self) -> bool:
        """Return whether an ``info`` of these has said so by now."""


def knows_success(env: object) -> bool:
    """Return whether an environment's ``info["success"]`` means anything."""
    return env.knows_success() if isinstance(env, MayLackSuccess) else True


@runtime_checkable
class DeclaresSymmetry(Protocol):
    """Environments of a robot that is its own mirror image; see ``algorithm.cfg.symmetry``."""

    def mirror_map(self) -> MirrorMap:
        """Return the mirror images of observations [..., O] and actions [..., A].

        Raises:
            ConfigError: one line: this one's config declares none.
        """


def mirror_map_of(env: VecEnv) -> MirrorMap:
    """Return an environment's mirror map.

    Raises:
        ConfigError: one line: the environment declares none, or one of other sizes than its observations and actions.
    """
    place, name = "algorithm.cfg.symmetry", type(env).__name__
    if not isinstance(env, DeclaresSymmetry):
        raise ConfigError(f"{place}: the environment {name} declares no mirror map: it has no method mirror_map")
    with placed(f"{place}: "):
        mirror_map = env.mirror_map()
    sizes = {
        "observation": (mirror_map.obs.size, env.flattened_observation_space.shape[-1]),
        "action": (mirror_map.action.size, (env.action_space.shape or (0,))[-1]),
    }
    for what, (size, wanted) in sizes.items():
        if size != wanted:
            raise ConfigError(
                f"{place}: the mirror map of {name} is for {what}s of {size} components, and they have {wanted}"
            )
    return mirror_map


def step_with(env: VecEnv, chunk_length: int) -> Step:
    """Return ``env.step``, or ``env.step_chunk`` for a policy of chunks.

    Raises:
        ConfigError: the environment has no ``step_chunk``.
    """
    if chunk_length == 1:
        return env.step
    if not isinstance(env, StepsChunks):
        raise ConfigError(
            f"the policy chooses chunks of {chunk_length} actions (policy.chunk_length), and the environment "
            f"{type(env).__name__} takes single ones: it has no step_chunk"
        )
    return env.step_chunk
