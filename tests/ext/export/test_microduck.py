"""A policy for MicroDuck's software fulfils the published contract, written here from its text."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.models import policy_input
from embodichain.agents.rl.train import main
from embodichain.ext.export import microduck
from embodichain.ext.export.run import without_sensor_models
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.tools.policy import ParityError
from embodichain.utils import ConfigError, replace
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import tiny_config, write_config
from tests.ext.export.scripts import load_script
from tests.shipped import REPOSITORY

pytest.importorskip("onnxscript")

NAMES = (
    *("left_hip_yaw", "left_hip_roll", "left_hip_pitch", "left_knee", "left_ankle"),
    *("neck_pitch", "head_pitch", "head_yaw", "head_roll"),
    *("right_hip_yaw", "right_hip_roll", "right_hip_pitch", "right_knee", "right_ankle"),
)
HOME = [0, -0.0873, -0.4579, -0.0049, 0.4530, 0.3491, 0.3491, 0, 0, 0, 0.0873, 0.4579, 0.0049, -0.4530]

COMMANDS = ["twist", "head", "body"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with play, random weights, and the exported policy."""
    folder = tmp_path_factory.mktemp("duck")
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "elu"}}
    config = tiny_config(
        trainer__gym_config=str(REPOSITORY / "configs/agents/rl/microduck_flat/gym_config.json"),
        trainer__iterations=1,
        trainer__enable_eval=False,
        policy__actor=network,
        policy__critic=network,
        policy__obs_groups={"actor": ["policy/*"], "critic": ["*"]},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["--config", write_config(folder, config), "gym_config.robot.drive_pros.backlash=0.01"]) == 0
        (made,) = (folder / "outputs").iterdir()
        lines = microduck.export(str(made), None, 16, 2, ())
    assert [line.split()[0] for line in lines] == ["parity", "inputs", "measured", "outputs", *["written"] * 5]
    return made


@pytest.fixture(scope="module")
def folder(run: Path) -> Path:
    return run / "export/microduck"


