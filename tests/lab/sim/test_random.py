"""Shapes: N environments."""

import math

import pytest
import torch
from torch import Tensor

from embodichain.lab.sim.random import CounterRandom
from embodichain.lab.sim.rows import changing_rows


def begun(num_envs: int, seed: int = 1, first_id: int = 0, enumerate_episodes: bool = False) -> CounterRandom:
    random = CounterRandom(seed, num_envs, first_id=first_id)
    if enumerate_episodes:
        random.reseed(seed, enumerate_episodes=True)
    random.next_episode(torch.arange(num_envs))
    return random


def draw(
    random: CounterRandom, size: int = 4, name: str = "place", tick: int = 0, rows: Tensor | None = None
) -> Tensor:
    with random.stream(name, tick):
        return random.uniform(torch.arange(len(random.episode)) if rows is None else rows, 0.0, 1.0, size)


def test_uniform_numbers_have_their_laws_moments() -> None:
    values = draw(begun(1000), size=100)
    # 1e5 numbers: the mean's deviation is sqrt(1 / 12 / 1e5) = 9e-4, the variance's sqrt(1 / 180 / 1e5) = 2.4e-4.
    assert abs(values.mean().item() - 0.5) < 5 * 9e-4
    assert abs(values.var().item() - 1 / 12) < 5 * 2.4e-4
    assert 0.0 <= values.min().item() < 1e-3
    assert 1 - 1e-3 < values.max().item() < 1.0
    # Each of 20 equal bins holds 5000, with a deviation of sqrt(5000 * 0.95) = 69.
    counts = torch.histc(values, bins=20, min=0.0, max=1.0)
    assert (counts - 5000).abs().max().item() < 5 * 69


def test_neighbouring_draws_are_uncorrelated() -> None:
    random = begun(20_000)
    first = draw(random, size=2)
    with random.stream("place"):
        random.uniform(torch.arange(20_000), 0.0, 1.0, 2)
        second_draw = random.uniform(torch.arange(20_000), 0.0, 1.0, 1)[:, 0]
    other_stream = draw(random, size=1, name="goal")[:, 0]
    other_tick = draw(random, size=1, tick=1)[:, 0]
    random.next_episode(torch.arange(20_000))
    next_episode = draw(random, size=1)[:, 0]
    own = first[:, 0]
    pairs = {
        "env": (own[:-1], own[1:]),
        "lane": (own, first[:, 1]),
        "draw": (own, second_draw),
        "stream": (own, other_stream),
        "tick": (own, other_tick),
        "episode": (own, next_episode),
    }
    for name, (a, b) in pairs.items():
        # The sample correlation of 2e4 independent pairs has a deviation of 1 / sqrt(2e4) = 0.0071.
        assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1].item()) < 5 * 0.0071, name


def test_bounds_apply_lane_by_lane() -> None:
    random = begun(100)
    low, high = torch.tensor([-1.0, 10.0]), torch.tensor([1.0, 10.0])
    with random.stream("a"):
        values = random.uniform(torch.arange(100), low, high, 2)
    with random.stream("a"):
        units = random.uniform(torch.arange(100), 0.0, 1.0, 2)
    torch.testing.assert_close(values[:, 0], units[:, 0] * 2 - 1, atol=1e-6, rtol=0)
    assert (values[:, 1] == 10.0).all()


def test_draws_do_not_depend_on_the_number_of_envs() -> None:
    many, few = begun(8), begun(3)
    assert torch.equal(draw(many)[:3], draw(few))
    assert torch.equal(draw(many, rows=torch.tensor([5, 2])), draw(many)[[5, 2]])


def test_draws_belong_to_the_global_env_id() -> None:
    assert torch.equal(draw(begun(8))[4:], draw(begun(4, first_id=4)))


def grouped(num_envs: int, group_size: int, first_id: int = 0) -> CounterRandom:
    random = CounterRandom(1, num_envs, first_id=first_id, group_size=group_size)
    random.next_episode(torch.arange(num_envs))
    return random


def test_members_of_a_group_share_all_draws_and_groups_do_not() -> None:
    values = draw(grouped(6, group_size=3))
    assert torch.equal(values[[0, 0, 0, 3, 3, 3]], values)
    assert not torch.equal(values[0], values[3])
    # group g draws as environment g does where each is alone; groups are global, as ids are
    assert torch.equal(values[[0, 3]], draw(begun(2)))
    assert torch.equal(draw(grouped(3, group_size=3, first_id=3)), values[3:])


def test_align_groups_takes_the_largest_episode_number() -> None:
    random = grouped(4, group_size=2)
    for env in (0, 0, 1, 3):
        random.next_episode(torch.tensor([env]))
    assert random.episode.tolist() == [2, 1, 0, 1]
    random.align_groups()
    random.next_episode(torch.arange(4))
    assert random.episode.tolist() == [3, 3, 2, 2]
    values = draw(random)
    assert torch.equal(values[[0, 0, 2, 2]], values)


