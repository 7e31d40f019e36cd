"""Actuators that drive no single joint: how actions set them, and how they begin. N = 2 environments."""

from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze, thaw
from tests.lab.scenes import env_of

# Two links; a muscle and a cable pull on both, and a motor drives the first. The thruster is on the second.
ARM = """
<mujoco>
  <worldbody><body name="upper" pos="0 0 1">
    <joint name="shoulder" axis="0 1 0" damping="0.1"/><geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02"/>
    <body name="lower" pos="0 0 -0.2">
      <joint name="elbow" axis="0 1 0" damping="0.1"/><geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02"/>
      <site name="tip" pos="0 0 -0.2"/>
    </body>
  </body></worldbody>
  <tendon><fixed name="both"><joint joint="shoulder" coef="0.03"/><joint joint="elbow" coef="0.02"/></fixed></tendon>
  <actuator>
    <muscle name="muscle" tendon="both" lengthrange="-0.05 0.05" ctrlrange="0 1"/>
    <motor name="motor" joint="shoulder"/>
    <motor name="cable" tendon="both"/>
    <motor name="thruster" site="tip" ctrlrange="-3 5"/>
  </actuator>
  <keyframe><key ctrl="0.5 0.1 2 1" act="0.25"/></keyframe>
</mujoco>
"""
ALL = {"func": "ActuatorTerm"}
POSITION = {"func": "QposTerm"}


def arm_env(folder: Path, actions: dict[str, Any], text: str = ARM, **scene: Any) -> EmbodiedEnv:
    path = folder / "arm.xml"
    path.write_text(text)
    robot = {"uid": "arm", "fpath": str(path), "drive_pros": {"stiffness": 0.1, "damping": 0.01}}
    env = env_of({"id": "RobotRL", "max_episode_steps": 9, "env": {"actions": actions}, "robot": robot, **scene}, 2)
    env.reset(seed=1)
    return env


def controls(env: EmbodiedEnv) -> dict[str, list[float]]:
    """Return each actuator's control in all environments, and the muscle's activation."""
    model, values = env.sim.model, env.sim.backend.read("ctrl").T.tolist()
    found = {model.actuator(i).name: values[i] for i in range(model.nu)}
    return found | {"activation": env.sim.backend.read("act")[:, 0].tolist()}


def test_controls_are_set_beside_joint_drives(tmp_path: Path) -> None:
    env = arm_env(tmp_path, {"joint": POSITION, "rest": ALL})
    env.step(torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 9.0, -7.0, 8.0]]))
    found = controls(env)
    assert found["arm/shoulder"] == pytest.approx([0.1, 0.5])
    assert found["arm/muscle"] == pytest.approx([0.2, 1.0])  # 9 is clipped to its ctrlrange
    assert found["arm/cable"] == pytest.approx([0.3, -7.0])  # which it has not
    assert found["arm/thruster"] == pytest.approx([0.4, 5.0])


def test_patterns_choose_actuators_of_several_terms(tmp_path: Path) -> None:
    one, two = ({**ALL, "params": {"actuators": names}} for names in (["thr.*"], ["cable", "muscle"]))
    env = arm_env(tmp_path, {"one": one, "two": two})
    maps = [term.command_map() for term in env.action_manager.terms.values()]
    assert [commands and commands.names for commands in maps] == [["thruster"], ["muscle", "cable"]]
    env.step(torch.tensor([[1.0, 0.5, 3.0], [2.0, 0.5, 4.0]]))
    assert controls(env)["arm/thruster"] == [1.0, 2.0]
    assert controls(env)["arm/cable"] == [3.0, 4.0]
    with pytest.raises(ConfigError, match=r"^env\.actions\.b: actuator 'thruster' is moved by 'a' already"):
        arm_env(tmp_path, {"a": one, "b": ALL})
    with pytest.raises(ConfigError, match=r"^env\.actions\.a\.params\.actuators: unknown actuator 'cabel'"):
        arm_env(tmp_path, {"a": {**ALL, "params": {"actuators": ["cabel"]}}})


