"""Delay lines by hand. Shapes: N = 2 environments, K = 3 frames of one number."""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.delay_line import draw_delay, push, push_or_fill, read
from embodichain.utils.random import CounterRandom

FRAMES = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
VALUE = torch.tensor([[7.0], [8.0]])


def rows(frames: Tensor) -> list[list[float]]:
    values: list[list[float]] = frames.squeeze(2).tolist()
    return values


def test_newest_frame_pushes_the_oldest_out() -> None:
    assert rows(push(FRAMES, VALUE)) == [[2, 3, 7], [5, 6, 8]]


def test_first_value_of_an_episode_fills_all_frames_of_its_environment() -> None:
    begins = torch.tensor([False, True])
    assert rows(push_or_fill(FRAMES, VALUE, begins, 3)) == [[2, 3, 7], [8, 8, 8]]
    assert rows(push_or_fill(torch.zeros(2, 0), VALUE, begins, 3)) == [[7, 7, 7], [8, 8, 8]]  # nothing yet


def test_frames_may_be_numbers_or_images() -> None:
    begins = torch.tensor([False, True])
    for shape in ((2,), (2, 4, 5, 3)):
        first = push_or_fill(torch.zeros(2, 0), torch.ones(shape), begins, 3)
        second = push_or_fill(first, torch.zeros(shape), begins, 3)
        assert second.shape == (2, 3, *shape[1:])
        assert second[0].reshape(3, -1).amax(dim=1).tolist() == [1, 1, 0]
        assert not second[1].any()


def test_frame_is_read_at_each_environments_own_lag() -> None:
    assert read(FRAMES, torch.tensor([0, 2])).tolist() == [[3], [4]]


def test_delays_are_all_whole_numbers_between_the_bounds() -> None:
    random = CounterRandom(0, 300)
    drawn = draw_delay(random, torch.arange(300), (1, 3))
    assert drawn.dtype == torch.int64
    counts = drawn.bincount().tolist()
    assert len(counts) == 4
    assert counts[0] == 0
    assert min(counts[1:]) > 70  # 100 each, standard deviation 8
    assert draw_delay(random, torch.arange(300), (2, 2)).unique().tolist() == [2]
