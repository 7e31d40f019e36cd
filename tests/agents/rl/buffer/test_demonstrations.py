"""Legend: T steps of an episode, M of all, B batch."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import Demonstrations, ReplayBuffer, check_share
from embodichain.utils import ConfigError, device


def episode(first: float, num_steps: int, ends: bool, images: bool = False) -> TensorDict:
    """Return an episode [1, T+1] with observations first, first + 1, ...; the last step has the reward 1."""
    obs = first + torch.arange(num_steps + 1.0)
    reward, terminated = torch.zeros(num_steps + 1), torch.zeros(num_steps + 1, dtype=torch.bool)
    reward[num_steps - 1], terminated[num_steps - 1] = 1.0, ends
    fields = {"obs": obs[:, None], "action": -obs[:, None], "reward": reward, "terminated": terminated}
    rollout = TensorDict(fields, batch_size=[num_steps + 1])
    if images:
        camera = obs.byte()[:, None, None, None].expand(-1, 2, 2, 3)
        rollout["entries"] = TensorDict({"camera": camera}, batch_size=[num_steps + 1])
    return rollout.unsqueeze(0)


def two_episodes(images: bool = False) -> Demonstrations:
    """One of 3 steps that reaches success, and one of 2 steps that is cut."""
    return Demonstrations([episode(10.0, 3, True, images), episode(20.0, 2, False, images)], 1)


def transitions(buffer: ReplayBuffer, n_steps: int) -> dict[float, tuple[float, float, float]]:
    """Return (reward, discount, next observation, 0 where the discount is) of every step by its observation."""
    batch = buffer.sample(40 * buffer.num_steps, n_steps, 0.5)  # misses a step with a probability of exp(-40)
    assert torch.equal(batch["action"], -batch["obs"])
    batch["next", "obs"] *= batch["discount"].unsqueeze(-1) > 0
    columns = batch["obs"].squeeze(1), batch["reward"], batch["discount"], batch["next", "obs"].squeeze(1)
    return {values[0]: values[1:] for values in zip(*(column.tolist() for column in columns), strict=True)}


def test_buffer_bootstraps_where_an_episode_was_cut() -> None:
    buffer = two_episodes().to_buffer(torch.device("cpu"))
    assert buffer.num_steps == 5
    assert transitions(buffer, 1) == {
        10: (0, 0.5, 11),
        11: (0, 0.5, 12),
        12: (1, 0, 0),  # success
        20: (0, 0.5, 21),
        21: (1, 0.5, 22),  # cut: 22 is the observation after it
    }
    # gamma 0.5: 0 + 0.5 * 0 and 0 + 0.5 * 1, which ends; the second episode is not part of the first.
    assert transitions(buffer, 2) == {
        10: (0, 0.25, 12),
        11: (0.5, 0, 0),
        12: (1, 0, 0),
        20: (0.5, 0.25, 22),
        21: (1, 0.5, 22),
    }


def test_buffer_has_the_images() -> None:
    batch = two_episodes(images=True).to_buffer(torch.device("cpu")).sample(50, 1, 0.9)
    for part in (batch, batch["next"]):
        camera = part["entries", "camera"]
        assert camera.dtype == torch.uint8
        assert torch.equal(camera[:, 0, 0, 0], part["obs"].squeeze(1).byte())


def test_demonstrations_are_the_same_after_a_trip_as_plain_data() -> None:
    before = two_episodes(images=True)
    after = Demonstrations.from_data(before.to_data())
    assert (after.num_steps, after.num_succeeded, after.digest()) == (5, 1, before.digest())


def test_digest_tells_any_changed_number() -> None:
    digests = {two_episodes().digest(), two_episodes(images=True).digest()}
    for key, value in (("obs", 0.5), ("action", 0.5), ("reward", 0.5), ("terminated", True)):
        changed = two_episodes()
        changed.episodes[1][key][0, 0] = value
        digests.add(changed.digest())
    assert len(digests) == 6
    # The same numbers, cut into episodes elsewhere.
    one, two = (Demonstrations([episode(0.0, *rest)], 0).digest() for rest in ((1, False), (2, False)))
    assert one != two


def test_demonstrations_that_do_not_fit_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 100)
    # A ring of 7 + 2 * 3 + 2 = 15 slots of obs, action, reward (4 bytes each), terminated, is_step (1 each), the number
    # of a step's slot (4); and two counts of 8 bytes.
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.demonstrations: the 5 steps .* of memory at least"):
        two_episodes().to_buffer(torch.device("cpu"))


def test_share_is_rounded_to_transitions_of_both_kinds() -> None:
    assert (check_share(0.5, 256), check_share(0.25, 10)) == (128, 2)
    with pytest.raises(ConfigError, match=r"demonstration_share: 0\.5 of 1 are 0 transitions"):
        check_share(0.5, 1)
