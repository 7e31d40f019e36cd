import pytest
import torch

from embodichain.agents.rl.models import RunningNormalizer


def test_statistics_of_chunks_equal_those_of_the_whole() -> None:
    torch.manual_seed(0)
    data = 1000 + 3 * torch.randn(50, 2)
    normalizer = RunningNormalizer(2)
    for chunk in data.split([1, 7, 30, 12]):
        normalizer.update(chunk)
    expected = data.double().numpy()
    torch.testing.assert_close(normalizer.mean, torch.from_numpy(expected.mean(axis=0)))
    torch.testing.assert_close(normalizer.m2 / normalizer.count, torch.from_numpy(expected.var(axis=0)))
    torch.testing.assert_close(
        normalizer(data), torch.from_numpy((expected - expected.mean(axis=0)) / expected.std(axis=0)).float()
    )


def test_statistics_change_by_updates_with_finite_rows_alone() -> None:
    normalizer = RunningNormalizer(1).train()
    normalizer.update(torch.tensor([[1.0], [3.0]]))
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer(torch.tensor([[100.0]]))
    normalizer.update(torch.tensor([[float("nan")]]))
    assert all(torch.equal(value, before[name]) for name, value in normalizer.state_dict().items())


def test_input_passes_unscaled_before_the_first_update() -> None:
    assert RunningNormalizer(2)(torch.tensor([[1.0, -2.0]])).tolist() == [[1, -2]]


def test_output_is_cut_at_ten_deviations() -> None:
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[-1.0], [1.0]]))  # mean 0, deviation 1
    assert normalizer(torch.tensor([[50.0], [-50.0]])).tolist() == [[10], [-10]]


def test_rows_that_are_not_finite_are_left_out() -> None:
    rows = torch.tensor([[1.0, 2.0], [float("nan"), 3.0], [3.0, float("inf")], [5.0, 6.0], [-float("inf"), 0.0]])
    normalizer, clean = RunningNormalizer(2), RunningNormalizer(2)
    normalizer.update(rows)
    clean.update(rows[[0, 3]])
    assert normalizer.count == 2
    assert all(torch.equal(a, b) for a, b in zip(normalizer.buffers(), clean.buffers(), strict=True))


def test_absurd_number_enters_the_statistics_as_ten_std() -> None:
    normalizer, tame = RunningNormalizer(2), RunningNormalizer(2)
    start = torch.tensor([[-1.0, 5.0], [1.0, 7.0]])  # means 0 and 6, std 1
    for each in (normalizer, tame):
        each.update(start)
    normalizer.update(torch.tensor([[[0.5, 6.0], [-1e9, 6.0]]]))
    tame.update(torch.tensor([[[0.5, 6.0], [-10.0, 6.0]]]))
    torch.testing.assert_close(normalizer.state_dict(), tame.state_dict())
    found = normalizer.outliers
    assert found is not None
    assert (found.count, found.index, found.value, found.mean) == (1, (0, 1, 0), -1e9, 0)
    assert found.std == pytest.approx(1.0)
    normalizer.update(start)
    assert normalizer.outliers is None


def test_absurd_number_in_the_first_batch_is_found_by_the_median() -> None:
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[-1.0], [1.0]] * 10 + [[1e9]] + [[-1.0], [1.0]] * 2))
    # The 24 others' mean is 0 and their std 1, so it counts as 10: mean 10 / 25, variance (24 + 100) / 25 - 0.16.
    assert normalizer.mean.item() == pytest.approx(0.4)
    assert (normalizer.m2 / normalizer.count).item() == pytest.approx(4.8)


@pytest.mark.parametrize(
    "column",
    [
        [0.0] * 4999 + [1.0],  # a flag that is rarely set: 70 std
        [0.0] * 4999 + [9000.0],  # a contact force that is rare
        [1e7 * i for i in range(5000)],  # a counter
        [(-1) ** i * 1e8 for i in range(5000)],
        [1e12 + i % 2 for i in range(5000)],
    ],
)
def test_ordinary_data_change_no_bit_of_the_statistics(column: list[float]) -> None:
    data = torch.tensor(column).unsqueeze(1)
    normalizer = RunningNormalizer(1)
    for chunk in data.split(1000):
        normalizer.update(chunk)
        assert normalizer.outliers is None
    torch.testing.assert_close(normalizer.mean, data.double().mean(0))
    torch.testing.assert_close(normalizer.m2 / normalizer.count, data.double().var(0, unbiased=False))


def test_float64_is_normalised_before_it_is_cast() -> None:
    normalizer, times = RunningNormalizer(1), 1.7e9 + torch.tensor([[-3.0], [0.0], [3.0]], dtype=torch.float64)
    normalizer.update(times)
    # Mean 1.7e9, variance 6, and 3 / sqrt(6) = 1.2247. In float32 1.7e9 and 1.7e9 + 3 are the same number.
    assert normalizer(times).squeeze(1).tolist() == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-4)
    assert normalizer(times).dtype == torch.float32
    assert normalizer(times.float()).unique().numel() == 1
