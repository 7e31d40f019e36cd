"""A terrain in images and in the live view. Its middle platform, at (0, -2), is at 0.3 m. Images are [N, H, W, ...]."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager, SimulationManagerCfg
from embodichain.lab.sim.rendering.live_scene import body_shapes, geom_looks, texture_colours
from embodichain.lab.sim.sensors import CameraCfg, ExtrinsicsCfg
from tests.lab.scenes import simulate
from tests.lab.sim.rendering.test_live_scene import Node, scene_of
from tests.lab.terrain_scenes import ball_env, terrain_cfg

needs_gl = pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")
needs_warp = pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is None, reason="needs the extra raytrace")


@pytest.mark.e2e
@pytest.mark.parametrize("enable_rt", [pytest.param(False, marks=needs_gl), pytest.param(True, marks=needs_warp)])
def test_images_from_above_have_the_terrains_heights(enable_rt: bool) -> None:
    sim = SimulationManager(SimulationManagerCfg(num_threads=1, enable_rt=enable_rt))
    sim.add_terrain(terrain_cfg())
    above = ExtrinsicsCfg(eye=(0.0, -2.0, 5.0), target=(0.0, -2.0, 0.0), up=(0.0, 1.0, 0.0))
    lens: dict[str, Any] = {"width": 48, "height": 48, "intrinsics": (60.0, 60.0, 24.0, 24.0), "far": 20.0}
    sim.add_sensor(CameraCfg("above", extrinsics=above, enable_depth=True, enable_mask=True, **lens))
    sim.build()
    images = sim.get_sensor("above").get_data()
    depth = images["depth"][0].squeeze(-1)
    offset = (torch.arange(48) + 0.5 - 24.0) / 60.0
    # x grows with the column, y against the row.
    xy = torch.stack((offset.expand(48, 48) * depth, -2.0 - offset[:, None].expand(48, 48) * depth), dim=-1)
    assert sim.terrain is not None
    error = (5.0 - depth - sim.terrain.height_at(xy)).abs()
    assert float(error.max()) < 0.02
    assert float(depth[24, 24]) == pytest.approx(4.7, abs=1e-3)
    assert (images["mask"] == 1).all()  # the ground
    sim.close()


def test_mesh_of_a_height_field_is_the_surface_that_the_engine_collides_with() -> None:
    sim = simulate(terrain=terrain_cfg(border=0.0, kinds=[{"kind": "rough", "amplitude": [0.1, 0.1]}]))
    assert sim.terrain is not None
    model = sim.backend.visual_model
    (shape,) = body_shapes(model, geom_looks(model, texture_colours(model)), {0}, np.zeros((2, 2)))[0]
    assert shape.faces.shape == (2 * 48 * 32, 3)
    corners = torch.from_numpy(shape.vertices)[torch.from_numpy(shape.faces.astype(np.int64))]  # [F, 3, 3]
    middles = corners.mean(dim=1)
    torch.testing.assert_close(sim.terrain.height_at(middles[:, :2]), middles[:, 2], atol=1e-5, rtol=0.0)
    normals = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (normals[:, 2] > 0).all()  # seen from above


def test_live_view_of_a_terrain_alone_has_its_ground() -> None:
    _, nodes = scene_of(simulate(terrain=terrain_cfg()))
    assert "/env_0/body_0/shape_0" in nodes


def test_live_view_has_one_terrain_with_all_robots_on_it(tmp_path: Path) -> None:
    env = ball_env(tmp_path, num_envs=3)
    env.reset()
    scene, nodes = scene_of(env.sim)
    body = mujoco.mj_name2id(env.sim.backend.visual_model, mujoco.mjtObj.mjOBJ_BODY, "ball/arm")

    def position(env_id: int) -> np.ndarray:
        robot: Node = nodes[f"/env_{env_id}/body_{body}"]
        return nodes[f"/env_{env_id}"].position + robot.position

    # The first robot is in the middle of the page; the others are on the same ground, as far from it as they are.
    assert position(0)[:2] == pytest.approx([0.0, 0.0], abs=0.2)
    offsets = env.robot.get_local_pose()[:, :3] - env.robot.get_local_pose()[:1, :3]
    for env_id in range(3):
        np.testing.assert_allclose(position(env_id) - position(0), offsets[env_id].numpy(), atol=1e-5)
    assert [name for name in nodes if "/body_0/shape" in name] == ["/env_0/body_0/shape_0"]
    assert len(scene.places) == 3
