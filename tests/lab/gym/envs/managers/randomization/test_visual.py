"""Shapes: N environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg
from embodichain.lab.gym.envs.managers.randomization import (
    randomize_camera_extrinsics,
    randomize_camera_intrinsics,
    randomize_emission_light,
    randomize_light,
    set_rigid_object_group_visual_material,
    set_rigid_object_visual_material,
)
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.sim.cfg import VisualMaterialCfg
from embodichain.lab.sim.sensors import Camera
from embodichain.utils import ConfigError
from tests.lab.scenes import BOX, cart_cfg

CAMERAS = [
    {"uid": "high", "extrinsics": {"eye": [2, 0, 1], "target": [0, 0, 1]}},
    {"uid": "wrist", "extrinsics": {"parent": "pole", "pos": [0, 0, 0.5]}},
]
LIGHT = {
    "direct": [{"uid": "lamp", "init_pos": [0, 0, 2], "intensity": 50}],
    "indirect": {"emission_light": {"intensity": 80}},
}
GROUP = {"uid": "pair", "rigid_objects": {n: {k: v for k, v in BOX.items() if k != "uid"} for n in ("a", "b")}}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> CartPoleEnv:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})  # nothing here needs an image
    return make()


def make(events: dict[str, Any] | None = None, num_envs: int = 4) -> CartPoleEnv:
    scene: dict[str, Any] = {"sensor": CAMERAS, "light": LIGHT, "rigid_object_group": [GROUP]}
    return CartPoleEnv(cart_cfg(num_envs, {"events": events or {}}, rigid_object=[BOX], **scene))


ONES = torch.tensor([1, 3])


def entity(uid: str) -> SceneEntityCfg:
    return SceneEntityCfg(uid)


def test_light_is_drawn_within_its_ranges(env: CartPoleEnv) -> None:
    randomize_light(
        env,
        ONES,
        entity("lamp"),
        ((-1, -1, 0), (1, 1, 0)),
        ((0.5, 0.5, 0.5), (1, 1, 1)),
        (50.0, 100.0),
        ((0.1, 0, 0), (0.2, 0, 0)),
    )
    pos, diffuse = (env.sim.appearance.read(name)[:, 0] for name in ("light_pos", "light_diffuse"))
    assert np.allclose(pos[[0, 2]], [0, 0, 2])
    assert np.allclose(diffuse[[0, 2]], 0.5)
    assert (pos[[1, 3], 2] == 2).all()
    assert (pos[1] != pos[3]).any()
    assert (abs(pos[[1, 3], :2]) <= 1).all()
    # colour of at least 0.5 at an intensity of at least 50 per cent
    assert (diffuse[[1, 3]] >= 0.25).all()
    assert len(np.unique(diffuse[[1, 3]])) > 2
    # around straight down: x of 0.1 to 0.2 beside 1
    assert (env.sim.appearance.read("light_dir")[[1, 3], 0, 0] > 0.09).all()


def test_ambient_light_is_drawn_around_the_configured_one(env: CartPoleEnv) -> None:
    randomize_emission_light(env, ONES, intensity_range=(160.0, 160.0))
    ambient = env.sim.appearance.read("headlight_ambient")
    assert np.allclose(ambient[[1, 3]], 2 * ambient[[0, 2]])
    randomize_emission_light(env, ONES, color_range=((1, 0, 0), (1, 0, 0)))
    assert np.allclose(env.sim.appearance.read("headlight_ambient")[1], [ambient[0, 0], 0, 0])


def test_lens_is_drawn_around_the_configured_one(env: CartPoleEnv) -> None:
    randomize_camera_intrinsics(env, ONES, entity("high"), focal_x_range=(-50, 50), cy_range=(5, 5))
    matrix = env.sim.get_sensor("high").get_intrinsics()
    assert matrix[0].tolist() == [[600, 0, 320], [0, 600, 240], [0, 0, 1]]
    assert 550 <= matrix[1, 0, 0] <= 650
    assert matrix[1, 0, 0] != matrix[3, 0, 0]
    assert matrix[1, 1].tolist() == [0, 600, 245]


def test_looking_camera_moves_its_eye_and_mounted_one_its_place(env: CartPoleEnv) -> None:
    high, wrist = env.sim.get_sensor("high"), env.sim.get_sensor("wrist")
    before = high.get_local_pose(to_matrix=True).clone()
    randomize_camera_extrinsics(env, ONES, entity("high"), eye_range=((0, 0, 0.5), (0, 0, 0.5)))
    pose = high.get_local_pose(to_matrix=True)
    assert torch.equal(pose[0], before[0])
    assert pose[1, :3, 3].tolist() == [2, 0, 1.5]
    # it still looks at (0, 0, 1): 0.5 down on 2 m
    assert (-pose[1, :3, 2]).tolist() == pytest.approx((np.array([-2, 0, -0.5]) / 4.25**0.5).tolist(), abs=1e-6)
    quarter = ((0.0, 0.0, 90.0), (0.0, 0.0, 90.0))
    randomize_camera_extrinsics(env, ONES, entity("wrist"), pos_range=((0.1, 0, 0), (0.1, 0, 0)), euler_range=quarter)
    pose = wrist.get_local_pose(to_matrix=True)
    assert pose[0, :3, 3].tolist() == pytest.approx([0, 0, 0.5])
    assert pose[1, :3, 3].tolist() == pytest.approx([0.1, 0, 0.5])
    assert torch.allclose(pose[1, :3, :3], torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]), atol=1e-6)


def rgba(env: CartPoleEnv, body: str) -> np.ndarray:
    model = env.sim.backend.visual_model
    geom = int(model.body(body).geomadr[0])
    return env.sim.appearance.read("geom_rgba")[:, geom]


def test_material_gives_bodies_and_groups_a_colour(env: CartPoleEnv) -> None:
    green = VisualMaterialCfg(base_color=(0, 1, 0))
    set_rigid_object_visual_material(env, ONES, entity("box"), green)
    assert rgba(env, "box")[1].tolist() == [0, 1, 0, 1]
    assert rgba(env, "box")[0].tolist() != [0, 1, 0, 1]
    set_rigid_object_group_visual_material(env, ONES, entity("pair"), VisualMaterialCfg(base_color=(1, 0, 0, 0.5)))
    assert rgba(env, "pair_a")[3].tolist() == rgba(env, "pair_b")[3].tolist() == [1, 0, 0, 0.5]


def test_colours_are_drawn_for_things_links_and_the_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})

    def event(uid: str, **params: Any) -> dict[str, Any]:
        return {"func": "randomize_visual_material", "params": {"entity_cfg": {"uid": uid} | params}}

    env = make({"a": event("box"), "b": event("Cart", link_names=["po.*"]), "c": event("default_plane")})
    slider = rgba(env, "Cart/slider").copy()
    env.reset(seed=1)
    for body in ("box", "Cart/pole", "world"):
        colors = rgba(env, body)
        assert len({tuple(color) for color in colors.tolist()}) == 4
        assert (colors[:, 3] == 1).all()
    assert np.array_equal(rgba(env, "Cart/slider"), slider)
    first = rgba(env, "box").copy()
    env.reset(seed=1)
    assert np.array_equal(rgba(env, "box"), first)


def test_link_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})
    params = {"entity_cfg": {"uid": "Cart", "link_names": ["pol"]}}
    with pytest.raises(ConfigError, match=r"entity_cfg\.link_names: unknown link 'pol'\. Did you mean 'pole'\?"):
        make({"a": {"func": "randomize_visual_material", "params": params}}).reset()


def test_textures_are_accepted_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Camera, "get_data", lambda self: {})
    params = {"entity_cfg": {"uid": "box"}, "texture_path": "CocoBackground/coco"}
    make({"a": {"func": "randomize_visual_material", "params": params}})
    assert "randomize_visual_material: without counterpart, not used: texture_path" in capsys.readouterr().err
