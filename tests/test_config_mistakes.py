"""One mistake at a time, in a shipped config of each algorithm: one line says where, and nothing is built."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl import build
from embodichain.agents.rl.run_config import load_run_config
from embodichain.lab.gym.envs import BaseEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.shipped import TRAIN_CONFIGS, env_config_of


def has_joint_actions(path: Path) -> bool:
    """Return whether an environment has the blocks that mistakes are planted in."""
    env = env_config_of(load_json(path))
    return "robot" in env and all(term["func"] != "ActuatorTerm" for term in env["env"]["actions"].values())


# Of each algorithm the first, for mistakes in the training; and for those in the environment a task with commands and
# one that adds a thing of its own.
WITH_ROBOT = [path for path in reversed(TRAIN_CONFIGS) if has_joint_actions(path)]
BY_TASK = {path.parent.name: path for path in WITH_ROBOT}
BY_ALGORITHM = {load_json(path)["algorithm"]["name"]: path for path in WITH_ROBOT}
TASKS = {BY_TASK["go2_flat"], BY_TASK["push_cube"]}

Config = dict[str, Any]
Mistake = Callable[[Config, Config], tuple[str, str]]
MISTAKES: list[Mistake] = []


def mistake(plant: Mistake) -> Mistake:
    """Add a function that plants a mistake in the training or the environment config.

    It returns the path that the message must begin with, and a word that must be in it.
    """
    MISTAKES.append(plant)
    return plant


def an_entry(env: Config) -> str:
    """Return the name of an entry of the observation; legged tasks have their terms' alone."""
    return "command" if "commands" in env["env"] else "robot/qpos"


CAMERA = {"func": "record_camera_data", "mode": "interval", "params": {"eye": [0, 0, 1], "target": [0, 0, 1]}}
NEGATIVE_BOX = {"uid": "box", "shape": {"shape_type": "Cube", "size": [1, 1, -1]}}
CHANGE = {"func": "normalize_robot_joint_data", "name": "robot/qpos"}
UPSIDE_DOWN = {"func": "randomize_target_pose", "params": {"position_range": [[1, 0, 0], [-1, 0, 0]]}}
MODE = {"func": "randomize_robot_qpos", "mode": "resets", "params": {"qpos_range": [[0], [0]], "joint_ids": [0]}}
NO_CAMERA = {"func": "record_camera"}
NO_MESH = {"uid": "a", "shape": {"shape_type": "Mesh", "fpath": "a.obj"}}
NO_ROBOT = {"func": "joint_velocity_penalty", "params": {"robot_uid": "Robbie"}}
NO_PART = {"func": "get_robot_eef_pose", "params": {"part_name": "amr"}}

