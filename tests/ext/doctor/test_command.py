"""The command ``embodichain doctor``."""

import json
from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.ext.doctor.run import give_advice
from embodichain.utils.device import describe_machine


def doctor(*argv: str) -> int:
    return main(["doctor", *argv])


def test_sound_algorithm_gives_0_and_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--algo", "ppo") == 0
    out = capsys.readouterr().out
    assert "  passed   value_at_truncation\n" in out
    assert "  skipped  groups_are_apart: the config has no group_size\n" in out
    assert "18 passed, 0 failed, 3 skipped in " in out


SICK = """
from embodichain.agents.rl.algo import PPO, register_algo

@register_algo("{name}")
class Sick(PPO):
    def update(self, rollout):
        super().update(rollout)
        return {{"loss": 1}}
"""


def test_sick_algorithm_gives_1_and_names_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "doctor_patient.py").write_text(SICK.format(name="sick_ppo"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    call = ("--algo", "sick_ppo", "--allow-import", "doctor_patient", "--import", "doctor_patient")
    assert doctor(*call) == 1
    failure = capsys.readouterr().out.split("FAILED")[1].splitlines()[:4]
    assert [line.split(maxsplit=1)[0] for line in failure] == ["losses_are_finite", "expected", "got", "cause"]
    assert doctor(*call, "--json") == 1
    first, *_ = json.loads(capsys.readouterr().out)
    assert first | {"seconds": 0.0} == {
        "name": "losses_are_finite",
        "status": "failed",
        "expected": "a dictionary of finite floats",
        "got": "loss: 1",
        "cause": "a tensor or an int is returned where float(...) of it should be",
        "seconds": 0.0,
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--algo", "ppo", "--import", "some_module"), "pass --allow-import some_module"),
        (("--algo", "my_a2c"), "Your own are known once imported: trainer.import_modules, or --import"),
    ],
)
def test_wrong_usage_gives_2_and_says_what_would_be_right(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(*argv) == 2
    assert message in capsys.readouterr().err


def test_doctor_describes_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor() == 0
    out = capsys.readouterr().out
    for part in ("processor", "cores", "torch", "versions", "advice"):
        assert part in out
    assert doctor("--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cores"] >= 1
    assert facts["versions"]["torch"]
    assert isinstance(facts["advice"], list)


def test_advice_follows_the_facts() -> None:
    well = describe_machine() | {
        "pictures": "OpenGL without a window", "cores": 8, "load_average": 0.1, "environment": {},
        "torch_cuda": "13.0", "gpus": ["a GPU"], "free_disk_gb": 100.0, "free_memory_gb": 16.0,
    }  # fmt: skip
    assert give_advice(well) == []
    cases: list[tuple[dict[str, Any], str]] = [
        ({"pictures": "none: install libegl1"}, "libegl1"),
        ({"load_average": 6.0}, "other programs keep 6 of 8 cores busy"),
        ({"environment": {"OMP_NUM_THREADS": "2"}}, "holds updates to 2 of 8 cores"),
        ({"torch_cuda": None, "gpus": []}, "built without CUDA"),
        ({"free_disk_gb": 0.5}, "0.5 GB are free on this disk"),
        ({"free_memory_gb": 1.0}, "1.0 GB of memory are free"),
    ]
    for change, words in cases:
        (advice,) = give_advice(well | change)
        assert words in advice
