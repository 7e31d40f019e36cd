"""The reward's terms, by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.cli import main
from embodichain.ext.report import rewards
from embodichain.ext.report.rewards import OTHER, rescore, return_facts, term_facts
from embodichain.utils import ConfigError

# Four episodes: returns 0, 2, 4, 6, of which `near` pays all differences and `cost` none.
NEAR, COST = np.array([1.0, 3.0, 5.0, 7.0]), np.full(4, -1.0)
COLUMNS = {"success": np.array([0.0, 0, 1, 1]), "return": NEAR + COST, "rewards/near": NEAR, "rewards/cost": COST}


def test_facts_of_terms() -> None:
    facts = term_facts(COLUMNS)
    assert list(facts) == ["near", "cost"]
    near, cost = facts.values()
    assert (near["mean"], near["size"]) == (4.0, 4.0)
    assert near["share_of_variance"] == pytest.approx(1.0)
    # cov = mean of (-3, -1, 1, 3) x (-0.5, -0.5, 0.5, 0.5) = 1; std = sqrt(5) and 0.5
    assert near["correlation"] == pytest.approx(1 / (5**0.5 * 0.5))
    assert cost == {"mean": -1.0, "size": 1.0, "share_of_variance": 0.0, "correlation": None}


def test_shares_of_variance_add_up_and_may_be_negative() -> None:
    against = -0.5 * NEAR
    facts = term_facts({**COLUMNS, "rewards/cost": against, "return": NEAR + against})
    # return = near / 2: cov(near, return) / var(return) = 2, and -1 for the other
    assert [fact["share_of_variance"] for fact in facts.values()] == pytest.approx([2.0, -1.0])


def test_what_no_term_explains_is_named() -> None:
    facts = term_facts({**COLUMNS, "return": NEAR + COST + 2.5})
    assert facts[OTHER]["mean"] == pytest.approx(2.5)
    assert OTHER not in term_facts(COLUMNS)


def test_return_that_never_varies_has_no_shares() -> None:
    same = {"success": np.ones(3), "return": np.ones(3), "rewards/a": np.ones(3)}
    assert term_facts(same)["a"]["share_of_variance"] is None
    facts = return_facts(same)
    assert facts["correlation_of_return_with_success"] is facts["return_of_failure"] is None


def test_other_weights_pay_otherwise() -> None:
    scored = rescore(COLUMNS, {"near": -1.0, "cost": 2.0})
    assert scored["return"].tolist() == [-3, -5, -7, -9]
    assert scored["rewards/cost"].tolist() == [-2] * 4
    facts = return_facts(scored)
    assert (facts["return_of_success"], facts["return_of_failure"]) == (-8.0, -4.0)
    assert facts["correlation_of_return_with_success"] == pytest.approx(-1 / (5**0.5 * 0.5))
    assert COLUMNS["return"].tolist() == [0, 2, 4, 6]  # the recording stays


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
    # Another checkpoint of this name has other episodes.
    checkpoint = find_run("latest").checkpoint
    torch.save(torch.load(checkpoint, weights_only=True) | {"note": 1}, checkpoint)
    assert main(["rewards", "latest", "--episodes", "4"]) == 1
    assert "play_episodes" in capsys.readouterr().err


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


def test_weights_of_a_clamped_sum_are_refused() -> None:
    config = {"gym_config": {"env": {"extensions": {"only_positive_rewards": True}}}}
    saved = SavedRun(Path(), Path(), {"config": config})
    with pytest.raises(ConfigError, match="only_positive_rewards"):
        rewards._factors({"calm": 1.0}, saved, {})