def test_reset_restores_control_and_activation_of_keyframe(tmp_path: Path) -> None:
    env = arm_env(tmp_path, {"rest": ALL})
    start = controls(env)
    assert start["arm/muscle"] == [0.5, 0.5]
    assert start["arm/cable"] == [2.0, 2.0]
    assert start["activation"] == [0.25, 0.25]
    env.step(torch.ones(2, 3))
    assert controls(env)["activation"][0] > 0.3
    env.reset(seed=1)
    assert controls(env) == start


def test_resumed_environment_continues_with_its_activations(tmp_path: Path) -> None:
    env, other = (arm_env(tmp_path, {"rest": ALL}) for _ in range(2))
    env.step(torch.ones(2, 3))
    other.load_state_dict(thaw(freeze(env.state_dict())))
    assert controls(other) == controls(env)
    obs, again = (each.step(torch.zeros(2, 3))[0]["robot", "qpos"] for each in (env, other))
    assert torch.equal(obs, again)


def test_actuators_that_nothing_moves_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"uid": "other", "fpath": str(tmp_path / "arm.xml"), "init_pos": [1, 0, 0]}
    env = arm_env(tmp_path, {"joint": POSITION}, articulation=[other])
    lines = capsys.readouterr().err
    for owner in ("robot 'arm'", "articulation 'other'"):
        assert f"nothing moves the actuators muscle, cable, thruster of {owner}, which stay at their first c" in lines
    env.step(torch.ones(2, 1))
    assert controls(env)["arm/cable"] == [2.0, 2.0]


def test_robot_without_drives_refuses_terms_of_joints(tmp_path: Path) -> None:
    text = ARM.replace('<motor name="motor" joint="shoulder"/>', "").replace("0.5 0.1 2 1", "0.5 2 1")
    line = (
        r"^env\.actions\.j\.func: no joint of robot 'arm' has a drive for QposTerm; ActuatorTerm sets .* muscle, cable"
    )
    with pytest.raises(ConfigError, match=line):
        arm_env(tmp_path, {"j": POSITION}, text)
    assert arm_env(tmp_path, {"rest": ALL}, text).active_joint_ids == [0, 1]  # which the tendon moves


def test_robot_without_other_actuators_refuses_the_term(tmp_path: Path) -> None:
    text = ARM[: ARM.index("<tendon>")] + "</mujoco>"
    with pytest.raises(ConfigError, match=r"^env\.actions\.rest\.func: robot 'arm', less its drives, has no actuator"):
        arm_env(tmp_path, {"rest": ALL}, text)


def test_thrust_of_the_weight_holds_a_quadrotor_in_the_air() -> None:
    robot = {"uid": "drone", "fpath": "quadrotor", "fix_base": False}
    goal = {"func": "randomize_target_pose", "mode": "reset", "params": {"position_range": [[0, 0, 4], [0, 0, 4]]}}
    goal["params"]["store_key"] = "goal_pose"  # type: ignore[index]
    near = {"func": "distance_to_target", "params": {"source_entity_cfg": {"uid": "drone"}}}
    data: dict[str, Any] = {"actions": {"thrust": ALL}, "events": {"goal": goal}, "rewards": {"near": near}}
    config = {"id": "RobotRL", "max_episode_steps": 99, "env": data, "robot": robot}
    with pytest.raises(ConfigError, match=r"^env\.observations: .* needs at least one observation term"):
        env_of(config, 2)
    data["observations"] = {"gravity": {"func": "projected_gravity"}}
    env = env_of(config, 2)
    env.reset(seed=1)
    weight = 0.6 * 9.81
    for _ in range(25):
        reward = env.step(torch.full((2, 4), weight / 4))[1]
    assert env.robot.base.get()[:, 2].tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    assert reward.tolist() == pytest.approx([-3.0, -3.0], abs=1e-4)  # it is 3 m below its goal
