"""``embodichain export`` and its runner, in an environment and in a process without torch."""

import io
import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.cli import main
from embodichain.ext.export import onnx_runner
from embodichain.ext.export import run as export
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.tools.policy import record_steps
from tests.ext.export.scripts import load_script
from tests.trained_run import GAINS

pytest.importorskip("onnxscript")

PAGE = Path(__file__).parents[3] / "docs/watching.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8").partition("\n## Export\n")[2], re.DOTALL)


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the exported policy of a copy of the run; not to be written into."""
    folder = tmp_path_factory.mktemp("exported")
    (run,) = Path(shutil.copytree(trained / "outputs", folder / "outputs")).iterdir()
    with redirect_stdout(io.StringIO()) as out:
        assert main(["export", str(run)]) == 0
    assert "parity     1000 observations" in out.getvalue()
    return run / "export" / "policy.onnx"


def test_runner_balances_the_pole(exported: Path) -> None:
    runner = load_script(exported.with_name("policy_runner.py")).PolicyRunner(exported)
    num_envs = 8
    successes = {}
    with open_run(find_run(str(exported.parents[1])), num_envs) as opened:
        env = opened.env
        assert isinstance(env, EmbodiedEnv)
        for name in ("runner", "nothing"):
            obs, _ = env.reset(seed=5)
            success, ended = torch.zeros(num_envs, dtype=torch.bool), torch.zeros(num_envs, dtype=torch.bool)
            while not ended.all():
                given = {f"robot/{key}": obs["robot", key].numpy() for key in ("qpos", "qvel", "qf")}
                action = runner(given)["action"] if name == "runner" else np.zeros((num_envs, 1), dtype=np.float32)
                obs, _, terminated, truncated, info = env.step(action)
                done = terminated | truncated
                success |= done & ~ended & info["success"]
                ended |= done
            successes[name] = success.float().mean().item()
    assert successes == {"runner": 1.0, "nothing": 0.0}


def test_specification_names_inputs_limits_and_commands(exported: Path) -> None:
    spec = json.loads(exported.with_suffix(".json").read_text(encoding="utf-8"))
    assert list(spec["inputs"]) == ["robot/qf", "robot/qpos", "robot/qvel"]
    assert spec["inputs"]["robot/qpos"]["terms"][0]["func"] == "normalize_robot_joint_data"
    assert spec["action"] == {"size": 1, "low": [-1.0], "high": [1.0]}
    (command,) = spec["command"]
    assert command["name"] == "slider_to_cart"
    assert command["meaning"] == "change of joint position, rad or m"
    assert spec["control_period_s"] == pytest.approx(0.04)


def test_file_names_no_path_of_this_machine(exported: Path) -> None:
    content = exported.read_bytes()
    assert str(Path(export.__file__).parent).encode() not in content
    assert str(exported.parent).encode() not in content


def test_one_observation_is_enough_and_mistakes_are_named(exported: Path) -> None:
    runner = onnx_runner.PolicyRunner(exported)
    obs: dict[str, Any] = {"robot/qpos": [0.0, 0.01], "robot/qvel": [0.1, -0.005], "robot/qf": [0.0, 0.0]}
    out = runner(obs)
    # -32 x 0.01 - 4 x -0.005 = -0.3; DeltaQposTerm has scale 0.1
    assert GAINS == [0.0, 0.0, 0.0, -32.0, 0.0, -4.0]
    assert out["action"] == pytest.approx([-0.3], abs=1e-6)
    assert out["command"] == pytest.approx([-0.03], abs=1e-6)
    assert runner(obs | {"robot/qpos": [0.0, 1.0]})["action"] == pytest.approx([-1.0])  # clipped
    assert runner.act(obs)["action"] == pytest.approx([-0.3], abs=1e-6)  # the pole has no limits to normalise by
    with pytest.raises(ValueError, match="'robot/qf' is missing in the observation"):
        runner({name: value for name, value in obs.items() if name != "robot/qf"})
    with pytest.raises(ValueError, match=r"'robot/qpos' must have the shape \[2\], got \[3\]"):
        runner(obs | {"robot/qpos": [0.0, 0.0, 0.0]})


def test_raw_joint_positions_are_normalised_by_the_runner(exported: Path) -> None:
    runner = onnx_runner.PolicyRunner(exported)
    measurements, slider = runner.spec["measurements"], runner.spec["joints"][0]
    assert measurements["robot/qpos"]["components"] == ["slider_to_cart", "cart_to_pole"]
    measured = {name: np.array([[slider["highest_position"], 0.3]]) for name in measurements}
    inputs = runner.builder(measured)
    np.testing.assert_allclose(inputs["robot/qpos"], [[1.0, 0.3]], rtol=1e-6)
    np.testing.assert_allclose(inputs["robot/qvel"], measured["robot/qvel"], rtol=1e-6)


def test_runner_refuses_images_of_other_numbers() -> None:
    rows, needed = onnx_runner._rows, {"image": {"shape": [2, 2, 3], "dtype": "uint8"}}
    given, is_single = rows({"image": np.full((2, 2, 3), 255, np.uint8)}, needed, "observation")
    assert (given["image"].max(), is_single) == (255, True)
    with pytest.raises(ValueError, match="'image' is an image of uint8, got float64"):
        rows({"image": np.ones((2, 2, 3))}, needed, "observation")


def test_runner_needs_numpy_and_onnx_runtime_alone(exported: Path) -> None:
    code = f"""
