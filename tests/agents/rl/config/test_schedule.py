from __future__ import annotations

import pytest

from embodichain.agents.rl.config.schedule import Schedule, parse_period
from embodichain.utils import ConfigError


def test_schedule_fires_once_at_or_past_each_multiple() -> None:
    schedule = Schedule(10, "eval_freq")
    # 12 is the first check past 10, 20 is at 20, 32 past 30
    fired = [step for step in range(4, 37, 4) if schedule.is_due(step, iteration=0)]
    assert fired == [12, 20, 32]


def test_resumed_schedule_continues_with_the_next_multiple() -> None:
    schedule = Schedule(10, "eval_freq")
    schedule.start_from(24, 3)
    assert [step for step in range(28, 45, 4) if schedule.is_due(step, iteration=0)] == [32, 40]


def test_it_counts_iterations_whatever_the_steps() -> None:
    schedule = Schedule("3 it", "eval_freq")
    assert [i for i in range(1, 10) if schedule.is_due(1_000_000, i)] == [3, 6, 9]


@pytest.mark.parametrize(
    ("period", "expected"),
    [(5, (5, False)), ("5", (5, False)), ("100 it", (100, True)), (" 7it ", (7, True))],
)
def test_period_is_a_number_of_steps_or_of_iterations(period: int | str, expected: tuple[int, bool]) -> None:
    assert parse_period(period) == expected


@pytest.mark.parametrize("period", [0, -5, "0 it", "often", "10 its", "", "1.5", "1e4"])
def test_impossible_period_is_an_error_that_names_its_place(period: int | str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule(period, "trainer.save_freq")
    assert str(caught.value) == (
        f"trainer.save_freq: must be a positive number of steps, or iterations as '100 it', got {period!r}"
    )
