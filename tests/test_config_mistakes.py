"""One mistake at a time, planted in every shipped config: one line says where it is and helps, and nothing is built."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl import build
from embodichain.agents.rl.run_config import load_run_config
from embodichain.lab.gym.envs import BaseEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.shipped import REPOSITORY, TRAIN_CONFIGS, env_config_of

# Those whose environment has the blocks that mistakes are planted in.
CONFIGS = [path for path in TRAIN_CONFIGS if "robot" in env_config_of(load_json(path))]

Config = dict[str, Any]
Mistake = Callable[[Config, Config], tuple[str, str]]
MISTAKES: list[Mistake] = []


def mistake(plant: Mistake) -> Mistake:
    """Add a function that plants a mistake in the training or the environment config.

    It returns the path that the message must begin with, and a word that must be in it.
    """
    MISTAKES.append(plant)
    return plant


def first(block: Config) -> tuple[str, Config]:
    """Return name and content of the first entry."""
    return next(iter(block.items()))


# --- the trainer block ---


@mistake
def typo_in_a_key_of_the_trainer(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["num_evns"] = 2
    return "trainer.num_evns", "Did you mean 'num_envs'?"


@mistake
def typo_in_the_name_of_a_block(train: Config, env: Config) -> tuple[str, str]:
    train["trainr"] = {}
    return "trainr", "Did you mean 'trainer'?"


@mistake
def text_for_a_number(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["iterations"] = "4"
    return "trainer.iterations", "valid integer, got '4'"


@mistake
def number_for_a_bool(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["headless"] = 1
    return "trainer.headless", "valid boolean, got 1"


@mistake
def bool_for_a_number(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["seed"] = True
    return "trainer.seed", "valid integer, got True"


@mistake
def list_for_text(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["exp_name"] = ["a"]
    return "trainer.exp_name", "valid string"


@mistake
def negative_number_of_environments(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["num_envs"] = -64
    return "trainer.num_envs", "greater than 0, got -64"


@mistake
def schedule_in_words(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["eval_freq"] = "often"
    return "trainer.eval_freq", "100 it"


@mistake
def device_that_is_none(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["device"] = "gpu"
    return "trainer.device", "'cuda:<number>'"


@mistake
def environment_config_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["gym_config"] = "gim_config.json"
    return "trainer.gym_config", "no such file"


@mistake
def no_environment_config(train: Config, env: Config) -> tuple[str, str]:
    del train["trainer"]["gym_config"]
    return "trainer.gym_config", "required, but missing"


@mistake
def unknown_functor_among_the_trainers_events(train: Config, env: Config) -> tuple[str, str]:
    train["trainer"]["events"] = {"eval": {"camera": {"func": "record_camera", "mode": "interval"}}}
    return "trainer.events.eval.camera.func", "Did you mean 'record_camera_data'?"


@mistake
def camera_that_looks_nowhere(train: Config, env: Config) -> tuple[str, str]:
    camera = {"func": "record_camera_data", "mode": "interval", "params": {"eye": [0, 0, 1], "target": [0, 0, 1]}}
    train["trainer"]["events"] = {"eval": {"camera": camera}}
    return "trainer.events.eval.camera.params.eye", "direction"


# --- policy and algorithm ---


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
def unknown_activation(train: Config, env: Config) -> tuple[str, str]:
    train["policy"]["actor"]["network_cfg"]["activation"] = "rellu"
    return "policy.actor.network_cfg.activation", "'relu'"


@mistake
def layer_of_negative_size(train: Config, env: Config) -> tuple[str, str]:
    train["policy"]["actor"]["network_cfg"]["hidden_sizes"] = [64, -64]
    return "policy.actor.network_cfg.hidden_sizes[1]", "greater than 0, got -64"


@mistake
def typo_in_a_network(train: Config, env: Config) -> tuple[str, str]:
    train["policy"]["actor"]["network_cfg"]["hiden_sizes"] = [64]
    return "policy.actor.network_cfg.hiden_sizes", "Did you mean 'hidden_sizes'?"


@mistake
def unknown_algorithm(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["name"] += "o"
    return "algorithm.name", "Did you mean 'ppo'?" if train["algorithm"]["name"] == "ppoo" else "Known: "


@mistake
def typo_in_an_algorithms_setting(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["cfg"]["gama"] = 0.9
    return "algorithm.cfg.gama", "Did you mean 'gamma'?"


@mistake
def discount_above_one(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["cfg"]["gamma"] = 1.5
    return "algorithm.cfg.gamma", "less than or equal to 1, got 1.5"


@mistake
def environments_that_make_no_whole_groups(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["cfg"]["group_size"] = 5
    train["trainer"]["num_envs"] = 64
    return "algorithm.cfg.group_size", "5"


@mistake
def group_of_one(train: Config, env: Config) -> tuple[str, str]:
    train["algorithm"]["cfg"]["group_size"] = 1
    return "algorithm.cfg.group_size", "2"


# --- the environment config ---


@mistake
def unknown_task(train: Config, env: Config) -> tuple[str, str]:
    env["id"] = env["id"].removesuffix("L")
    return "id", f"Did you mean '{env['id']}L'?"


@mistake
def typo_in_a_key_of_the_environment_file(train: Config, env: Config) -> tuple[str, str]:
    env["rigid_objects"] = []
    return "rigid_objects", "Did you mean 'rigid_object'?"


@mistake
def typo_in_a_key_of_env(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observatons"] = {}
    return "env.observatons", "Did you mean 'observations'?"


@mistake
def zero_substeps(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["sim_steps_per_control"] = 0
    return "env.sim_steps_per_control", "greater than or equal to 1, got 0"


@mistake
def robot_without_a_name(train: Config, env: Config) -> tuple[str, str]:
    del env["robot"]["uid"]
    env["env"]["rewards"] = {}  # which name it
    return "robot.uid", "required, but missing"


@mistake
def position_of_two_numbers(train: Config, env: Config) -> tuple[str, str]:
    env["robot"]["init_pos"] = [0.0, 0.5]
    return "robot.init_pos", "too few values, got [0.0, 0.5]"


def an_entry(env: Config) -> str:
    """Return the name of an entry of the observation; legged tasks have their terms' alone."""
    return "command" if "commands" in env["env"] else "robot/qpos"


