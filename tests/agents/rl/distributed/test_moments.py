from __future__ import annotations

import torch

from embodichain.agents.rl.distributed import merged_moments, moments


def test_moments_of_one_part() -> None:
    # 1, 3: mean 2, deviations 1 and 1; 0, 4: mean 2, deviations 2 and 2
    assert moments(torch.tensor([[1.0, 0.0], [3.0, 4.0]])).tolist() == [2, 2, 2, 2, 8]


def test_merged_parts_are_the_moments_of_all_samples() -> None:
    torch.manual_seed(0)
    x = 100 + torch.randn(11, 3, dtype=torch.float64)
    parts = torch.stack([moments(part) for part in x.split((2, 5, 1, 3))])
    count, mean, m2 = merged_moments(parts)
    assert count == 11
    torch.testing.assert_close(mean, x.mean(0))
    torch.testing.assert_close(m2, (x - x.mean(0)).square().sum(0))


def test_part_without_samples_changes_nothing() -> None:
    x = torch.randn(4, 2, dtype=torch.float64)
    alone = merged_moments(moments(x)[None])
    beside = merged_moments(torch.stack((moments(x[:0]), moments(x), moments(x[:0]))))
    assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True))


def test_one_part_comes_back_bit_for_bit() -> None:
    part = moments(torch.randn(7, 2, dtype=torch.float64))
    count, mean, m2 = merged_moments(part[None])
    assert torch.equal(torch.cat((count[None], mean, m2)), part)
