"""Policies of users: the guide's, and some that torch cannot trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.distributions import Distribution

from embodichain.agents.rl.models import Policy
from embodichain.ext.export.formats import FORMATS
from embodichain.ext.export.module import DeployedPolicy
from embodichain.ext.export.parity import check_parity
from embodichain.tools.steps import record_steps
from embodichain.utils.errors import CommandFailedError
from tests.ext.export.test_parity import ACTIONS, SPACE, RandomEnv
from tests.pages import REPOSITORY, files_of

pytest.importorskip("onnxscript")

GUIDE = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")
ENTRIES = ["robot/qpos", "robot/qvel", "task/hidden"]


@pytest.fixture
def shared_trunk(monkeypatch: pytest.MonkeyPatch) -> type[Policy]:
    """Return the guide's policy, which is registered for this test alone."""
    monkeypatch.setattr("embodichain.agents.rl.models.register_policy", lambda name: lambda policy: policy)
    names: dict[str, Any] = {"__name__": "shared_trunk"}
    exec(files_of(GUIDE)["my_lab/shared_trunk.py"], names)
    return names["SharedTrunk"]


def build(policy_class: Any) -> Policy:
    torch.manual_seed(0)
    return policy_class(9, 3, torch.device("cpu"), {}).eval()


def write(policy: Policy, file_format: str, folder: Path) -> tuple[DeployedPolicy, Path]:
    module = DeployedPolicy(policy, SPACE, ENTRIES, ACTIONS, []).eval()
    path = folder / f"policy{FORMATS[file_format].suffix}"
    FORMATS[file_format].write(module, {"inputs": ENTRIES, "outputs": module.outputs}, path)
    return module, path


@pytest.mark.parametrize("file_format", list(FORMATS))
def test_policy_of_the_guide_is_exported(file_format: str, shared_trunk: type[Policy], tmp_path: Path) -> None:
    policy = build(shared_trunk)
    env: Any = RandomEnv()
    steps = record_steps(env, policy, torch.device("cpu"), ENTRIES, 100, seed=0)
    module, path = write(policy, file_format, tmp_path)
    assert check_parity(FORMATS[file_format].load(path), module, steps) <= 1e-5
    with pytest.raises(ValueError, match="invalid values"):  # the arguments of distributions are checked again
        torch.distributions.Normal(torch.zeros(1), -torch.ones(1))


@pytest.mark.parametrize("file_format", ["onnx"])
@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (lambda obs: 2.0 if obs.sum() > 0 else 1.0, "Could not guard on data-dependent expression"),
        (lambda obs: float((obs.sum() > 0).item()), "SymBool"),
        (lambda obs: torch.from_numpy(obs.numpy()), "numpy"),
    ],
    ids=["branch", "number", "numpy"],
)
def test_policy_that_cannot_be_traced_is_one_line(
    file_format: str,
    scale: Any,
    reason: str,
    shared_trunk: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Branching(shared_trunk):
        """Depends on the values of the observation in a way that no graph has."""

        def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
            td["obs"] = td["obs"] * scale(td["obs"])
            return super().forward(td, deterministic)

    with pytest.raises(CommandFailedError) as caught:
        write(build(Branching), file_format, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"--format {file_format}: torch cannot trace Branching.forward: ")
    assert reason in message
    assert len(message.splitlines()) == 1
    assert capfd.readouterr().err == ""
    assert Distribution._validate_args