@mistake
def asset_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    hand = {"component_type": "hand", "urdf_path": "nowhere.urdf"}
    parts = env["robot"].setdefault("urdf_cfg", {"components": [hand]})["components"]
    parts[0]["urdf_path"] = "nowhere.urdf"
    return "robot.urdf_cfg.components[0].urdf_path", "Bundled: "


@mistake
def mesh_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    env["background"] = [{"uid": "cup", "shape": {"shape_type": "Mesh", "fpath": "cup.obj"}}]
    return "background[0].shape.fpath", "no such mesh file"


@mistake
def box_of_negative_size(train: Config, env: Config) -> tuple[str, str]:
    env["background"] = [{"uid": "box", "shape": {"shape_type": "Cube", "size": [1, 1, -1]}}]
    return "background[0].shape.size[2]", "greater than 0, got -1"


@mistake
def name_that_is_used_twice(train: Config, env: Config) -> tuple[str, str]:
    env["background"] = [{"uid": env["robot"]["uid"], "shape": {"shape_type": "Cube"}}]
    return "background[0].uid", "used twice"


@mistake
def terrain_without_levels(train: Config, env: Config) -> tuple[str, str]:
    env["terrain"] = {"kinds": [{"kind": "stairs"}], "num_levels": 0}
    return "terrain.num_levels", "greater than 0, got 0"


@mistake
def terrain_without_kinds(train: Config, env: Config) -> tuple[str, str]:
    env["terrain"] = {"kinds": []}
    return "terrain.kinds", "at least 1 item"


@mistake
def terrain_whose_shares_are_all_zero(train: Config, env: Config) -> tuple[str, str]:
    env["terrain"] = {"kinds": [{"kind": "stairs", "share": 0.0}]}
    return "terrain", "at least one share must be above 0"


@mistake
def terrain_whose_cells_are_smaller_than_their_platforms(train: Config, env: Config) -> tuple[str, str]:
    env["terrain"] = {"kinds": [{"kind": "stairs"}], "cell_size": 1.0}
    return "terrain", "platform 2.0 m must be smaller than cell_size 1.0 m"


