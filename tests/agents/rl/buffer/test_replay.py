"""Legend: N envs, T rollout steps, W slots of the window, n steps of a return."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.replay import Demonstrations, ReplayBuffer, check_share
from embodichain.agents.rl.checkpoint.files import SegmentFolder
from embodichain.utils import ConfigError, device
from tests.no_sync import no_host_sync

Row = Sequence[float]


def make_rollout(
    obs: Sequence[Row],
    terminated: list[tuple[int, int]] | None = None,
    truncated: dict[tuple[int, int], float] | None = None,
    images: bool = False,
) -> TensorDict:
    """Return a rollout [N, T+1] whose rewards are obs and actions 10 obs, with an image of the value obs if asked for.

    Args:
        obs: [N][T+1].
        terminated: (env, step) of the steps that terminate.
        truncated: final observation of each (env, step) that is truncated.
    """
    values = torch.tensor(obs, dtype=torch.float32)
    shape = values.shape
    final, flags = torch.zeros(shape), {name: torch.zeros(shape, dtype=torch.bool) for name in ("over", "cut")}
    for place in terminated or ():
        flags["over"][place] = True
    for place, value in (truncated or {}).items():
        flags["cut"][place], final[place] = True, value
    rewards = values.clone()
    rewards[:, -1] = 99.0  # padding
    fields: dict[str, Any] = {
        "obs": values.unsqueeze(-1),
        "action": 10 * values.unsqueeze(-1),
        "reward": rewards,
        "terminated": flags["over"],
        "truncated": flags["cut"],
        "value": values,  # of no use to a replay buffer
        "final": TensorDict({"obs": final.unsqueeze(-1)}, shape),
    }
    if images:
        fields["entries"] = TensorDict({"camera": image_of(values)}, shape)
        fields["final"]["entries"] = TensorDict({"camera": image_of(final)}, shape)
    return TensorDict(fields, shape)


def image_of(values: torch.Tensor) -> torch.Tensor:
    return values.byte()[:, :, None, None, None].expand(*values.shape, 2, 2, 3)


def filled(*rollouts: TensorDict, capacity: int = 100) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, rollouts[0])
    for rollout in rollouts:
        buffer.add(rollout)
    return buffer


def transitions(buffer: ReplayBuffer, n_steps: int = 1, gamma: float = 0.5) -> dict[float, tuple[float, float, float]]:
    """Return (n-step reward, discount, next observation) of every stored step, by its observation.

    The next observation is 0 where the discount is.
    """
    batch = buffer.sample(40 * buffer.num_steps, n_steps, gamma)  # misses a step with a probability of exp(-40)
    assert torch.equal(batch["action"], 10 * batch["obs"])
    batch["next", "obs"] *= batch["discount"].unsqueeze(-1) > 0
    columns = batch["obs"].squeeze(1), batch["reward"], batch["discount"], batch["next", "obs"].squeeze(1)
    rows = {values[0]: values[1:] for values in zip(*(column.tolist() for column in columns), strict=True)}
    assert len(rows) == buffer.num_steps
    return dict(sorted(rows.items()))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


_UNENDED = {1: (2.75, 0.125, 4), 2: (4.5, 0.125, 5), 3: (5, 0.25, 5), 4: (4, 0.5, 5)}
_NEXT_EPISODE = {7: (11, 0.25, 9), 8: (8, 0.5, 9)}  # 7 + 8/2


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        # 1 + 2/2 + 3/4 = 2.75, then obs 4; from 2: 2 + 3/2 + 4/4 = 4.5, obs 5. From 3 there are 2 steps: 3 + 4/2 = 5.
        ([make_rollout([[1, 2, 3, 4, 5]])], _UNENDED),
        ([make_rollout([[1, 2, 3]]), make_rollout([[3, 4, 5]])], _UNENDED),
        # Step 2 terminates: from 1: 1 + 2/2 = 2.
        ([make_rollout([[1, 2, 7, 8, 9]], terminated=[(0, 1)])], {1: (2, 0, 0), 2: (2, 0, 0), **_NEXT_EPISODE}),
        # Step 2 is truncated, and its final observation is 3.
        ([make_rollout([[1, 2, 7, 8, 9]], truncated={(0, 1): 3})], {1: (2, 0.25, 3), 2: (2, 0.5, 3), **_NEXT_EPISODE}),
        # Both count as terminated.
        (
            [make_rollout([[1, 2, 7, 8, 9]], terminated=[(0, 1)], truncated={(0, 1): 3})],
            {1: (2, 0, 0), 2: (2, 0, 0), **_NEXT_EPISODE},
        ),
        # Truncated at a rollout's end.
        (
            [make_rollout([[1, 2, 7]], truncated={(0, 1): 3}), make_rollout([[7, 8, 9]])],
            {1: (2, 0.25, 3), 2: (2, 0.5, 3), **_NEXT_EPISODE},
        ),
    ],
)
def test_return_of_three_steps(rollouts: list[TensorDict], expected: dict[float, Any]) -> None:
    assert transitions(filled(*rollouts), n_steps=3) == expected


def test_smallest_buffer_keeps_each_envs_truncated_step() -> None:
    rollout = make_rollout([[1, 2, 7], [4, 5, 8]], truncated={(0, 1): 3, (1, 1): 6})
    assert transitions(filled(rollout, capacity=2)) == {2: (2, 0.5, 3), 5: (5, 0.5, 6)}


def test_reset_between_rollouts_leaves_a_final_observation() -> None:
    # Environment 1 continues with 13, environment 0 begins with 7 instead of 3.
    buffer = filled(make_rollout([[1, 2, 3], [11, 12, 13]]), make_rollout([[7, 8, 9], [13, 14, 15]]))
    assert transitions(buffer, n_steps=2) == {
        1: (2, 0.25, 3),  # 1 + 2/2
        2: (2, 0.5, 3),
        7: (11, 0.25, 9),
        8: (8, 0.5, 9),
        11: (17, 0.25, 13),  # 11 + 12/2
        12: (18.5, 0.25, 14),  # 12 + 13/2
        13: (20, 0.25, 15),
        14: (14, 0.5, 15),
    }


def test_oldest_steps_leave_the_window() -> None:
    # W = 4 slots. Environment 0: 1 2 (3) 7 8 [9], of which the last 4 are 2 (3) 7 8. Environment 1: 11 12 13 14 [15].
    first = make_rollout([[1, 2, 7, 8, 9], [11, 12, 13, 14, 15]], truncated={(0, 1): 3})
    buffer = filled(first, capacity=8)
    assert list(transitions(buffer)) == [2, 7, 8, 11, 12, 13, 14]
    # Both get 3 steps, environment 1 a truncation at the second: 8 9 20 21 [22], and 15 16 (50) 17 [18].
    second = make_rollout([[9, 20, 21, 22], [15, 16, 17, 18]], truncated={(1, 1): 50})
    buffer.add(second)
    assert buffer.num_steps == 7
    assert transitions(buffer, n_steps=2) == {
        8: (12.5, 0.25, 20),  # 8 + 9/2
        9: (19, 0.25, 21),  # 9 + 20/2
        15: (23, 0.25, 50),  # 15 + 16/2
        16: (16, 0.5, 50),
        17: (17, 0.5, 18),
        20: (30.5, 0.25, 22),  # 20 + 21/2
        21: (21, 0.5, 22),
    }


def test_wrapped_ring_equals_a_list_of_the_latest_transitions() -> None:
    # Environment i truncates every (i + 2)-th step; the list is kept by hand, one step at a time.
    num_envs, num_steps, window = 3, 4, 11
    streams: list[list[tuple[float, float | None]]] = [[] for _ in range(num_envs)]  # (obs, next obs); None: no step
    buffer, now, count = None, [float(1000 * i) for i in range(num_envs)], 0
    for _ in range(20):
        rows, cuts = [[obs] for obs in now], {}
        for t in range(num_steps):
            count += 1
            for i in range(num_envs):
                after = now[i] + 1
                streams[i].append((now[i], after))
                if count % (i + 2) == 0:
                    cuts[i, t] = after
                    streams[i].append((after, None))
                    after += 1
                now[i] = after
                rows[i].append(after)
        rollout = make_rollout(rows, truncated=cuts)
        buffer = buffer or ReplayBuffer(num_envs * window, rollout)
        buffer.add(rollout)
        expected = {obs: after for stream in streams for obs, after in stream[-window:] if after is not None}
        assert {obs: after for obs, (_, _, after) in transitions(buffer).items()} == expected


def test_steps_are_drawn_uniformly_over_uneven_environments() -> None:
    # 7 steps as above, 7000 draws: 1000 each, with a standard deviation of (7000 * 1/7 * 6/7) ** 0.5 = 29.
    first = make_rollout([[1, 2, 7, 8, 9], [11, 12, 13, 14, 15]], truncated={(0, 1): 3})
    drawn = filled(first, capacity=8).sample(7000, 1, 0.5)["obs"].flatten()
    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == [2, 7, 8, 11, 12, 13, 14]
    assert (counts - 1000).abs().max() < 4 * 29


def test_host_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = make_rollout([[1, 2, 7, 8, 9]], truncated={(0, 1): 3}, images=True)
    buffer = filled(rollout, rollout)
    with no_host_sync(monkeypatch):
        buffer.add(rollout)
        buffer.sample(5, 3, 0.5)


def test_images_stay_uint8_and_each_is_stored_once() -> None:
    rollout = make_rollout([[1, 2, 7, 8, 9]], truncated={(0, 1): 3}, images=True)
    batch = filled(rollout).sample(50, 2, 0.5)
    for part in (batch, batch["next"]):
        assert part["entries", "camera"].dtype == torch.uint8
        assert torch.equal(part["entries", "camera"], image_of(part["obs"].reshape(1, -1))[0])


@pytest.mark.parametrize("images", [False, True])
def test_memory_that_is_taken_is_what_was_stated(images: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = make_rollout([[1, 2, 3], [11, 12, 13], [21, 22, 23]], images=images)
    taken, zeros = [], ReplayBuffer._zeros

    def counting(*args: Any) -> torch.Tensor:
        taken.append(zeros(*args))
        return taken[-1]

    monkeypatch.setattr(ReplayBuffer, "_zeros", counting)
    ReplayBuffer(100, rollout)
    size = sum(values.nbytes for values in taken)
    # 3 rings of 34 + 2 * 2 + 2 = 40 slots, of obs, action, reward (4 bytes each), terminated, is_step (1 each), the
    # number of a step's slot (4), and with images 2 x 2 x 3. 2 counts of 8 bytes for each ring.
    assert size == 3 * (40 * (12 + 2 + 4 + 12 * images) + 16)
    assert ReplayBuffer.bytes_needed(100, rollout) == size


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_large_buffer_takes_the_memory_of_its_steps_alone() -> None:
    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = resident_pages()
    buffer = filled(make_rollout([[1, 2, 3]], images=True), capacity=10**8)  # 3 GB when full
    assert buffer.num_steps == 2
    assert resident_pages() - before < 50_000  # 0.2 GB


def test_steps_without_numbers_to_observe_are_stored() -> None:
    rollout = make_rollout([[1, 2, 3]], images=True)
    rollout["obs"] = rollout["obs"][..., :0]
    rollout["final"]["obs"] = rollout["final"]["obs"][..., :0]
    assert filled(rollout).sample(5, 1, 0.5)["obs"].shape == (5, 0)


def test_buffer_that_does_not_fit_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 3_000_000_000)
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.replay_capacity: the 1,000,000,000 .* take 18\.0 GB"):
        ReplayBuffer.allocate(10**9, make_rollout([[1, 2, 3]]))


def test_other_image_at_the_head_is_a_reset() -> None:
    first, second = (make_rollout(obs, images=True) for obs in ([[1, 2, 3]], [[3, 4, 5]]))
    second["entries", "camera"] = second["entries", "camera"].clone()
    second["entries", "camera"][0, 0, 0, 0, 0] = 99
    assert transitions(filled(first, second), n_steps=2)[2] == (2, 0.5, 3)


def test_episodes_are_added_one_after_another() -> None:
    # A demonstration ends with its final observation; only the second one says that it terminated.
    template = make_rollout([[0, 0, 0, 0]]).exclude("truncated", "final")
    buffer = ReplayBuffer(20, template)
    buffer.add(make_rollout([[1, 2, 3]]).exclude("truncated", "final"))
    buffer.add(make_rollout([[5, 6, 7, 8]], terminated=[(0, 2)]).exclude("truncated", "final"))
    # 5 + 6/2 = 8; 6 + 7/2 = 9.5, terminated
    expected = {1: (2, 0.25, 3), 2: (2, 0.5, 3), 5: (8, 0.25, 7), 6: (9.5, 0, 0), 7: (7, 0, 0)}
    assert transitions(buffer, n_steps=2) == expected


def episode(first: float, num_steps: int, ends: bool, images: bool = False) -> TensorDict:
    """Return an episode [1, T+1] with observations first, first + 1, ...; the last step has the reward 1."""
    obs = first + torch.arange(num_steps + 1.0)
    reward, terminated = torch.zeros(num_steps + 1), torch.zeros(num_steps + 1, dtype=torch.bool)
    reward[num_steps - 1], terminated[num_steps - 1] = 1.0, ends
    fields = {"obs": obs[:, None], "action": 10 * obs[:, None], "reward": reward, "terminated": terminated}
    rollout = TensorDict(fields, batch_size=[num_steps + 1])
    if images:
        camera = obs.byte()[:, None, None, None].expand(-1, 2, 2, 3)
        rollout["entries"] = TensorDict({"camera": camera}, batch_size=[num_steps + 1])
    return rollout.unsqueeze(0)


def two_episodes(images: bool = False) -> Demonstrations:
    """One of 3 steps that reaches success, and one of 2 steps that is cut."""
    return Demonstrations([episode(10.0, 3, True, images), episode(20.0, 2, False, images)], 1)


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


def test_buffer_does_not_change_the_state_that_it_was_loaded_from() -> None:
    rollout = make_rollout([[1, 2, 3]])
    first, second = filled(rollout, capacity=2), ReplayBuffer(2, rollout)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        second.add(rollout)
    assert first.num_steps == 2


def test_state_of_more_steps_than_a_buffer_holds_is_refused() -> None:
    rollout = make_rollout([[1, 2, 3]])
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.replay_capacity: is less than the saved replay buffer's$"):
        ReplayBuffer(2, rollout).load_state_dict(filled(rollout, capacity=20).state_dict())


def test_larger_buffer_samples_the_saved_steps_and_the_next_ones(tmp_path: Path) -> None:
    rollouts = [make_rollout([range(start, start + 6)]) for start in range(0, 30, 5)]

    def save(folder: SegmentFolder, buffer: ReplayBuffer) -> dict[str, Any]:
        return folder.save({"replay": buffer}, {"replay": buffer.state_dict()})

    def load(saved: dict[str, Any]) -> tuple[SegmentFolder, ReplayBuffer]:
        folder, buffer = SegmentFolder(tmp_path, 0), ReplayBuffer(20, rollouts[0])
        folder.load({"replay": buffer}, saved, tmp_path)
        return folder, buffer

    folder, first = SegmentFolder(tmp_path, 0), ReplayBuffer(8, rollouts[0])
    for rollout in rollouts[:3]:
        first.add(rollout)
        saved = save(folder, first)  # whose first segment begins before the window of 8
    folder, second = load(saved)
    assert transitions(second) == transitions(first)
    second.add(rollouts[3])
    _, third = load(save(folder, second))
    assert transitions(third) == transitions(second)
    for rollout in rollouts[4:]:
        third.add(rollout)
    assert third.num_steps == 20


def test_share_is_rounded_to_transitions_of_both_kinds() -> None:
    assert (check_share(0.5, 256), check_share(0.25, 10)) == (128, 2)
    with pytest.raises(ConfigError, match=r"demonstration_share: 0\.5 of 1 are 0 transitions"):
        check_share(0.5, 1)
