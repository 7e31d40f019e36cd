import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.ext.vla.lerobot.files import find_entries
from embodichain.ext.vla.lerobot.folder import LeRobotFolder, build_lerobot_model, for_robot
from embodichain.ext.vla.lerobot.writing import write_lerobot_folder, write_statistics
from embodichain.ext.vla.loading import read_model_path
from embodichain.utils.state import read_safetensors, write_safetensors
from tests.ext.vla.lerobot.conftest import ENTRIES, FIXTURE, change_json

SHAPES = {"image/top": (12, 16, 3), "image/hand": (64, 48, 3)}


def build(path: Path, **changes: Any) -> tuple[Any, LeRobotFolder, dict[str, str]]:
    folder = read_model_path(path)
    assert isinstance(folder, LeRobotFolder)
    given = {name: entry for name, entry in ENTRIES.items() if name in folder.cfg.images}
    entries = find_entries(folder.cfg, given)
    return build_lerobot_model(folder, entries, changes, "cpu")[0], folder, entries


def test_unchanged_model_gives_back_all_files(tmp_path: Path) -> None:
    files = write_lerobot_folder(tmp_path, *build(FIXTURE), SHAPES)
    names = {path.relative_to(FIXTURE).as_posix() for path in FIXTURE.rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path).as_posix() for path in files} == names - {"expected.safetensors"}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("config.json", "model.safetensors"):
            assert path.read_bytes() == (FIXTURE / path.relative_to(tmp_path)).read_bytes()
    ours, theirs = (read_safetensors(folder / "model.safetensors") for folder in (tmp_path, FIXTURE))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_config_says_what_the_training_used(tmp_path: Path) -> None:
    write_lerobot_folder(tmp_path, *build(FIXTURE, chunk_length=2, denoising_steps=3), SHAPES)
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, FIXTURE))
    changed = {key: ours[key] for key in ours if ours[key] != theirs[key]}
    assert list(changed.pop("input_features").items()) == [
        ("observation.images.top", {"type": "VISUAL", "shape": [3, 12, 16]}),
        ("observation.images.wrist", {"type": "VISUAL", "shape": [3, 64, 48]}),
        ("observation.state", {"type": "STATE", "shape": [9]}),
    ]
    assert changed == {"n_action_steps": 2, "num_steps": 3, "empty_cameras": 0}
    assert ours.keys() == theirs.keys()


def test_written_folder_gives_the_changed_model_back(tmp_path: Path, expected: dict[str, torch.Tensor]) -> None:
    model, source, entries = build(FIXTURE)
    for value in model.parameters():
        value.data.add_(0.02 * torch.randn_like(value))
    write_lerobot_folder(tmp_path, model, source, entries, SHAPES)
    again = build(tmp_path)[0]
    with torch.no_grad():
        ours, written = (each.predict(expected, expected["noise"]) for each in (model, again))
    assert torch.equal(ours, written)
    assert not torch.allclose(ours, expected["actions"], atol=1e-3)


@pytest.mark.parametrize("kind", ["MEAN_STD", "MIN_MAX", "QUANTILES", "IDENTITY"])
def test_fitted_statistics_are_read_back(
    folder: Path, tmp_path: Path, expected: dict[str, torch.Tensor], kind: str
) -> None:
    def ask_for_it(content: dict[str, Any]) -> None:
        for step in content["steps"]:
            if "norm_map" in step.get("config", {}):
                step["config"]["norm_map"] = {"VISUAL": "IDENTITY", "STATE": kind, "ACTION": kind}
                step.pop("state_file")

    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        change_json(folder / name, ask_for_it)
    source = read_model_path(folder)
    assert isinstance(source, LeRobotFolder)
    source = for_robot(source, 9, 2)
    entries = find_entries(source.cfg, ENTRIES)
    model = build_lerobot_model(source, entries, {}, "cpu")[0]
    model.fit_inputs(expected["state"])
    model.fit_actions(expected["action"].flatten(0, 1))
    out = tmp_path / "out"
    out.mkdir()
    write_lerobot_folder(out, model, source, entries, SHAPES)
    write_statistics(out, model)
    again = build(out)[0]
    with torch.no_grad():
        ours, written = (each.predict(expected, expected["noise"]) for each in (model, again))
    torch.testing.assert_close(written, ours, atol=1e-5, rtol=1e-5)


def test_weights_that_have_not_changed_keep_their_type(folder: Path, tmp_path: Path) -> None:
    """Published folders have the vision-language model in bfloat16."""
    weights = read_safetensors(folder / "model.safetensors")
    write_safetensors(
        folder / "model.safetensors", {n: v.bfloat16() if ".vlm." in n else v for n, v in weights.items()}
    )
    model, source, entries = build(folder)
    model.state.weight.data.add_(1.0)
    out = tmp_path / "out"
    out.mkdir()
    write_lerobot_folder(out, model, source, entries, SHAPES)
    written = read_safetensors(out / "model.safetensors")
    assert all((value.dtype == torch.bfloat16) == (".vlm." in name) for name, value in written.items())
    assert torch.equal(written["model.state_proj.weight"], weights["model.state_proj.weight"] + 1.0)


@pytest.mark.parametrize("name", ["../.ssh", "{outside}", "linked"], ids=["dots", "absolute", "a link"])
def test_names_that_lead_elsewhere_copy_nothing(folder: Path, tmp_path: Path, name: str) -> None:
    outside, out = tmp_path / ".ssh", tmp_path / "run" / "policy"
    shutil.move(folder / "vlm", outside)
    (outside / "id_rsa").write_text("secret")
    (folder / "linked").symlink_to(outside)
    name = name.format(outside=outside)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    change_json(folder / "config.json", lambda c: c.update(vlm_model_name=name))
    change_json(folder / "policy_preprocessor.json", lambda c: c["steps"][3]["config"].update(tokenizer_name=name))
    out.mkdir(parents=True)
    files = write_lerobot_folder(out, *build(folder), SHAPES)
    assert sorted(path for path in tmp_path.rglob("*") if out in path.parents) == sorted(files)
    assert {file.parent for file in files} == {out}
    assert {path: path.read_bytes() for path in outside.iterdir()} == before