def test_draws_outside_all_streams_start_again_with_the_seed() -> None:
    random, rows = begun(2), torch.arange(2)
    first = [random.uniform(rows, 0.0, 1.0, 3) for _ in range(2)]
    random.reseed(1)
    random.next_episode(rows)
    assert torch.equal(torch.stack(first), torch.stack([random.uniform(rows, 0.0, 1.0, 3) for _ in range(2)]))
    assert not torch.equal(*first)


def test_enumerating_episodes_ignores_groups_until_reseeded() -> None:
    random = grouped(4, group_size=2)
    first = draw(random)
    random.reseed(1, enumerate_episodes=True)
    random.align_groups()
    random.next_episode(torch.arange(4))
    assert torch.equal(draw(random), draw(begun(4, enumerate_episodes=True)))
    random.reseed(1)
    random.next_episode(torch.arange(4))
    assert torch.equal(draw(random), first)


def test_nested_stream_leaves_the_outer_one_where_it_was() -> None:
    random, plain = begun(1), begun(1)
    rows = torch.arange(1)
    with random.stream("outer"):
        random.uniform(rows, 0.0, 1.0, 1)
        with random.stream("inner"):
            random.uniform(rows, 0.0, 1.0, 1)
        after = random.uniform(rows, 0.0, 1.0, 1)
    with plain.stream("outer"):
        plain.uniform(rows, 0.0, 1.0, 1)
        expected = plain.uniform(rows, 0.0, 1.0, 1)
    assert torch.equal(after, expected)


def test_next_episode_changes_the_draws_of_its_envs_only() -> None:
    random = begun(3)
    before = draw(random)
    random.next_episode(torch.tensor([1]))
    after = draw(random)
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1], after[1])
    assert random.episode.tolist() == [0, 1, 0]


def test_draws_do_not_depend_on_earlier_draws() -> None:
    random = begun(4)
    some, others = torch.tensor([2, 0]), torch.tensor([1, 3])
    for rows in (torch.arange(4), some, others, some):
        for name, size in (("b", 2), ("a", 3), ("c", 1), ("a", 3)):
            with random.stream(name):
                drawn = random.uniform(rows, 0.0, 1.0, size)
            assert torch.equal(drawn, draw(begun(4), name=name, size=size)[rows])
    random.next_episode(some)
    alone = begun(4)
    alone.next_episode(some)
    assert torch.equal(draw(random, name="b", size=2), draw(alone, name="b", size=2))


def test_keys_that_are_put_back_count_at_the_next_draw() -> None:
    random, alone = begun(4), begun(4)
    mask, rows = torch.tensor([True, False, False, True]), torch.arange(4)
    with changing_rows([random], mask):
        random.next_episode(rows)
        draw(random, rows=rows)
    alone.next_episode(torch.tensor([0, 3]))
    assert torch.equal(draw(random, rows=rows), draw(alone, rows=rows))


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_enumerated_episodes_are_one_set_for_any_num_envs(num_envs: int) -> None:
    random = begun(num_envs, enumerate_episodes=True)
    seen = [draw(random, size=1)]
    for _ in range(6 // num_envs - 1):
        random.next_episode(torch.arange(num_envs))
        seen.append(draw(random, size=1))
    # Episode e of the list is episode e of a single environment.
    single = begun(6, enumerate_episodes=True)
    assert torch.equal(torch.cat(seen), draw(single, size=1))


def test_normal_numbers_have_the_moments_of_their_law() -> None:
    random = begun(1000)
    with random.stream("noise"):
        values = random.normal(torch.arange(1000), 100)
    assert values.shape == (1000, 100)
    assert torch.isfinite(values).all()
    # 1e5 numbers: deviations of the mean 1 / sqrt(1e5) = 3.2e-3, of the variance sqrt(2 / 1e5) = 4.5e-3,
    # of the share beyond 2 sigma (4.55 %) sqrt(0.0455 * 0.9545 / 1e5) = 6.6e-4.
    assert abs(values.mean().item()) < 5 * 3.2e-3
    assert abs(values.var().item() - 1.0) < 5 * 4.5e-3
    assert abs((values.abs() > 2).float().mean().item() - math.erfc(2 / math.sqrt(2))) < 5 * 6.6e-4


def test_envs_may_have_ticks_of_their_own() -> None:
    random = begun(3)
    together = [draw(random, size=2, tick=tick) for tick in (0, 5, 7)]
    with random.stream("place", torch.tensor([5, 0, 7])):
        own = random.uniform(torch.tensor([2, 0]), 0.0, 1.0, 2)
    assert torch.equal(own, torch.stack((together[2][2], together[1][0])))
