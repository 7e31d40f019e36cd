"""A scene in one file for the tests, and environments of it. Shapes: N environments."""

from pathlib import Path
from typing import Any

from embodichain.lab.gym.envs import SceneEnv
from tests.lab.scenes import env_of

# A mass of 2 kg on a rail without friction, pushed by one motor of gear 4, and a pendulum that hangs on it.
RAIL = """
<mujoco>
  <option timestep="0.005" gravity="0 0 -2"/>
  <worldbody>
    <body name="cart" pos="0 0 1">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="2"/>
      <body name="pendulum">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="0.000001"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="4" ctrllimited="true" ctrlrange="-0.5 1"/></actuator>
</mujoco>
"""


def rail_file(folder: Path, text: str = RAIL) -> str:
    """Write the scene's file and return its path."""
    path = folder / "rail.xml"
    path.write_text(text)
    return str(path)


def rail_env(folder: Path, num_envs: int = 2, text: str = RAIL, **data: Any) -> SceneEnv:
    """Build the environment ``SceneRL`` of the scene."""
    env = env_of({"id": "SceneRL", "scene": rail_file(folder, text)} | data, num_envs)
    assert isinstance(env, SceneEnv)
    return env
