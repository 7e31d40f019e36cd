"""An exported policy on a robot in plain MuJoCo does what the policy does in its environment."""

import json
import os
import re
import subprocess
import sys
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
from embodichain.ext.export.run import export_run, without_sensor_models
from embodichain.lab.gym import registry
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.locomotion_observations import last_action
from embodichain.lab.gym.envs.managers.measurements import Recipe, deployed_as, recipe_of
from embodichain.lab.gym.registry import register_env
from embodichain.tools.policy import ParityError
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import tiny_config, write_config
from tests.ext.export.scripts import load_script
from tests.lab.legs import GO2_OBSERVED
from tests.pages import REPOSITORY

pytest.importorskip("onnxscript")

ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
STEPS = 1000
# Largest difference as a part of the largest value. Observations, actions and targets are float32: 1e-7 of them is
# rounding. Of a target of 1.7 rad it is 1.2e-7 rad, which the drive's 35 Nm/rad and the joint's 0.01 kg m^2 make up to
# 8e-6 rad/s in a control step of 0.02 s, at velocities of 3 to 6 rad/s. Largest of seven seeds: 1.1e-7, 1.0e-7, 6e-8,
# 1.1e-7, 4.4e-7, 1.4e-6, 9.1e-7.
BOUNDS = {
    "targets": 3e-7,
    "base position": 3e-7,
    "base rotation": 3e-7,
    "joint positions": 3e-7,
    "base velocity": 1e-6,
    "base turn rate": 2e-6,
    "joint velocities": 2e-6,
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run, of random weights, with the exported policy in ``export``."""
    folder = tmp_path_factory.mktemp("legs")
    (folder / "env.json").write_text(json.dumps(GO2_OBSERVED), encoding="utf-8")
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [16], "activation": "elu"}}
    config = tiny_config(
        trainer__gym_config=str(folder / "env.json"),
        trainer__iterations=1,
        trainer__enable_eval=False,
        policy__actor=network,
        policy__critic=network,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["--config", write_config(folder, config)]) == 0
        (run,) = (folder / "outputs").iterdir()
        export_run(str(run), None, 16, 2, ())
    return run


def test_thousand_closed_loop_steps_are_those_of_the_environment(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, folder = runner_of(exported), exported / "export"
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(folder / "policy_runner.py"))
    script = load_script(folder / "mujoco_robot.py")
    own: list[dict[str, np.ndarray]] = []
    deployed: list[dict[str, np.ndarray]] = []
    with open_run(find_run(str(exported)), 1, change=without_sensor_models) as opened:
        env, policy = opened.env, opened.policy
        assert isinstance(env, EmbodiedEnv)
        obs, _ = env.reset(seed=3)
        robot = script.Robot(mujoco.MjModel.from_binary_path(str(folder / "scene.mjb")), runner.spec)
        copy_state(env, robot)
        for _ in range(STEPS):
            command = env.command_manager.get_command("base_velocity")[0].numpy()
            out = runner.act(robot.measure() | {"base_velocity": command})
            robot.apply(out["command"])
            with torch.no_grad():
                chosen = policy.get_action(policy_input(policy, obs, None, opened.device), deterministic=True)
            obs, *_ = env.step(chosen["action"])
            state = (env.robot.get_qpos_target(), env.sim.backend.qpos, env.sim.backend.qvel)
            own.append(parts(*(value[0].numpy() for value in state)))
            deployed.append(parts(out["command"], robot.data.qpos, robot.data.qvel))
    assert np.std([row["joint velocities"] for row in deployed]) > 0.2  # rad/s: the legs move
    for name, bound in BOUNDS.items():
        one, other = (np.array([row[name] for row in rows]) for rows in (own, deployed))
        assert np.abs(one - other).max() < bound * np.abs(other).max(), name


def runner_of(run: Path) -> Any:
    return load_script(run / "export/policy_runner.py").PolicyRunner(run / "export/policy.onnx")


def copy_state(env: EmbodiedEnv, robot: Any) -> None:
    backend: Any = env.sim.backend
    mujoco.mj_setState(robot.model, robot.data, backend._batch.state[0], mujoco.mjtState.mjSTATE_INTEGRATION)


def parts(targets: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, np.ndarray]:
    """Return copies of the quantities that are compared."""
    targets, qpos, qvel = (np.array(value, dtype=np.float64) for value in (targets, qpos, qvel))
    positions = {"base position": qpos[:3], "base rotation": qpos[3:7], "joint positions": qpos[7:]}
    velocities = {"base velocity": qvel[:3], "base turn rate": qvel[3:6], "joint velocities": qvel[6:]}
    return {"targets": targets, **positions, **velocities}


@pytest.mark.parametrize("step", ["0.05", "0.003"])
def test_time_step_that_does_not_divide_the_control_period_is_refused(
    step: str, exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(exported / "export/policy_runner.py"))
    script = load_script(exported / "export/mujoco_robot.py")
    monkeypatch.setattr(sys, "argv", ["mujoco_robot.py", "--timestep", step])
    with pytest.raises(SystemExit):
        script.main()
    assert "--timestep: a whole number of time steps must be the control period of 0.02 s" in capsys.readouterr().err


@pytest.mark.parametrize("servos", [None, SimpleNamespace(is_servo=np.zeros(12, bool))], ids=["drives", "play alone"])
def test_voltage_of_a_robot_without_servos_is_refused(
    servos: Any, exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(exported / "export/policy_runner.py"))
    script = load_script(exported / "export/mujoco_robot.py")
    monkeypatch.setattr(script, "Robot", lambda *_: SimpleNamespace(servos=servos))
    monkeypatch.setattr(sys, "argv", ["mujoco_robot.py", "--voltage", "7"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--voltage: no drive of the robot is a servo" in capsys.readouterr().err


STANDING: dict[str, Any] = {
    "base_lin_vel": [0.0] * 3,
    "base_ang_vel": [0.0] * 3,
    "projected_gravity": [0.0, 0.0, -1.0],
    "joint_pos": [0.1] * 12,
    "joint_vel": [0.0] * 12,
    "base_velocity": [0.5, 0.0, 0.0],
}


def test_specification_has_the_recipes_of_inputs(exported: Path) -> None:
    spec = json.loads((exported / "export/policy.json").read_text(encoding="utf-8"))
    inputs = {name: entry["from"] for name, entry in spec["inputs"].items()}
    initial = [drive["initial_position"] for drive in spec["drives"]]
    assert inputs["base/lin_vel"] == [{"measurement": "base_lin_vel"}]
    assert inputs["base/ang_vel"] == [{"measurement": "base_ang_vel"}]  # without the noise
    assert inputs["joints/pos"] == [{"measurement": "joint_pos"}, {"subtract": initial}, {"history": 3}]
    assert inputs["last_action"] == [{"last_action": True}, {"history": 2}]
    assert inputs["command"] == [{"measurement": "base_velocity"}]
    # 0.02 s x 1.5 strides in a second
    clock = {"command": "base_velocity", "cycles_per_step": pytest.approx(0.03), "standing_below": 0.1}
    assert inputs["phase"] == [{"gait_clock": clock}]
    assert set(spec["measurements"]) == set(STANDING)
    assert spec["measurements"]["joint_pos"]["components"] == [drive["name"] for drive in spec["drives"]]
    assert [joint["name"] for joint in spec["joints"]] == spec["measurements"]["joint_pos"]["components"]
    assert spec["joints"][0]["lowest_position"] == pytest.approx(-1.0472)
    assert spec["drives"][0] | {"stiffness": 35.0, "damping": pytest.approx(0.6)} == spec["drives"][0]
    assert [(part["offset"], part["factor"]) for part in spec["command"]] == [(start, 0.25) for start in initial]
    assert spec["command"][0]["low"] is None
    assert spec["control_period_s"] == pytest.approx(0.02)
    assert spec["action_terms"]["joints"]["params"]["delay"] == [1, 2]


def test_script_runs_the_policy_in_plain_mujoco(exported: Path) -> None:
    words = [sys.executable, "mujoco_robot.py", "--command", "0.5", "0", "0.1", "--seconds", "0.1"]
    done = subprocess.run(words, cwd=exported / "export", env=ALONE, capture_output=True, text=True, check=True)
    assert "base_velocity: [0.5, 0.0, 0.1]\n" in done.stdout
    assert re.search(r"base_lin_vel: \[.*\] on average", done.stdout)


@pytest.mark.parametrize("func", ["QfTerm", "DeltaQposTerm", "QposTerm"])
def test_script_and_fields_are_written_where_they_do_what_the_environment_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, func: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = GO2_OBSERVED["env"] | {"actions": {"joints": {"func": func, "params": {"scale": 0.1}}}}
    Path("env.json").write_text(json.dumps(GO2_OBSERVED | {"env": env}))
    config = tiny_config(trainer__gym_config="env.json", trainer__iterations=1, trainer__enable_eval=False)
    assert main(["--config", write_config(tmp_path, config)]) == 0
    (run,) = Path("outputs").iterdir()
    written = [file.name for file in export_run(str(run), None, 16, 2, ())["files"]]
    assert ("scene.mjb" in written) == ("mujoco_robot.py" in written) == (func == "QposTerm")
    # Other runtimes add the action to the initial position.
    fields = runner_of(run).session.get_modelmeta().custom_metadata_map
    assert "action_scale" not in fields


def test_second_policy_does_not_take_the_scene_of_the_first(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "zero.onnx").touch()  # of no scene
    export_run(str(exported), tmp_path / "one.onnx", 16, 2, ())
    (tmp_path / "zero.onnx").unlink()
    with pytest.raises(ConfigError, match=r"two\.onnx: one\.onnx is there, for which the folder's scene\.mjb is"):
        export_run(str(exported), tmp_path / "two.onnx", 16, 2, ())


def test_file_has_the_fields_that_other_runtimes_read(exported: Path) -> None:
    runner = runner_of(exported)
    fields, drives = runner.session.get_modelmeta().custom_metadata_map, runner.spec["drives"]
    assert fields["joint_names"].split(",") == [drive["name"] for drive in drives]
    assert [float(x) for x in fields["default_joint_pos"].split(",")] == [drive["initial_position"] for drive in drives]
    assert [float(x) for x in fields["joint_stiffness"].split(",")] == [35.0] * 12
    assert [float(x) for x in fields["action_scale"].split(",")] == [0.25] * 12
    assert fields["observation_names"].split(",") == list(runner.spec["inputs"])
    assert (fields["command_names"], fields["control_period"]) == ("base_velocity", "0.02")


def test_rows_begin_episodes_of_their_own(exported: Path) -> None:
    pair, first, second = (runner_of(exported) for _ in range(3))
    turned = {name: 2 * np.array(value) for name, value in STANDING.items()}
    both = {name: np.stack((value, turned[name])) for name, value in STANDING.items()}
    for step in range(5):
        if step == 3:
            pair.reset(np.array([False, True]))
            second.reset()
        commands = pair.act(both)["command"]
        assert commands[0] == pytest.approx(first.act(STANDING)["command"], abs=1e-6)
        assert commands[1] == pytest.approx(second.act(turned)["command"], abs=1e-6)


class Stub:
    """A robot's software, as the page has it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.names = [drive["name"] for drive in spec["drives"]]
        self.targets: Any = None

    def estimated_velocity(self) -> list[float]:
        return [0.0] * 3

    gyroscope = estimated_velocity

    def gravity(self) -> list[float]:
        return [0.0, 0.0, -1.0]

    def positions(self, names: list[str]) -> list[float]:
        assert names == self.names
        return [0.1] * 12

    def velocities(self, names: list[str]) -> list[float]:
        return [0.0] * 12

    def set_targets(self, names: list[str], targets: np.ndarray) -> None:
        self.targets = targets


def test_page_drives_a_robot(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs/watching.md").read_text(encoding="utf-8").partition("\n## Export\n")[2]
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(exported / "export")
    monkeypatch.setitem(sys.modules, "policy_runner", load_script(exported / "export/policy_runner.py"))
    page_names: dict[str, Any] = {}
    exec(snippets[1], page_names)
    robot = Stub(page_names["policy"].spec)
    page_names["control_step"](robot, [0.5, 0.0, 0.0])
    assert robot.targets == pytest.approx(runner_of(exported).act(STANDING)["command"])
    exec(snippets[2], page_names)
    env: Any = SimpleNamespace(temperatures=torch.ones(1, 2))
    recipe = recipe_of(env, page_names["motor_temperature"], {})
    assert recipe is not None
    assert recipe.steps == [{"measurement": "motor_temperature"}]
    assert recipe.measurements[0].read().tolist() == [[1.0, 1.0]]


def test_wrong_recipe_of_an_input_is_found(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = deployed_as(lambda env: Recipe([{"last_action": True}, {"subtract": [0.5] * 12}]))
    monkeypatch.setattr(last_action, "recipe", vars(wrong(lambda env: None))["recipe"])
    with pytest.raises(ParityError, match=r"step 0 of 2: 'last_action' computed from raw measurements differs .* 0\.5"):
        export_run(str(exported), exported / "wrong.onnx", 4, 2, ())
    for name in ("wrong.onnx", "mujoco_robot.py", "scene.mjb"):
        assert not (exported / name).exists()


LINK = '<geom size=".03" fromto="0 0 0 0 0 -.3" type="capsule"/>'
MOTORS = f"""<mujoco><compiler angle="radian"/><worldbody>
    <body name="one" pos="0 0 1"><joint name="j1" axis="0 1 0" damping=".5"/>{LINK}
    <body name="two" pos="0 0 -.3"><joint name="j2" axis="0 1 0" damping=".5"/>{LINK}</body></body></worldbody>
    <actuator><motor joint="j1" gear="10" ctrlrange="-.2 .4"/><motor joint="j2" ctrlrange="-1 1"/>
    </actuator></mujoco>"""
DELAY = 2  # control steps


@pytest.mark.e2e
def test_arm_of_a_file_moves_as_in_plain_mujoco_with_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))  # and take the task away again
    register_env("FileArmRL", max_episode_steps=10_000, override=True)(EmbodiedEnv)
    Path("arm.xml").write_text(MOTORS, encoding="utf-8")
    joints = {"func": "JointPositionTerm", "params": {"scale": 2.0, "delay": [DELAY, DELAY]}}
    env_config = {
        "id": "FileArmRL",
        "env": {
            "sim_cfg": {"physics_dt": 0.005},
            "sim_steps_per_control": 4,
            "actions": {"joints": joints},
            "rewards": {"slow": {"func": "joint_vel_l2", "weight": -1.0}},
        },
        "robot": {"uid": "arm", "fpath": "arm.xml", "drive_pros": {"stiffness": 40.0, "damping": 0.5}},
    }
    Path("env.json").write_text(json.dumps(env_config), encoding="utf-8")
    changes = {"trainer__gym_config": "env.json", "trainer__iterations": 1, "trainer__enable_eval": False}
    assert main(["--config", write_config(tmp_path, tiny_config(**changes, policy__init_log_std=0.5))]) == 0
    (run,) = Path("outputs").iterdir()
    export_run(str(run), None, 16, 2, ())
    runner = runner_of(run)

    spec = mujoco.MjSpec.from_file("arm.xml")
    for motor in list(spec.actuators):
        spec.delete(motor)
    for drive in runner.spec["drives"]:
        actuator = spec.add_actuator(target=drive["name"], trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=drive["stiffness"], kv=drive["damping"])
        spec.joint(drive["name"]).actfrcrange = [drive["min_effort"], drive["max_effort"]]
    spec.option.timestep, spec.option.integrator = 0.005, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data, late = mujoco.MjData(model), [np.zeros(2)] * DELAY
    saturated = 0
    with open_run(find_run(str(run)), 1) as opened:
        env, policy = opened.env, opened.policy
        assert isinstance(env, EmbodiedEnv)
        obs, _ = env.reset(seed=3)
        for _ in range(500):
            effort = np.clip(40.0 * (data.ctrl - data.qpos) - 0.5 * data.qvel, *model.jnt_actfrcrange.T)
            measured = {"robot/qpos": data.qpos, "robot/qvel": data.qvel, "robot/qf": effort}
            late.append(runner({name: value.astype(np.float32) for name, value in measured.items()})["command"])
            data.ctrl[:] = late.pop(0)
            mujoco.mj_step(model, data, 4)
            saturated += int(np.isin(effort, model.jnt_actfrcrange).any())
            with torch.no_grad():
                action = policy.get_action(policy_input(policy, obs, None, opened.device), deterministic=True)["action"]
            obs, *_ = env.step(action)
            # rad: float32's rounding of observations and targets, which the drives at their limits amplify
            np.testing.assert_allclose(env.sim.backend.qpos[0].numpy(), data.qpos, atol=1e-3)
    assert saturated > 50