MISSING = object()
# The block, the path in it (* is the first name), the value planted there (or MISSING), where below the path the
# message finds it, and a word in it.
VALUES: list[tuple[str, str, Any, str, str]] = [
    ("train", "trainer.num_evns", 2, "", "Did you mean 'num_envs'?"),
    ("train", "trainr", {}, "", "Did you mean 'trainer'?"),
    ("train", "trainer.iterations", "4", "", "valid integer, got '4'"),
    ("train", "trainer.headless", 1, "", "valid boolean, got 1"),
    ("train", "trainer.seed", True, "", "valid integer, got True"),
    ("train", "trainer.seed", -1, "", "greater than or equal to 0, got -1"),  # numpy's generator takes none
    ("train", "trainer.exp_name", "", "", "at least 1 character"),
    ("train", "trainer.model_type", "other", "", "should be 'standard'"),
    ("train", "trainer.exp_name", ["a"], "", "valid string"),
    ("train", "trainer.num_envs", -64, "", "greater than 0, got -64"),
    ("train", "trainer.eval_freq", "often", "", "100 it"),
    ("train", "trainer.device", "gpu", "", "'cuda:<number>'"),
    ("train", "trainer.gym_config", "gim_config.json", "", "no such file"),
    ("train", "trainer.gym_config", MISSING, "", "required, but missing"),
    ("train", "trainer.events", {"eval": {"x": NO_CAMERA}}, ".eval.x.func", "mean 'record_camera_data'?"),
    ("train", "trainer.events", {"eval": {"x": CAMERA}}, ".eval.x.params.eye", "direction"),
    ("train", "policy.actor.network_cfg.activation", "rellu", "", "'relu'"),
    ("train", "policy.actor.network_cfg.hidden_sizes", [64, -64], "[1]", "greater than 0, got -64"),
    ("train", "policy.actor.network_cfg.hiden_sizes", [64], "", "Did you mean 'hidden_sizes'?"),
    ("train", "algorithm.cfg.gama", 0.9, "", "Did you mean 'gamma'?"),
    ("train", "algorithm.cfg.gamma", 1.5, "", "less than or equal to 1, got 1.5"),
    ("train", "algorithm.cfg.group_size", 1, "", "2"),
    ("env", "rigid_objects", [], "", "Did you mean 'rigid_object'?"),
    ("env", "env.observatons", {}, "", "Did you mean 'observations'?"),
    ("env", "env.sim_steps_per_control", 0, "", "greater than or equal to 1, got 0"),
    ("env", "env.control_parts", ["leg"], "", "arm"),
    ("env", "env.actions", {}, "", "at least one"),
    ("env", "env.actions.*.func", "success_reward", "", "must be an ActionTerm class"),
    ("env", "env.actions.*.params", {"scael": 0.1}, ".scael", "Did you mean 'scale'?"),
    ("env", "env.actions.*.params", {"scale": "0.1"}, ".scale", "valid number, got '0.1'"),
    ("env", "robot.init_pos", [0.0, 0.5], "", "too few values, got [0.0, 0.5]"),
    ("env", "background", [NO_MESH], "[0].shape.fpath", "no such mesh"),
    ("env", "background", [NEGATIVE_BOX], "[0].shape.size[2]", "greater than 0, got -1"),
    ("env", "terrain", {"kinds": [{"kind": "stairs"}], "num_levels": 0}, ".num_levels", "greater than 0, got 0"),
    ("env", "terrain", {"kinds": []}, ".kinds", "at least 1 item"),
    ("env", "terrain", {"kinds": [{"kind": "stairs", "share": 0.0}]}, "", "at least one share must be above 0"),
    ("env", "terrain", {"kinds": [{"kind": "stairs"}], "cell_size": 1.0}, "", "platform 2.0 m must be smaller than"),
    ("env", "env.rewards.more", {"func": "sucess_reward"}, ".func", "Did you mean 'success_reward'?"),
    ("env", "env.rewards.more", {"func": "mine.terms.bonus"}, ".func", "pass --allow-import mine.terms"),
    ("env", "env.rewards.more", {"func": "QposTerm"}, ".func", "must be a function or a Functor class"),
    ("env", "env.rewards.more", {"func": "success_reward", "wieght": 2.0}, ".wieght", "Did you mean 'weight'?"),
    ("env", "env.rewards.more", {"func": "joint_velocity_penalty"}, ".params.robot_uid", "required, but missing"),
    ("env", "env.rewards.more", NO_ROBOT, ".params.robot_uid", "There are: "),
    ("env", "env.observations.more", {"func": "success_reward"}, ".func", "takes action, info, but is only given env"),
    ("env", "env.observations.more", CHANGE, ".mode", "must be 'modify', got 'add'"),
    ("env", "env.observations.more", NO_PART, ".params.part_name", "Did you mean 'arm'?"),
    ("env", "env.events.more", UPSIDE_DOWN, ".params.position_range", "[lowest, highest]"),
    ("env", "env.events.more", MODE, ".mode", "'reset'"),
]


def set_at(block: Config, path: str, value: Any) -> str:
    """Set a value at a path of keys; return the path with names for stars."""
    *parents, key = path.split(".")
    for i, parent in enumerate(parents):
        parents[i] = next(iter(block)) if parent == "*" else parent
        block = block[parents[i]]
    block[key] = value
    if value is MISSING:
        del block[key]
    return ".".join((*parents, key))


def plant_value(row: tuple[str, str, Any, str, str]) -> Mistake:
    """Return the function that plants a row of the table."""
    which, path, value, below, word = row

    def plant(train: Config, env: Config) -> tuple[str, str]:
        return set_at(train if which == "train" else env, path, value) + below, word

    return plant


@mistake
def unknown_policy(train: Config, env: Config) -> tuple[str, str]:
    name = train["policy"]["name"]
    train["policy"]["name"] += "_"
    return "policy", f"Did you mean '{name}'"


