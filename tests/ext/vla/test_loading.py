import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from embodichain.agents.rl.models import TinyVLA, VLAPolicy, load_vla_model, save_vla_model
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.utils import ConfigError

TINY = "embodichain.agents.rl.models.TinyVLA"
CONFIG: dict[str, Any] = {
    "cameras": ["front"],
    "image_size": [16, 16],
    "state_dim": 3,
    "action_dim": 2,
    "channels": [4, 8],
    "width": 8,
    "depth": 1,
    "heads": 2,
}


class UserVLA(nn.Module):
    chunk_length = 1
    observation_keys = ("state",)

    def __init__(self, size: int, gain: float = 1.0) -> None:
        super().__init__()
        self.net, self.gain = nn.Linear(size, 2), gain

    def forward(self, obs: Any) -> Any:
        return obs

    def get_value(self, obs: Any) -> Any:
        return obs

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        return obs


class Incomplete(nn.Module):
    def get_value(self, obs: Any) -> Any:
        return obs


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("users_vla")
    for cls in (UserVLA, Incomplete):
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, "users_vla", module)
    return "users_vla"


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, TinyVLA]:
    torch.manual_seed(3)
    model = TinyVLA(**CONFIG)
    model.fit_inputs(torch.randn(5, 3))
    save_vla_model(model, CONFIG, tmp_path / "model")
    return tmp_path / "model", model


def same(one: nn.Module, two: nn.Module) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_folder_gives_the_model_back_with_its_input_statistics(saved: tuple[Path, TinyVLA]) -> None:
    folder, model = saved
    back = load_vla_model(folder, TINY)
    assert isinstance(back, TinyVLA)
    assert same(back, model)


def test_file_is_a_state_dict(saved: tuple[Path, TinyVLA], tmp_path: Path) -> None:
    torch.save(saved[1].state_dict(), tmp_path / "x.pt")
    for path in (tmp_path / "x.pt", saved[0] / "model.safetensors"):
        assert same(load_vla_model(path, TINY, CONFIG), saved[1])


def test_checkpoint_of_a_training_gives_its_policys_model(saved: tuple[Path, TinyVLA], tmp_path: Path) -> None:
    policy = VLAPolicy(saved[1], CONFIG)
    torch.save({"policy": policy.state_dict(), "global_step": 5}, tmp_path / "run_step_5.pt")
    assert same(load_vla_model(tmp_path / "run_step_5.pt", TINY, CONFIG), saved[1])


def test_users_class_is_built_by_keyword(user_module: str) -> None:
    model = load_vla_model(None, "users_vla.UserVLA", {"size": 4})
    assert isinstance(model, UserVLA)
    assert model.net.weight.shape == (2, 4)


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("code was run",))

    torch.save({"weight": Evil()}, tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError):
        load_vla_model(tmp_path / "x.pt", TINY, CONFIG)


def test_weights_of_another_model_are_refused_with_what_differs(saved: tuple[Path, TinyVLA]) -> None:
    with pytest.raises(RuntimeError, match="size mismatch for places"):
        load_vla_model(saved[0], TINY, {"width": 16})


def test_broken_folders_are_named(saved: tuple[Path, TinyVLA]) -> None:
    folder, _ = saved
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has neither model\.safetensors nor pytorch_model\.pt"):
        load_vla_model(folder, TINY)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        load_vla_model(folder, TINY)


@pytest.mark.parametrize("path", ["outputs/none/", "a/b/c", "none.pt", "owner/model"])
def test_path_that_is_not_there_says_what_a_model_may_be(path: str) -> None:
    with pytest.raises(ConfigError, match=r"no such folder or file: .* owner/name@revision"):
        load_vla_model(path, TINY, CONFIG)


def test_hub_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs huggingface_hub: .*pip install .*'huggingface_hub"):
        load_vla_model("owner/model@main", TINY, CONFIG)


def test_hub_repository_is_read_as_a_folder(saved: tuple[Path, TinyVLA], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    library = ModuleType("huggingface_hub")

    def snapshot_download(repo: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((repo, revision))
        return str(saved[0])

    library.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert same(load_vla_model("owner/model@abc123", TINY), saved[1])
    assert asked == [("owner/model", "abc123")]


def test_class_in_a_module_that_is_not_imported_is_not_imported() -> None:
    with pytest.raises(ConfigError, match=r"module 'antigravity' of 'antigravity\.VLA' is not imported"):
        load_vla_model(None, "antigravity.VLA")
    assert "antigravity" not in sys.modules


def test_wrong_class_names_are_explained(user_module: str) -> None:
    with pytest.raises(ConfigError, match="there is no model 'TinyVLAA'"):
        load_vla_model(None, TINY + "A")
    with pytest.raises(ConfigError, match=r"users_vla\.Incomplete has no evaluate_actions"):
        load_vla_model(None, "users_vla.Incomplete")


def test_config_alone_does_not_choose_the_models_code(user_module: str) -> None:
    block = {"name": "vla", "vla_config": {"model_class": "users_vla.UserVLA"}}
    with pytest.raises(
        ConfigError, match=r"policy\.vla_config\.model_class: 'users_vla\.UserVLA' is in a module that is not"
    ):
        parse_policy_block(block)
    parse_policy_block(block, ["users_vla"])