import sys
qpos, qvel, qf = [0, .01], [.1, -.005], [0, 0]
{SNIPPETS[0]}
print(round(float(out["action"][0]), 5), [m for m in ("torch", "embodichain") if m in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=exported.parent, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "-0.3 []\n", "")


def test_file_that_does_something_else_is_not_left_behind(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doubled(*args: Any, **kwargs: Any) -> list[object]:
        return [replace(step, action=2 * step.action) for step in record_steps(*args, **kwargs)]

    monkeypatch.setattr(export, "record_steps", doubled)
    assert main(["export", "latest", "--format", "onnx", "--observations", "16"]) == 1
    assert "the exported policy's action differs from the policy's" in capsys.readouterr().err
    assert list((run_folder / "export").iterdir()) == []


@pytest.mark.parametrize("name", ["policy_runner.py", "q.json"])
def test_another_ending_than_the_formats_is_refused(
    run_folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["export", "latest", "--out", name]) == 2
    assert capsys.readouterr().err == f"error: --out {name}: must end with .onnx for --format onnx\n"
    assert not Path(name).exists()


def test_files_of_an_earlier_export_alone_are_replaced(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", "latest", "--out", "my.onnx", "--observations", "8"]
    assert main(command) == main(command) == 0
    written = re.findall(r"written    (\S+)", capsys.readouterr().out)[-3:]
    for file in dict.fromkeys(written):
        ours = Path(file).read_bytes()
        Path(file).write_bytes(b"mine")
        assert main(command) == 2
        assert capsys.readouterr().err == (
            f"error: --out: {file}: exists and is not from an earlier export; choose another name or delete it\n"
        )
        assert Path(file).read_bytes() == b"mine"
        Path(file).write_bytes(ours)


def test_missing_extra_is_named(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", "latest", "--observations", "8"]) == 2
    assert "Install: uv pip install --python" in (err := capsys.readouterr().err)  # pip is missing, too
    assert "'onnx>=" in err


def builder(**recipes: list[dict[str, Any]]) -> Any:
    inputs = {name: {"from": recipe} for name, recipe in recipes.items()}
    return onnx_runner.ObservationBuilder({"inputs": inputs, "memory": None, "action": {"size": 1}})


def test_constants_are_subtracted_before_the_history_is_kept() -> None:
    build = builder(x=[{"measurement": "pos"}, {"subtract": [1.0, 2.0]}, {"history": 2}])
    seen = [build({"pos": np.array([[t, t], [2.0 * t, 0.0]])})["x"].tolist() for t in (1, 2, 3)]
    assert seen == [
        [[0, -1, 0, -1], [1, -2, 1, -2]],  # the first stands for those before it
        [[0, -1, 1, 0], [1, -2, 3, -2]],
        [[1, 0, 2, 1], [3, -2, 5, -2]],
    ]
    build.reset(np.array([0]))
    assert build({"pos": np.full((2, 2), 9.0)})["x"].tolist() == [[8, 7, 8, 7], [5, -2, 8, 7]]


def test_last_action_is_zero_where_an_episode_begins() -> None:
    build = builder(a=[{"last_action": True}])
    given = {"pos": np.zeros((2, 1))}
    assert build(given)["a"].tolist() == [[0], [0]]
    build.last_action = np.array([[3.0], [4.0]], dtype=np.float32)
    build.reset(np.array([False, True]))
    assert build(given)["a"].tolist() == [[3], [0]]


def test_gait_clock_turns_with_the_steps() -> None:
    clock = {"command": "go", "cycles_per_step": 0.25, "standing_below": 0.1}
    build = builder(phase=[{"gait_clock": clock}])
    given = {"go": np.array([[0.5, 0.0], [0.05, 0.05]])}
    seen = [build(given)["phase"] for _ in range(5)]
    # a quarter turn a step: (sin, cos)
    for value, expected in zip(seen, [(0, 1), (1, 0), (0, -1), (-1, 0), (0, 1)], strict=True):
        assert value[0] == pytest.approx(expected, abs=1e-6)
        assert value[1].tolist() == [0, 0]  # |(0.05, 0.05)| = 0.07


def test_step_of_a_later_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="'x': this runner does not know 'cubed'; export again"):
        builder(x=[{"cubed": True}])({"pos": np.zeros((1, 1))})
