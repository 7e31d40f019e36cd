"""Delay lines by hand. Shapes: N = 2 environments, K = 3 frames of one number."""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.sensor_models import draw_delay, frames_for, push, read
from embodichain.utils.random import CounterRandom

FRAMES = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
VALUE = torch.tensor([[7.0], [8.0]])


def rows(frames: Tensor) -> list[list[float]]:
    values: list[list[float]] = frames.squeeze(2).tolist()
    return values


def test_newest_frame_pushes_the_oldest_out() -> None:
    assert rows(push(FRAMES, VALUE)) == [[2, 3, 7], [5, 6, 8]]


def test_frames_are_made_for_the_first_value_whatever_its_shape() -> None:
    for value in (torch.ones(2), torch.ones(2, 4), torch.ones(2, 4, 5, 3, dtype=torch.uint8)):
        frames = frames_for(torch.zeros(2, 0), value, 3)
        assert (frames.shape, frames.dtype) == ((2, 3, *value.shape[1:]), value.dtype)
        pushed = push(frames, value)
        assert frames_for(pushed, value, 3) is pushed
        assert torch.equal(read(pushed, torch.tensor([0, 0])), value)
        assert not read(pushed, torch.tensor([1, 2])).any()


def test_frames_are_read_at_each_environments_own_lags() -> None:
    assert read(FRAMES, torch.tensor([0, 2])).tolist() == [[3], [4]]
    assert rows(read(FRAMES, torch.tensor([[2, 0], [1, 1]]))) == [[1, 3], [5, 5]]


def test_delays_are_all_whole_numbers_between_the_bounds() -> None:
    random = CounterRandom(0, 300)
    drawn = draw_delay(random, torch.arange(300), (1, 3))
    assert drawn.dtype == torch.int64
    counts = drawn.bincount().tolist()
    assert len(counts) == 4
    assert counts[0] == 0
    assert min(counts[1:]) > 70  # 100 each, standard deviation 8
    assert draw_delay(random, torch.arange(300), (2, 2)).unique().tolist() == [2]