@mistake
def missing_network(train: Config, env: Config) -> tuple[str, str]:
    del train["policy"]["actor"]
    return "policy", "actor"


@mistake
def unknown_algorithm(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["name"] += "o"
    return "algorithm.name", "Did you mean 'ppo'?" if train["algorithm"]["name"] == "ppoo" else "Known: "


@mistake
def environments_that_make_no_whole_groups(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["cfg"]["group_size"] = 5
    train["trainer"]["num_envs"] = 64
    return "algorithm.cfg.group_size", "5"


@mistake
def unknown_task(train: Config, env: Config) -> tuple[str, str]:
    env["id"] = env["id"].removesuffix("L")
    return "id", f"Did you mean '{env['id']}L'?"


@mistake
def robot_without_a_name(train: Config, env: Config) -> tuple[str, str]:
    del env["robot"]["uid"]
    env["env"]["rewards"] = {}  # which name it
    return "robot.uid", "required, but missing"


@mistake
def asset_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    hand = {"component_type": "hand", "urdf_path": "nowhere.urdf"}
    parts = env["robot"].setdefault("urdf_cfg", {"components": [hand]})["components"]
    parts[0]["urdf_path"] = "nowhere.urdf"
    return "robot.urdf_cfg.components[0].urdf_path", "Bundled: "


@mistake
def name_that_is_used_twice(train: Config, env: Config) -> tuple[str, str]:
    env["background"] = [{"uid": env["robot"]["uid"], "shape": {"shape_type": "Cube"}}]
    return "background[0].uid", "used twice"


@mistake
def functor_that_changes_nothing_for_a_change(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observations"]["more"] = {"func": "target_position", "mode": "modify", "name": an_entry(env)}
    return "env.observations.more.func", "does not take env, data"


@mistake
def entity_that_the_scene_does_not_have(train: Config, env: Config) -> tuple[str, str]:
    params = {"entity_cfg": {"uid": env["robot"]["uid"] + "s"}}
    env["env"]["observations"]["more"] = {"func": "get_object_pose", "params": params}
    return "env.observations.more.params.entity_cfg.uid", f"Did you mean '{env['robot']['uid']}'?"


@mistake
def change_of_an_entry_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    name = an_entry(env)
    func = {"func": "normalize_robot_joint_data", "mode": "modify", "name": name[:-1]}
    env["env"]["observations"]["more"] = func
    return "env.observations.more.name", f"Did you mean '{name}'?"


def cases() -> Iterator[Any]:
    """Yield each mistake in each config that has what it is about."""
    for path in sorted({*BY_ALGORITHM.values(), *TASKS}):
        train = load_json(path)
        env = env_config_of(train)
        lacks: tuple[str, ...] = () if "actor" in train["policy"] else ("actor", "missing_network")
        lacks += () if "group_size" in train["algorithm"]["cfg"] else ("group",)
        mistakes = {plant.__name__: plant for plant in MISTAKES}
        mistakes |= {f"{row[1]}{row[3]}={row[4]}": plant_value(row) for row in VALUES}
        for name, plant in mistakes.items():
            if any(word in name for word in lacks):
                continue
            wrong = copy.deepcopy(env)
            plant(copy.deepcopy(train), wrong)
            if wrong == env or path in TASKS:
                yield pytest.param(plant, path, id=f"{name}-{path.parent.name}/{path.stem}")


@pytest.mark.e2e
@pytest.mark.parametrize(("plant", "path"), list(cases()))
def test_mistake_is_found_before_an_environment_is_built(
    plant: Mistake, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for owner, name in ((build, "build_env"), (BaseEnv, "__init__")):
        monkeypatch.setattr(owner, name, lambda *args, **kwargs: pytest.fail("an environment was built"))
    train = load_json(path)
    env = env_config_of(train)
    train["trainer"]["gym_config"] = "env.json"
    before = copy.deepcopy(env)
    place, word = plant(train, env)
    Path("train.json").write_text(json.dumps(train), encoding="utf-8")
    Path("env.json").write_text(json.dumps(env), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_run_config("train.json")
    (line,) = str(caught.value).splitlines()
    assert line.removeprefix("env.json: ").startswith(f"{place}: ")
    assert line.startswith("env.json: ") == (env != before)
    assert word in line
