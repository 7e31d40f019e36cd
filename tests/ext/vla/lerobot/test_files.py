"""Shapes: D = 2."""

import json
from pathlib import Path

import pytest
import torch

from embodichain.ext.vla.lerobot.files import Processors, read_config, read_processors
from embodichain.ext.vla.smolvla import denormalized, normalized
from embodichain.utils import ConfigError
from embodichain.utils.state import write_safetensors
from tests.ext.vla.lerobot.conftest import Change, change_json

BEFORE, AFTER = "policy_preprocessor", "policy_postprocessor"


def read(folder: Path) -> Processors:
    cfg = read_config(json.loads((folder / "config.json").read_text()), "config.json")
    return read_processors(folder, cfg)


def set_actions(folder: Path, kind: str, low: list[float], high: list[float]) -> None:
    """Normalise actions by other statistics: low and high, or mean and std, in both processors."""
    names = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
    first, second = names.get(kind, ("mean", "std"))
    for name, number in ((BEFORE, 5), (AFTER, 0)):
        content = json.loads((folder / f"{name}.json").read_text())
        content["steps"][number]["config"]["norm_map"]["ACTION"] = kind
        (folder / f"{name}.json").write_text(json.dumps(content))
        (file,) = folder.glob(f"{name}_*.safetensors")
        write_safetensors(file, {f"action.{first}": torch.tensor(low), f"action.{second}": torch.tensor(high)})


@pytest.mark.parametrize("kind", ["MIN_MAX", "QUANTILES", "QUANTILE10"])
def test_range_is_mapped_to_minus_1_to_1(folder: Path, kind: str) -> None:
    set_actions(folder, kind, [1.0, -2.0], [5.0, 2.0])
    action = read(folder).action
    given = (action.mean, action.std, action.kind)
    # 2 (x - low) / (high - low) - 1
    x = torch.tensor([[1.0, -2.0], [5.0, 2.0], [2.0, 0.0]])
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-0.5, 0.0]])
    torch.testing.assert_close(normalized(x, *given), expected)
    torch.testing.assert_close(denormalized(expected, *given), x)


def test_what_is_constant_stays_finite(folder: Path) -> None:
    set_actions(folder, "MIN_MAX", [3.0, 0.0], [3.0, 1.0])
    action = read(folder).action
    given = (action.mean, action.std, action.kind)
    # LeRobot divides by 1e-8 where low and high are equal: their value becomes -1
    assert normalized(torch.tensor([3.0, 0.0]), *given).tolist() == [-1.0, -1.0]
    set_actions(folder, "MEAN_STD", [3.0, 0.0], [0.0, 1.0])
    action = read(folder).action
    assert normalized(torch.tensor([3.0, 2.0]), action.mean, action.std, action.kind).tolist() == [0.0, 2.0]
    assert denormalized(torch.tensor([7.0, 2.0]), action.mean, action.std, action.kind).tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (BEFORE, lambda c: c["steps"].pop(3), r"preprocessor\.json: has no step 'tokenizer_processor', only"),
        (BEFORE, lambda c: c["steps"][0].pop("registry_name"), r"steps\[0\]\.registry_name: required"),
        (AFTER, lambda c: c["steps"][1].update(registry_name="delta_actions"), "unknown step 'delta_actions'"),
        (BEFORE, lambda c: c["steps"][4]["config"].update(float_dtype="float16"), "float_dtype: must be null"),
        (BEFORE, lambda c: c["steps"][5]["config"]["norm_map"].update(VISUAL="MEAN_STD"), r"VISUAL: must be IDENTITY"),
        (BEFORE, lambda c: c["steps"][5]["config"]["norm_map"].update(STATE="LOG"), r"norm_map\.STATE: .*'MEAN_STD'"),
        (BEFORE, lambda c: c["steps"][5]["config"].update(eps=1e-3), r"normalizer_processor\.eps"),
        (BEFORE, lambda c: c["steps"][5].update(state_file="../x.safetensors"), "must be the name of a file in this"),
        (AFTER, lambda c: c["steps"][0]["config"]["norm_map"].update(ACTION="MIN_MAX"), r"'action\.min' \[2\] is"),
    ],
)
def test_steps_of_another_computation_are_refused(folder: Path, name: str, change: Change, message: str) -> None:
    change_json(folder / f"{name}.json", change)
    with pytest.raises(ConfigError, match=message) as error:
        read(folder)
    assert "\n" not in str(error.value)


def test_statistics_of_another_size_are_refused(folder: Path) -> None:
    set_actions(folder, "MEAN_STD", [0.0], [1.0])
    with pytest.raises(ConfigError, match=r"statistic 'action\.mean' \[2\] is needed, got \[1\]"):
        read(folder)
    set_actions(folder, "MEAN_STD", [0.0, 0.0], [1.0, float("nan")])
    with pytest.raises(ConfigError, match=r"statistic 'action\.std' has a number that is not finite"):
        read(folder)


def test_processors_with_different_statistics_are_refused(folder: Path) -> None:
    (file,) = folder.glob(f"{AFTER}_*.safetensors")
    write_safetensors(file, {"action.mean": torch.zeros(2), "action.std": torch.ones(2)})
    with pytest.raises(ConfigError, match=r"policy_postprocessor\.json have other statistics of 'action'"):
        read(folder)


def test_state_may_be_left_out_of_the_normalisation(folder: Path) -> None:
    assert read(folder).state.kind == "MEAN_STD"
    change_json(
        folder / f"{BEFORE}.json", lambda c: c["steps"][5]["config"].update(normalize_observation_keys=["other"])
    )
    assert read(folder).state.kind == "IDENTITY"


def test_text_without_the_step_gets_no_new_line(folder: Path) -> None:
    assert read(folder).ends_in_new_line
    change_json(folder / f"{BEFORE}.json", lambda c: c["steps"].pop(2))
    assert not read(folder).ends_in_new_line