def test_folder_has_one_file_of_onnx_a_manifest_and_a_card(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "manifest.json", "policy.onnx"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: onnx\n")
    assert "microduck-policy" in card
    assert "never run on a robot" in card


def test_graph_and_its_metadata_are_those_of_the_contract(folder: Path) -> None:
    import onnx  # noqa: PLC0415

    model = onnx.load(folder / "policy.onnx")
    (entry,), (out,) = model.graph.input, model.graph.output
    for value, name, size in ((entry, "obs", 61), (out, "actions", 14)):
        tensor = value.type.tensor_type
        assert value.name == name
        assert tensor.elem_type == onnx.TensorProto.FLOAT
        assert [dim.dim_value for dim in tensor.shape.dim] == [1, size]
    assert [opset.version for opset in model.opset_import if not opset.domain] == [18]
    (facts,) = [json.loads(prop.value) for prop in model.metadata_props if prop.key == "microduck"]
    assert facts["joint_names"] == list(NAMES)
    np.testing.assert_allclose(facts["default_joint_pos"], HOME, atol=1e-3)
    expected = {"schema_version": 1, "obs_len": 61, "action_len": 14, "control_hz": 50, "action_scale": 1, "kp_fw": 200}
    assert {key: facts[key] for key in expected} == expected
    assert facts["observation"] == [
        *(["base_ang_vel", 3], ["projected_gravity", 3], ["joint_pos", 14], ["joint_vel", 14], ["actions", 14]),
        *(["command", 3], ["head_command", 4], ["body_command", 6]),
    ]


def test_manifest_has_the_fields_of_schema_2(folder: Path) -> None:
    manifest = load_json(folder / "manifest.json")
    expected = {"schema_version": 2, "model_api": 1, "obs_len": 61, "action_len": 14, "kind": "perpetual"}
    assert {key: manifest[key] for key in expected} == expected
    assert manifest["robot"] == {"model": "microduck", "hw_rev": 1, "servos": "xl330", "control_hz": 50}
    assert manifest["slot"] == "walk"
    assert "duration_s" not in manifest  # a gait has no end of its own
    assert re.fullmatch(r"[a-z0-9-]+", manifest["name"])
    assert manifest["command"]["encoding"] == "constant"
    assert manifest["command"]["idle"] == [0, 0, 0]
    assert manifest["training"]["task_id"] == "MicroDuckFlatRL"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", manifest["training"]["exported"])


@pytest.mark.parametrize(("end", "play"), [("", 0.0), ("_play", 0.0175)])
def test_plain_mujoco_with_servos_is_the_environment(
    run: Path, end: str, play: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run / f"export/microduck_rehearsal{end}"
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(folder / "policy_runner.py"))
    monkeypatch.syspath_prepend(str(folder))
    script = load_script(folder / "mujoco_robot.py")
    runner = load_script(folder / "policy_runner.py").PolicyRunner(folder / "exported.onnx")
    flat = load_script(folder / "policy_runner.py").PolicyRunner(run / "export/microduck/policy.onnx", runner.spec)

    def change(cfg: TaskCfg) -> TaskCfg:
        return replace(without_sensor_models(cfg), events={})

    overrides = [f"robot.drive_pros.backlash={play}"]
    with open_run(find_run(str(run)), 1, overrides=overrides, change=change) as opened:
        env, policy = opened.env, opened.policy
        assert isinstance(env, EmbodiedEnv)
        obs, _ = env.reset(seed=3)
        robot = script.Robot(mujoco.MjModel.from_binary_path(str(folder / "scene.mjb")), runner.spec)
        np.testing.assert_allclose(robot.data.ctrl[robot._actuators], robot.measure()["joint_pos"], atol=1e-6)
        backend: Any = env.sim.backend
        backend.servos.delay[:] = robot.servos.delay[:] = 5
        mujoco.mj_setState(robot.model, robot.data, backend._batch.state[0], mujoco.mjtState.mjSTATE_INTEGRATION)
        robot.servos.reset(np.zeros(1, int))
        steps = 0
        while steps < 50:
            commands = {
                name: env.command_manager.get_command(name)[0].numpy() for name in runner.spec["mujoco"]["commands"]
            }
            robot.apply(np.array(HOME) + flat.act(robot.measure() | commands)["action"])
            with torch.no_grad():
                chosen = policy.get_action(policy_input(policy, obs, None, opened.device), deterministic=True)
            obs, _, terminated, *_ = env.step(chosen["action"])
            if terminated.any():
                break
            np.testing.assert_allclose(robot.data.qpos, backend.qpos[0], atol=2e-5)
            steps += 1
        assert steps > 10
        assert np.abs(robot.data.qvel[6:]).max() > 0.1


def rehearse(run: Path, end: str, *words: str) -> str:
    """Return what the script prints after 0.4 s, or episodes, with two policies in turn."""
    policy = str(run / "export/microduck/policy.onnx")
    script = str(run / f"export/microduck_rehearsal{end}/mujoco_robot.py")
    command = [sys.executable, script, "--policies", policy, policy]
    command += ["--seconds", "0.4", "--command", "0.2", "0", "0", "--lag", "joint_vel", *words]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=alone).stdout


def test_script_swaps_policies_at_half_the_time_step_and_low_voltage(run: Path) -> None:
    out = rehearse(run, "", "--timestep", "0.0025", "--voltage", "6.5", "--late", "0.02")
    assert "base_velocity: [0.2, 0.0, 0.0]" in out
    assert re.search(r"^base_lin_vel: .* on average$", out, flags=re.MULTILINE)
    (error,) = re.findall(r"^velocity error (0\.\d{3}) m/s until a fall, falls 0 of 1$", out, flags=re.MULTILINE)
    assert 0.1 < float(error) < 0.4  # random weights stand, more or less


def test_script_repeats_the_same_episodes(run: Path) -> None:
    one, again = (rehearse(run, "_play", "--episodes", "3") for _ in range(2))
    assert one == again
    assert re.search(r"^velocity error 0\.\d{3} m/s until a fall, falls 0 of 3$", one, flags=re.MULTILINE)