@mistake
def unknown_control_part_of_the_actions(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["control_parts"] = ["leg"]
    return "env.control_parts", "arm"


@mistake
def no_action_term(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["actions"] = {}
    return "env.actions", "at least one"


@mistake
def unknown_reward_functor(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "sucess_reward"}
    return "env.rewards.more.func", "Did you mean 'success_reward'?"


@mistake
def functor_of_a_module_that_is_not_allowed(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "my_package.terms.bonus"}
    return "env.rewards.more.func", "pass --allow-import my_package.terms"


@mistake
def reward_functor_for_an_action(train: Config, env: Config) -> tuple[str, str]:
    name, term = first(env["env"]["actions"])
    term["func"] = "success_reward"
    return f"env.actions.{name}.func", "must be an ActionTerm class"


@mistake
def action_functor_for_a_reward(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "QposTerm"}
    return "env.rewards.more.func", "must be a function or a Functor class"


@mistake
def reward_functor_for_an_observation(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observations"]["more"] = {"func": "success_reward"}
    return "env.observations.more.func", "takes action, info, but is only given env, or env and obs here"


@mistake
def change_without_its_mode(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observations"]["more"] = {"func": "normalize_robot_joint_data", "name": "robot/qpos"}
    return "env.observations.more.mode", "must be 'modify', got 'add'"


@mistake
def functor_that_changes_nothing_for_a_change(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observations"]["more"] = {"func": "target_position", "mode": "modify", "name": an_entry(env)}
    return "env.observations.more.func", "does not take env, data"


@mistake
def typo_in_a_key_of_a_term(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "success_reward", "wieght": 2.0}
    return "env.rewards.more.wieght", "Did you mean 'weight'?"


@mistake
def unknown_parameter(train: Config, env: Config) -> tuple[str, str]:
    name, term = first(env["env"]["actions"])
    term["params"] = {"scael": 0.1}
    return f"env.actions.{name}.params.scael", "Did you mean 'scale'?"


@mistake
def text_for_a_parameter_that_is_a_number(train: Config, env: Config) -> tuple[str, str]:
    name, term = first(env["env"]["actions"])
    term["params"] = {"scale": "0.1"}
    return f"env.actions.{name}.params.scale", "valid number, got '0.1'"


@mistake
def missing_parameter(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "joint_velocity_penalty"}
    return "env.rewards.more.params.robot_uid", "required, but missing"


@mistake
def entity_that_the_scene_does_not_have(train: Config, env: Config) -> tuple[str, str]:
    params = {"entity_cfg": {"uid": env["robot"]["uid"] + "s"}}
    env["env"]["observations"]["more"] = {"func": "get_object_pose", "params": params}
    return "env.observations.more.params.entity_cfg.uid", f"Did you mean '{env['robot']['uid']}'?"


@mistake
def robot_that_the_scene_does_not_have(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["rewards"]["more"] = {"func": "joint_velocity_penalty", "params": {"robot_uid": "Robbie"}}
    return "env.rewards.more.params.robot_uid", f"There are: {env['robot']['uid']}"


@mistake
def control_part_that_the_robot_does_not_have(train: Config, env: Config) -> tuple[str, str]:
    env["env"]["observations"]["more"] = {"func": "get_robot_eef_pose", "params": {"part_name": "amr"}}
    return "env.observations.more.params.part_name", "Did you mean 'arm'?"


@mistake
def change_of_an_entry_that_is_not_there(train: Config, env: Config) -> tuple[str, str]:
    name = an_entry(env)
    func = {"func": "normalize_robot_joint_data", "mode": "modify", "name": name[:-1]}
    env["env"]["observations"]["more"] = func
    return "env.observations.more.name", f"Did you mean '{name}'?"


@mistake
def range_upside_down(train: Config, env: Config) -> tuple[str, str]:
    params = {"position_range": [[1, 0, 0], [-1, 0, 0]]}
    env["env"]["events"]["more"] = {"func": "randomize_target_pose", "params": params}
    return "env.events.more.params.position_range", "[lowest, highest]"


@mistake
def unknown_mode_of_an_event(train: Config, env: Config) -> tuple[str, str]:
    params = {"qpos_range": [[0], [0]], "joint_ids": [0]}
    env["env"]["events"]["more"] = {"func": "randomize_robot_qpos", "mode": "resets", "params": params}
    return "env.events.more.mode", "'reset'"


ABOUT_GROUPS = (environments_that_make_no_whole_groups, group_of_one)
ABOUT_NETWORKS = (missing_network, unknown_activation, layer_of_negative_size, typo_in_a_network)


def can_be_made(plant: Mistake, train: Config) -> bool:
    """Return whether a config has what the mistake is about."""
    if plant in ABOUT_GROUPS:
        return "group_size" in train["algorithm"]["cfg"]
    return plant not in ABOUT_NETWORKS or "actor" in train["policy"]


CASES = [
    pytest.param(plant, path, id=f"{plant.__name__}-{path.parent.name}/{path.stem}")
    for path in CONFIGS
    for plant in MISTAKES
    if can_be_made(plant, load_json(path))
]


@pytest.mark.e2e
@pytest.mark.parametrize(("plant", "path"), CASES)
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


def test_there_are_mistakes_enough() -> None:
    assert len(MISTAKES) >= 25
    assert len(CONFIGS) >= 4


def paths_in(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all values, the first of a list standing for the others."""
    items = (
        list(node.items()) if isinstance(node, dict) else list(enumerate(node))[:1] if isinstance(node, list) else []
    )
    return [*((path,) if path else ()), *(found for key, item in items for found in paths_in(item, (*path, key)))]


NONSENSE: list[Any] = [None, -3, "x", [], {}, True, [[None]], {"uid": {}}]


@pytest.mark.e2e
@pytest.mark.parametrize("offset", range(len(NONSENSE)))
@pytest.mark.parametrize("which", ["train", "env"])
def test_nonsense_anywhere_is_an_error_of_the_config_if_anything(
    which: str, offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = REPOSITORY / "configs/agents/rl/push_cube/train_config.json"
    files = {"train": load_json(path), "env": load_json(path.parent / "gym_config.json")}
    files["train"]["trainer"]["gym_config"] = "env.json"
    # Of all pairs of a place and a value, each test tries some; together they try each place once.
    for i, place in list(enumerate(paths_in(files[which])))[offset::8]:
        changed = copy.deepcopy(files)
        node: Any = changed[which]
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = NONSENSE[(i // 8 + offset) % len(NONSENSE)]
        for name, content in changed.items():
            Path(f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        with contextlib.suppress(ConfigError):
            load_run_config("train.json")
