"""The JSON Schemas: they accept what is right, refuse mistakes, and complete what can be completed."""

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from embodichain.cli import main
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES
from embodichain.schema import SCHEMAS, env_schema
from embodichain.utils.module_utils import public_names
from embodichain.utils.utility import load_json
from tests.lab.originals import CART_POLE, CART_POLE_TRAIN_GRPO, PUSH_CUBE, PUSH_CUBE_TRAIN

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / "configs/schema"
SHIPPED = sorted(REPOSITORY.glob("configs/agents/**/*.json"))


def kind_of(path: Path) -> str:
    return "train" if path.name.startswith("train_config") else "env"


def errors(kind: str, data: Any) -> list[str]:
    """Return the JSON paths of the parts that the schema refuses."""
    return [error.json_path for error in validator(kind).iter_errors(data)]


@cache
def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMAS[kind]())


@pytest.mark.e2e
@pytest.mark.parametrize("kind", SCHEMAS)
def test_command_writes_a_valid_schema(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "schema.json"
    assert main(["schema", "--kind", kind, "--out", str(out)]) == 0
    Draft202012Validator.check_schema(load_json(out))


def test_without_a_file_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Training config"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_config_names_its_schema_and_fits_it(path: Path) -> None:
    data = load_json(path)
    assert (path.parent / data["$schema"]).resolve() == FOLDER / f"{kind_of(path)}.schema.json"
    assert errors(kind_of(path), data) == []


@pytest.mark.parametrize("original", [PUSH_CUBE, CART_POLE])
def test_environment_config_of_the_original_system_fits(original: dict[str, Any]) -> None:
    assert errors("env", original) == []


@pytest.mark.parametrize("original", [PUSH_CUBE_TRAIN, CART_POLE_TRAIN_GRPO])
def test_training_config_of_the_original_system_fits(original: dict[str, Any]) -> None:
    assert errors("train", original) == []


def change(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with the value at a dotted path."""
    data = node = copy.deepcopy(data)
    *blocks, key = path.split(".")
    for block in blocks:
        node = node[block]
    node[key] = value
    return data


@pytest.mark.ext
@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("train", "trainr", {}),
        ("train", "trainer.num_evns", 3),
        ("train", "trainer.num_envs", "64"),
        ("train", "trainer.num_envs", 0),
        ("train", "trainer.headless", 1),
        ("train", "trainer.model_type", "other"),
        ("train", "trainer.events.evaluation", {}),
        ("train", "trainer.events.eval.record_camera.func", "record_camera"),
        ("train", "trainer.events.eval.record_camera.params.eye", [1, 2]),
        ("train", "policy.actors", {}),
        ("train", "policy.actor.network_cfg.activation", "rellu"),
        ("train", "policy.actor.network_cfg.hidden_sizes", [64, -1]),
        ("train", "algorithm.cfg.gama", 0.9),
        ("train", "algorithm.cfg.gamma", 1.5),
        ("env", "rigid_objects", []),
        ("env", "sensor", [{}]),
        ("env", "env.evnts", {}),
        ("env", "env.sim_steps_per_control", 0),
        ("env", "env.rewards.reach.func", "reaching"),
        ("env", "env.rewards.reach.wieght", 1),
        ("env", "env.rewards.reach.params.behind_ofset", 1),
        ("env", "env.rewards.reach.params.behind_offset", "1"),
        ("env", "env.rewards.reach.params", {}),
        ("env", "env.actions.delta_qpos.params.scale", -0.1),
        ("env", "env.commands", {"walk": {"func": "UniformCommand", "params": {"ranges": {}, "zero_shar": 0.1}}}),
        ("env", "env.events.place_cube.params.entity_cfg", {"uids": "cube"}),
        ("env", "robot.urdf_cfg.components", [{"component_type": "leg", "urdf_path": "x"}]),
        ("env", "kwargs", {}),
        ("env", "id", "gymnasium:Pendulum-v1"),
    ],
)
def test_mistake_does_not_fit(kind: str, path: str, value: Any) -> None:
    assert errors(kind, change(PUSH_CUBE_TRAIN if kind == "train" else PUSH_CUBE, path, value))


@pytest.mark.ext
@pytest.mark.parametrize("key", ["env", "robot", "kwarg", "seed"])
def test_gymnasium_environments_have_keys_of_their_own(key: str) -> None:
    task = {"id": "gymnasium:Pendulum-v1", "kwargs": {"g": 1.0}, "num_envs": 2, "vectorization": "async"}
    assert errors("env", task) == []
    assert errors("env", task | {key: {}})
    assert errors("env", task | {"vectorization": "threads"}) == ["$.vectorization"] * 2


@pytest.mark.ext
def test_required_keys_are_missed() -> None:
    assert errors("train", {}) == ["$"] * 3
    assert errors("env", {"id": "PushCubeRL", "robot": {"uid": "a"}}) == ["$"]
    assert errors("env", {"id": "gymnasium:Pendulum-v1"}) == []
    assert errors("env", {"id": "PushCubeRL", "env": {"actions": {}}}) == ["$"]
    assert errors("env", {"id": "PushCubeRL", "robot": {"uid": "a"}, "env": {}}) == ["$.env"]
    assert errors("train", PUSH_CUBE_TRAIN | {"policy": {"name": "actor_critic"}}) == ["$.policy"] * 2


def test_task_whose_scene_is_a_file_needs_no_robot() -> None:
    assert errors("env", {"id": "SceneRL", "scene": "gymnasium/hopper.xml"}) == []
    assert errors("env", {"id": "OwnTaskRL", "scene": "own.xml"}) == []


@pytest.mark.parametrize(
    ("block", "value"),
    [
        ("sensor", [{"sensor_type": "Camera", "uid": "front", "width": 64, "height": 64}]),
        ("light", {"direct": [{"uid": "lamp", "light_type": "point", "intensity": 50, "init_pos": [0, 1.5, 2]}]}),
        ("rigid_object_group", [{"uid": "cubes", "rigid_objects": {"one": {"shape": {"shape_type": "Cube"}}}}]),
    ],
)
def test_blocks_that_the_tasks_leave_empty_may_be_filled(block: str, value: Any) -> None:
    assert errors("env", change(PUSH_CUBE, block, value)) == []
    assert errors("env", change(PUSH_CUBE, block, [3]))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("env", "id", "MyTaskRL"),
        ("env", "env.rewards.reach", {"func": "my_package.terms.reach", "params": {"my_own": [1]}}),
        ("env", "env.actions.delta_qpos", {"func": "my_package.terms.Mine", "params": {"my_own": 1}}),
        ("train", "policy", {"name": "my_policy", "width": 3}),
        ("train", "policy", {"name": "my_package.policies.Mine", "width": 3}),
        ("train", "algorithm", {"name": "mine", "cfg": {"alpha": 0.2}}),
        ("train", "trainer.events", {"train": {"push": {"func": "my_package.terms.push", "mode": "reset"}}}),
        ("train", "trainer.gym_config", {"id": "MyTaskRL"}),
    ],
)
def test_what_a_user_has_registered_fits(kind: str, path: str, value: Any) -> None:
    assert errors(kind, change(PUSH_CUBE_TRAIN if kind == "train" else PUSH_CUBE, path, value)) == []


@pytest.mark.parametrize("make", SCHEMAS.values())
def test_every_key_of_the_config_classes_has_a_description(make: Callable[[], dict[str, Any]]) -> None:
    schema = make()
    for name, definition in schema["$defs"].items():
        if not name.startswith("term of "):
            undescribed = [key for key, value in definition["properties"].items() if "description" not in value]
            assert undescribed == [], name


def test_every_shipped_functor_is_offered_with_its_parameters() -> None:
    definitions = env_schema()["$defs"]
    for block, modules in BLOCK_MODULES.items():
        term = definitions[f"term of {block}"]
        offered = {choice["const"]: choice["description"] for choice in term["properties"]["func"]["anyOf"][:-1]}
        assert set(offered) == set(public_names(modules))
        assert all(offered.values())
        assert [case["if"]["properties"]["func"]["const"] for case in term["allOf"]] == list(offered)
    (params,) = [
        case["then"]["properties"]["params"]
        for case in definitions["term of events"]["allOf"]
        if case["if"]["properties"]["func"]["const"] == "randomize_target_pose"
    ]
    assert params["required"] == ["position_range"]
    assert params["properties"]["store_key"] == {
        "default": "target_pose",
        "description": "name of the environment's attribute.",
        "type": "string",
    }