def test_keys_of_the_viewer_change_the_velocity_command(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run / "export/microduck_rehearsal"
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(folder / "policy_runner.py"))
    script, command = load_script(folder / "mujoco_robot.py"), np.zeros(3)
    for key in (265, 265, 264, 263, 263, 262, 44, 44, 46, 300):
        script.press(command, key)
    np.testing.assert_allclose(command, [0.1, 0.1, 0.1])


def spec() -> dict[str, Any]:
    """A specification that fulfils the contract."""
    names = ("base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "twist", "head", "body")
    recipes: list[Any] = [[{"measurement": name}] for name in names]
    recipes[2].append({"subtract": HOME})
    recipes.insert(4, [{"last_action": True}])
    inputs = zip(recipes, (3, 3, 14, 14, 14, 3, 4, 6), strict=True)
    return {
        "inputs": {str(i): {"shape": [size], "from": recipe} for i, (recipe, size) in enumerate(inputs)},
        "drives": [{"name": name, "initial_position": home} for name, home in zip(NAMES, HOME, strict=True)],
        "command": [{"name": name, "factor": 1.0, "offset": home} for name, home in zip(NAMES, HOME, strict=True)],
        "control_period_s": 0.02,
        "memory": None,
    }


def swapped(value: dict[str, Any]) -> None:
    value["drives"][0], value["drives"][1] = value["drives"][1], value["drives"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped, "joints must be"),
        (lambda value: value["drives"][4].update(initial_position=0.44), r"home pose, rad must be \[0.0, -0.087"),
        (lambda value: value["inputs"].popitem(), "sizes of the inputs must be"),
        (lambda value: value["inputs"]["0"].update({"from": [{"measurement": "joint_pos"}]}), "first inputs must be"),
        (lambda value: value["inputs"]["2"]["from"].pop(), "first inputs must be"),  # the home pose is not subtracted
        (lambda value: value["inputs"]["3"]["from"].append({"subtract": HOME}), "first inputs must be"),
        (
            lambda value: value["inputs"]["5"].update({"from": [{"measurement": "base_lin_vel"}]}),
            "other inputs, commands",
        ),
        (lambda value: value["command"][0].update(offset=1.23), "targets of action 0, rad must be"),
        (lambda value: value.update(control_period_s=0.01), "control period, s must be 0.02, got 0.01"),
        (lambda value: value["command"][3].update(factor=0.5), "scales of the action must be 1, got 2"),
        (lambda value: value.update(memory="state"), "memory must be None, got state"),
    ],
)
def test_what_is_not_microducks_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    microduck.check_contract(spec(), COMMANDS)
    changed = spec()
    change(changed)
    with pytest.raises(ConfigError, match=f"--format microduck: {message}"):
        microduck.check_contract(changed, COMMANDS)


def test_servos_of_another_kind_are_refused() -> None:
    config = {"gym_config": {"robot": {"drive_pros": {"servo": "sts3215"}}}}
    with pytest.raises(ConfigError, match="--format microduck: the servos must be xl330, got sts3215"):
        microduck.metadata(spec(), SimpleNamespace(content={"config": config}))  # type: ignore[arg-type]


def test_file_that_acts_otherwise_is_refused(folder: Path) -> None:
    from embodichain.tools.policy import Step  # noqa: PLC0415

    names = ("1_ang_vel", "2_gravity", "3_joint_pos", "4_joint_vel", "5_action", "6_twist", "7_head", "8_body")
    sizes = dict(zip((f"policy/{name}" for name in names), (3, 3, 14, 14, 14, 3, 4, 6), strict=True))
    inputs = {name: np.zeros((2, size), np.float32) for name, size in sizes.items()}
    described = {name: ((size,), torch.float32) for name, size in sizes.items()}
    module: Any = SimpleNamespace(inputs=described, memory=None)
    step = Step(inputs, np.full((2, 14), 9.0), np.zeros(2, bool))
    with pytest.raises(ParityError, match="action differs from the policy's by"):
        microduck.check_file(folder / "policy.onnx", module, [step])
