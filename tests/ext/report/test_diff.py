"""``embodichain diff``."""

import json
from pathlib import Path

import pytest

from embodichain.cli import main
from tests.agents.rl.runs import write_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed, success in (("a", 1, 0.5), ("b", 2, 0.75)):
        write_run(Path(name), [0.0, success], seed=seed)
        Path(f"{name}/summary.json").write_text(json.dumps({"success_rate": success, "video": "x.mp4"}))
        Path(f"{name}/machine.json").write_text(json.dumps({"cores": 2, "commit": name * 4}))


def test_differing_values_and_all_results_are_in_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a", "b"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["a", "b"]
    assert ["trainer.seed", "1", "2"] in rows
    assert ["commit", "aaaa", "bbbb"] in rows
    assert ["success_rate", "0.5", "0.75"] in rows
    names = [row[0] for row in rows if row]
    assert not {"cores", "policy.name", "video"} & set(names)
    assert main(["diff", "a", "a"]) == 0
    assert "config: equal\n\nmachine and code: equal\n" in capsys.readouterr().out


def test_results_of_an_unfinished_run_are_its_last_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    Path("b/summary.json").unlink()
    assert main(["diff", "a", "b", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert results["success_rate"] == [0.5, None]
    assert results["eval/success_rate"] == [None, 0.75]
