"""Small terrains and a robot that can fall on them. Shapes: N environments."""

from pathlib import Path
from typing import Any

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.model.terrain import TerrainCfg
from embodichain.utils import from_dict

BALL = """
<mujoco>
  <worldbody>
    <body name="base">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="1"/>
      <body name="arm" pos="0 0 0.1">
        <joint name="turn" axis="0 0 1" range="-1 1" damping="0.1"/>
        <geom type="sphere" size="0.02" mass="0.1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
"""A ball that carries one joint."""

STAIRS: dict[str, Any] = {
    "kinds": [{"kind": "stairs", "height": [0.1, 0.2], "depth": 0.5}, {"kind": "rough", "amplitude": [0.02, 0.1]}],
    "num_levels": 3,
    "num_columns": 2,
    "cell_size": 4.0,
    "platform": 2.0,
    "border": 1.0,
    "resolution": 0.25,
}
"""Three levels of two kinds; the platforms of the stairs are at 2 steps of 0.1, 0.15 and 0.2 m."""


def terrain_cfg(**changes: Any) -> TerrainCfg:
    """Return the config of ``STAIRS``, changed, as it is read from a file."""
    return from_dict(TerrainCfg, STAIRS | changes, "terrain")


def ball_data(folder: Path, env: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """Return the config of the ball on the terrain in the file's format; its model is written into a folder."""
    path = folder / "ball.xml"
    path.write_text(BALL, encoding="utf-8")
    robot = {
        "uid": "ball",
        "fpath": str(path),
        "fix_base": False,
        "init_pos": [0.0, 0.1, 0.2],
        "drive_pros": {"stiffness": 0.01, "damping": 0.001},
    }
    actions = {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}}
    return {"robot": robot, "terrain": STAIRS, "env": {"actions": actions} | (env or {}), "num_envs": 8} | top


def ball_env(folder: Path, env: dict[str, Any] | None = None, **top: Any) -> EmbodiedEnv:
    """Build the ball's environment."""
    return EmbodiedEnv(config_to_cfg(ball_data(folder, env, **top)))
