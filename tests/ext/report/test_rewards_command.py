"""``embodichain rewards`` on a run whose policy balances the pole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.ext.report import rewards


def result(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["rewards", "latest", "--episodes", "4", "--json", *argv]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_terms_are_rescored_from_the_same_episodes(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = result(capsys)
    assert set(first["terms"]) >= {"calm", "still", "upright"}
    assert first["weights"] == {"calm": 0.05, "still": 0.2}
    assert sum(term["share_of_variance"] for term in first["terms"].values()) == pytest.approx(1.0)

    # From now on nothing is played: the episodes were saved.
    monkeypatch.delattr(rewards, "play_episodes")
    second = result(capsys, "--weights", "calm=0.5", "upright=0")
    assert second["terms"]["calm"]["mean"] == pytest.approx(10 * first["terms"]["calm"]["mean"])
    assert second["terms"]["still"] == pytest.approx(
        first["terms"]["still"] | {"share_of_variance": second["terms"]["still"]["share_of_variance"]}
    )
    assert second["terms"]["upright"]["mean"] == 0.0
    assert main(["rewards", "latest", "--episodes", "4", "--weights", "calm=0.5"]) == 0
    out = capsys.readouterr().out
    assert "paid by other weights" in out
    assert "calm" in out


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["calm"], "--weights: must be of the form name=0.5"),
        (["clam=1"], "unknown reward term 'clam'. Did you mean 'calm'?"),
    ],
)
def test_wrong_weights_are_errors(
    weights: list[str], message: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rewards", "latest", "--episodes", "2", "--envs", "2", "--weights", *weights]) == 2
    assert message in capsys.readouterr().err
