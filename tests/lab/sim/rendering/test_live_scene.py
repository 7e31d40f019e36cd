"""Environments in a page's scene; a recorder stands for viser."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.cfg import MarkerCfg, RigidObjectCfg
from embodichain.lab.sim.rendering.live_scene import LiveScene, places_in_grid
from embodichain.lab.sim.shapes import CubeCfg, SphereCfg
from tests.lab.scenes import simulate


class Node:
    """One thing in the scene; notes how often it was moved."""

    def __init__(self, scene: Recorder, name: str, **props: Any) -> None:
        self.scene, self.name, self.moves = scene, name, -2  # both parts of the first pose are no moves
        self.position, self.wxyz = np.zeros(3), np.array([1.0, 0, 0, 0])
        vars(self).update(props)
        scene.nodes[name] = self

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("position", "wxyz"):
            super().__setattr__("moves", self.moves + 1)

    def remove(self) -> None:
        del self.scene.nodes[self.name]


class Recorder:
    """Has viser's calls that are used."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def add_frame(self, name: str, **props: Any) -> Node:
        return Node(self, name, **props)

    def add_mesh_simple(self, name: str, vertices: np.ndarray, faces: np.ndarray, **props: Any) -> Node:
        return Node(self, name, vertices=vertices, faces=faces, **props)


def scene_of(sim: SimulationManager) -> tuple[LiveScene, dict[str, Node]]:
    recorder = Recorder()
    server = SimpleNamespace(scene=recorder, initial_camera=SimpleNamespace())
    return LiveScene(server, sim.backend, sim.appearance), recorder.nodes


@pytest.fixture
def sim() -> SimulationManager:
    box = RigidObjectCfg("box", shape=CubeCfg(size=(0.2, 0.4, 0.6)), init_pos=(1.0, 0.0, 0.3), rgba=(1, 0, 0, 1))
    goal = MarkerCfg("goal", shape=SphereCfg(radius=0.1), init_pos=(0.0, 1.0, 0.1), rgba=(0, 1, 0, 0.5))
    return simulate(box, goal, num_envs=3)


def body_frame(nodes: dict[str, Node], sim: SimulationManager, env_id: int, name: str) -> Node:
    return nodes[f"/env_{env_id}/body_{sim.backend.visual_model.body(name).id}"]


def test_environments_stand_in_rows_around_the_origin() -> None:
    # Three in rows of two, 2 m apart in x and 3 m in y.
    assert places_in_grid(3, (2.0, 3.0)).tolist() == [[-1, -1.5, 0], [1, -1.5, 0], [-1, 1.5, 0]]
    assert places_in_grid(1, (2.0, 3.0)).tolist() == [[0, 0, 0]]


def test_body_is_at_its_pose_in_its_environments_place(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    # What is seen reaches from (-0.1, -0.2) to (1.1, 1.1): with 0.6 m between neighbours, an environment takes 1.8 m in
    # x and 1.9 m in y, and has its middle at (0.5, 0.45). The second one's is at (0.9, -0.95).
    assert scene.places[1] == pytest.approx([0.9 - 0.5, -0.95 - 0.45, 0], abs=1e-6)
    assert nodes["/env_1"].position == pytest.approx(scene.places[1])
    pose = torch.tensor([[0.5, -0.25, 2.0, 0.0, 1.0, 0.0, 0.0]])
    sim.get_rigid_object("box").set_local_pose(pose, torch.tensor([1]))
    scene.update()
    box = body_frame(nodes, sim, 1, "box")
    assert box.position == pytest.approx([0.5, -0.25, 2.0])
    assert np.abs(box.wxyz) == pytest.approx([0, 1, 0, 0])
    assert body_frame(nodes, sim, 0, "box").position == pytest.approx([1, 0, 0.3])


def test_only_what_has_moved_is_sent(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    before = {name: node.moves for name, node in nodes.items()}
    scene.update()
    assert {name: node.moves for name, node in nodes.items()} == before
    sim.get_marker("goal").set_pos(torch.tensor([[0.0, 1.0, 0.1], [0.0, 1.0, 0.1], [0.0, 1.2, 0.1]]))
    scene.update()
    moved = {name for name, node in nodes.items() if node.moves != before[name]}
    assert moved == {body_frame(nodes, sim, 2, "goal").name}


def test_shapes_have_their_colours_and_sizes(sim: SimulationManager) -> None:
    _, nodes = scene_of(sim)
    box = nodes[f"{body_frame(nodes, sim, 0, 'box').name}/shape_0"]
    goal = nodes[f"{body_frame(nodes, sim, 0, 'goal').name}/shape_0"]
    props: Any = box
    assert (props.color, props.opacity) == ((255, 0, 0), None)
    assert props.vertices.max(axis=0) == pytest.approx([0.1, 0.2, 0.3])
    props = goal
    assert (props.color, props.opacity) == ((0, 255, 0), 0.5)


def test_new_colour_is_drawn_where_it_is_new(sim: SimulationManager) -> None:
    scene, nodes = scene_of(sim)
    before = dict(nodes)
    sim.appearance.set_color("box", torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([2]))
    scene.update()
    name = f"{body_frame(nodes, sim, 2, 'box').name}/shape_0"
    assert {key for key, node in nodes.items() if node is not before[key]} == {name}
    props: Any = nodes[name]
    assert props.color == (0, 0, 255)


def test_no_more_than_four_environments_are_shown() -> None:
    scene, nodes = scene_of(simulate(RigidObjectCfg("box", shape=CubeCfg()), num_envs=7))
    assert len(scene.places) == 4
    assert "/env_3" in nodes
    assert "/env_4" not in nodes
