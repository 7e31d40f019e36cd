import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl import build
from embodichain.agents.rl.algo import PPOCfg
from embodichain.agents.rl.config.arguments import all_overrides, parse_args
from embodichain.agents.rl.run_config import (
    RunConfig,
    changes_of_env_file,
    check_resumed_config,
    load_checkpoint_config,
    load_run_config,
    may_change,
    with_scene,
)
from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError, to_dict
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config
from tests.lab.legs import legs_data
from tests.shipped import REPOSITORY, TRAIN_CONFIGS

pytestmark = pytest.mark.usefixtures("own_folder")


def errors(config: dict[str, Any], **kwargs: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_run_config(write_config(Path(), config), **kwargs)
    return str(caught.value).splitlines()


def env_file(name: str = "env.json", **changes: Any) -> str:
    Path(name).write_text(json.dumps(load_json(CART_POLE_ENV) | changes), encoding="utf-8")
    return name


def test_errors_of_every_part_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "build_env", lambda *args: pytest.fail("an environment was built"))
    config = tiny_config(
        trainer__gym_config=env_file(id="CartPoolRL", num_envs="two", robots={}),
        trainer__iterationen=3,
        trainer__events={
            "train": {"push": {"func": "push_the_cart"}},
            "eval": {"look": {"func": "record_camera_data", "mode": "sometimes"}},
        },
        policy__actors={},
        policy__actor={"type": "mlp", "network_cfg": {"activation": "rellu"}},
        algorithm__cfg={"gama": 0.9, "n_epochs": 0},
    )
    found = errors(config)
    starts = [
        "trainer.iterationen: unknown key. Did you mean 'iterations'?",
        "policy.actors: unknown key. Did you mean 'actor'?",
        "policy.actor.network_cfg.activation: Input should be 'elu'",
        "algorithm.cfg.gama: unknown key. Did you mean 'gamma'?",
        "algorithm.cfg.n_epochs: Input should be greater than 0, got 0",
        "trainer.events.train.push.func: unknown function 'push_the_cart'.",
        "trainer.events.eval.look.mode: Input should be 'startup', 'reset' or 'interval', got 'sometimes'",
        "env.json: id: unknown environment id 'CartPoolRL'. Did you mean 'CartPoleRL'? Known: CartPoleRL, G1FlatRL, ",
        "env.json: robots: unknown key. Did you mean 'robot'?",
        "env.json: num_envs: Input should be a valid integer",
    ]
    for start in starts:
        assert [line.startswith(start) for line in found].count(True) == 1, (start, found)
    assert len(found) == len(starts)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"policy": None}, ["policy: required, but missing"]),
        ({"policy": 5}, ["policy: Input should be an object, got 5"]),
        ({"policy__name": ["a"]}, ["policy.name: Input should be a valid string, got ['a']"]),
        ({"trainer": None}, ["trainer: required, but missing"]),
        ({"trainer__events": {"evaluation": {}}}, ["trainer.events.evaluation: unknown key. Known: train, eval"]),
        (
            {"trainer__gym_config": 5},
            ["trainer.gym_config: Input should be a valid string, or Input should be an object, got 5"],
        ),
        ({"trainer__events": {"eval": {"look": 5}}}, ["trainer.events.eval.look: Input should be an object, got 5"]),
        ({"trainer__loggers": ["a.B"]}, ["trainer.loggers[0]: Input should be an object, got 'a.B'"]),
        (
            {"trainer__loggers": [{}, {"func": "MLflow"}]},
            ["trainer.loggers[1].func: must be the dotted path", "trainer.loggers[0].func: required, but missing"],
        ),
        (
            {"policy__name": "actor_only", "policy__critic": None},
            ["policy.name: 'actor_only' with algorithm.name 'ppo': PPO reads value from evaluate_actions"],
        ),
        ({"policy__teacher": "outputs/one"}, ["policy.teacher: has no effect with algorithm.name 'ppo'"]),
        (
            {
                "algorithm": {"name": "bc", "cfg": {"demonstrations": "folder"}},
                "trainer__asynchronous": {"max_staleness": 1},
            },
            ["trainer.asynchronous: has no effect with algorithm.name 'bc'"],
        ),
    ],
)
def test_malformed_block_is_named_once(changes: dict[str, Any], expected: list[str]) -> None:
    found = errors(tiny_config(**changes))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


# --- values of the environment's config on the command line ---


@pytest.mark.parametrize("place", ["file", "inline"])
@pytest.mark.parametrize("prefix", ["", "trainer.gym_config.", "gym_config."])
def test_values_of_the_environment_can_be_overridden(place: str, prefix: str) -> None:
    data = load_json(CART_POLE_ENV)
    config = write_config(Path(), tiny_config(trainer__gym_config=env_file() if place == "file" else data))
    overrides = [f"{prefix}env.rewards.calm.weight=2.5", f"{prefix}max_episode_steps=7", "trainer.seed=3"]
    run = load_run_config(config, overrides)
    assert with_scene(run.env, "test").rewards["calm"].weight == 2.5
    assert (run.env.max_episode_steps, run.trainer.seed) == (7, 3)
    # What is kept of the run has them, and the file is as it was.
    assert run.resolved["gym_config"]["env"]["rewards"]["calm"]["weight"] == 2.5
    before = with_scene(load_run_config(config).env, "test").rewards["calm"].weight
    assert before == data["env"]["rewards"]["calm"]["weight"]


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("num_envs=3", "trainer.num_envs"),
        ("env.sim_cfg.headless=false", "trainer.headless"),
        ("env.group_size=2", "algorithm.cfg.group_size"),
        ("max_episodes=9", "trainer.iterations"),
    ],
)
def test_override_that_the_training_config_replaces_is_refused(override: str, place: str) -> None:
    (line,) = errors(tiny_config(trainer__gym_config=str(CART_POLE_ENV)), overrides=[override])
    assert line.startswith(f"override '{override}': has no effect: ")
    assert f"which {place} of the training config replaces" in line


def test_override_counts_where_the_training_config_has_none() -> None:
    config = tiny_config(trainer__gym_config=str(CART_POLE_ENV), trainer__num_envs=None)
    assert load_run_config(config, ["num_envs=3"]).env.num_envs == 3


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("rewards.calm.weight=2", "rewards: unknown key. Did you mean 'env.rewards' of the environment config?"),
        ("trainer.max_episode_steps=7", "Did you mean 'max_episode_steps' of the environment config?"),
        ("env.iterations=7", "Did you mean 'trainer.iterations'?"),
        ("env.max_episode_steps=7", "has no effect with max_episode_steps at the top of the file: set that one"),
        ("calm.weight=2", "Known: trainer, policy, algorithm; in the environment config: id, env, "),
    ],
)
def test_override_in_the_wrong_place_names_the_other_config(override: str, expected: str) -> None:
    (line,) = errors(tiny_config(trainer__gym_config=str(CART_POLE_ENV)), overrides=[override])
    assert expected in line


@pytest.mark.parametrize("override", ["sensor[0].width=8", "sensor.0.width=8", "sensor[0]=8"])
def test_element_of_a_list_is_not_overridden(override: str) -> None:
    config = tiny_config(trainer__gym_config=str(CART_POLE_ENV))
    (line,) = errors(config, overrides=[override])
    assert line == f"override '{override}': elements of a list cannot be set: give the whole list, sensor=[...]"


@pytest.mark.parametrize("prefix", ["", "gym_config.", "trainer.gym_config."])
def test_override_of_the_environment_is_checked_like_its_file(prefix: str) -> None:
    config = tiny_config(trainer__gym_config=env_file())
    found = errors(config, overrides=[f"{prefix}max_episode_steps=-1", f"{prefix}env.rewards.clam.weight=2"])
    assert [line.partition(": Input")[0] for line in sorted(found)] == [
        "env.json: env.rewards.clam.func: required, but missing. Did you mean 'calm'? There are: calm, still",
        "env.json: max_episode_steps",
    ]
    own = ["env.rewards.mine.func=success_reward", "env.rewards.mine.weight=2"]
    assert with_scene(load_run_config(write_config(Path(), config), own).env, "test").rewards["mine"].weight == 2


def test_record_of_a_run_is_a_config_to_train_by() -> None:
    run = load_run_config(write_config(Path(), tiny_config(trainer__gym_config=env_file())), ["max_episode_steps=7"])
    Path("env.json").unlink()
    Path("record.json").write_text(json.dumps(run.resolved), encoding="utf-8")
    again = load_run_config("record.json", ["trainer.seed=8", "env.rewards.calm.weight=3"])
    assert (again.env_id, again.env.max_episode_steps, again.env.seed) == (run.env_id, 7, 8)
    assert (with_scene(again.env, "test").rewards["calm"].weight, again.policy) == (3, run.policy)


# --- what becomes of the configs ---

CAMERA = {"func": "record_camera_data", "mode": "interval", "interval_step": 1, "params": {"resolution": [64, 48]}}
NUDGE = {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[0, 0], [0, 0]]}}


def test_events_go_to_their_own_environment() -> None:
    events = {"train": {"nudge": NUDGE}, "eval": {"camera": CAMERA}}
    run = load_run_config(write_config(Path(), tiny_config(trainer__events=events)))
    assert run.eval_env is not None
    assert list(with_scene(run.env, "test").events) == ["start", "nudge"]  # "start" is the environment's own
    assert list(with_scene(run.eval_env, "test").events) == ["start", "camera"]


def test_evaluation_has_no_curriculum(tmp_path: Path) -> None:
    ranges = {"func": "command_range", "params": {"initial": 0.5}}
    environment = legs_data({"curriculum": {"ranges": ranges}})
    run = load_run_config(write_config(tmp_path, tiny_config(trainer__gym_config=environment)))
    assert run.eval_env is not None
    assert list(with_scene(run.env, "test").curriculum) == ["ranges"]
    assert with_scene(run.eval_env, "test").curriculum == {}
    assert run.resolved["gym_config"]["env"]["curriculum"]["ranges"]["params"] == {"initial": 0.5}


def test_trainer_decides_seed_and_numbers_of_environments() -> None:
    run = load_run_config(write_config(Path(), tiny_config()), ["trainer.seed=9", "trainer.num_eval_envs=5"])
    assert run.eval_env is not None
    assert (run.env_id, run.env.num_envs, run.env.seed) == ("CartPoleRL", 2, 9)
    assert (run.eval_env.num_envs, run.eval_env.seed) == (5, 9)


def test_group_size_is_that_of_the_training_environment_alone() -> None:
    grpo = {"name": "grpo", "cfg": {"group_size": 4, "batch_size": 8}}
    config = tiny_config(policy__name="actor_only", policy__critic=None, algorithm=grpo, trainer__num_envs=8)
    run = load_run_config(write_config(Path(), config))
    assert run.eval_env is not None
    assert (run.env.group_size, run.eval_env.group_size) == (4, 1)
    assert load_run_config(write_config(Path(), tiny_config())).env.group_size == 1


def test_off_policy_config_needs_no_epochs_and_minibatches() -> None:
    block = {"name": "off_policy_fake", "cfg": {"replay_capacity": 8}}
    run = load_run_config(write_config(Path(), tiny_config(algorithm=block)))
    assert to_dict(run.algorithm) == {"device": "cpu", "replay_capacity": 8}
    assert run.resolved["algorithm"] == block
    assert errors(tiny_config(algorithm=block | {"cfg": {"replay_capacity": 8, "n_epochs": 1}})) == [
        "algorithm.cfg.n_epochs: unknown key. Known: device, replay_capacity"
    ]


def test_resolved_config_is_all_of_it_as_plain_data() -> None:
    run = load_run_config(write_config(Path(), tiny_config()), ["trainer.seed=9"])
    resolved = json.loads(json.dumps(run.resolved))
    assert resolved["trainer"]["seed"] == 9
    assert resolved["trainer"]["save_freq"] == 50000  # a default
    assert resolved["policy"]["name"] == "actor_critic"
    assert resolved["policy"]["critic"]["network_cfg"]["layer_norm"] is False  # likewise
    settings = to_dict(PPOCfg(n_epochs=1, batch_size=8, normalize_returns=False))
    del settings["device"]  # the trainer's
    assert resolved["algorithm"] == {"name": "ppo", "cfg": settings}
    assert resolved["gym_config"]["id"] == "CartPoleRL"
    assert resolved["gym_config"]["env"]["rewards"]["calm"]["func"] == "joint_velocity_penalty"
    assert resolved["gym_config"]["env"]["sim_steps_per_control"] == 4  # likewise


@pytest.mark.ext
@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_resolved_config_loads_as_an_equal_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    run = load_run_config(path, ["trainer.device=cpu"])
    assert load_checkpoint_config(run.resolved) == run


def test_resolved_config_has_functions_names_as_written(user_module: str) -> None:
    term = {"func": f"{user_module}.near_by_another_name"}
    env = load_json(CART_POLE_ENV)
    env["env"]["rewards"]["near"] = term
    events = {"train": {"push": NUDGE}}
    config = tiny_config(trainer__gym_config=env, trainer__import_modules=[user_module], trainer__events=events)
    run = load_run_config(write_config(Path(), config), allowed_imports=[user_module])
    assert run.resolved["gym_config"]["env"]["rewards"]["near"]["func"] == term["func"]
    assert run.resolved["trainer"]["events"]["train"]["push"]["func"] == NUDGE["func"]
    assert load_checkpoint_config(run.resolved, allowed_imports=[user_module]) == run


def test_evaluation_without_a_time_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = registration.EnvSpec("EndlessRL", CartPoleEnv, None)
    monkeypatch.setitem(registration._REGISTRY, "EndlessRL", spec)
    config = tiny_config(trainer__gym_config=env_file(id="EndlessRL", max_episode_steps=None))
    (error,) = errors(config)
    assert error.startswith("env.json: max_episode_steps: evaluation needs a time limit")
    assert load_run_config(write_config(Path(), config), ["trainer.enable_eval=false"]).env.max_episode_steps is None
    env_file(id="EndlessRL", max_episode_steps=9)
    assert load_run_config(write_config(Path(), config)).env.max_episode_steps == 9


# --- modules of the user ---


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    source = (
        "from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv\n"
        "from embodichain.lab.gym.registry import register_env\n"
        "register_env('UsersRL', 50, override=True)(type('UsersEnv', (CartPoleEnv,), {}))\n"
        "def near(env, obs, action, info): pass\n"
        "near_by_another_name = near\n"
        "def note(run, path): pass\n"
    )
    Path("users_task_of_this_test.py").write_text(source, encoding="utf-8")
    yield "users_task_of_this_test"
    sys.modules.pop("users_task_of_this_test", None)
    registration._REGISTRY.pop("UsersRL", None)


@pytest.mark.parametrize("name", ["users_task_of_this_test.near", "os.system"])
def test_dotted_path_that_is_not_allowed_is_refused_everywhere(user_module: str, name: str) -> None:
    importlib.import_module(user_module)
    term = {"func": name, "mode": "interval", "interval_step": 1}
    env = load_json(CART_POLE_ENV)
    env["env"]["rewards"]["near"] = {"func": name}
    config = tiny_config(trainer__gym_config=env, trainer__events={"eval": {"look": term}}, policy={"name": name})
    found = errors(config)
    for place in ("trainer.events.eval.look.func", "trainer.gym_config.env.rewards.near.func", "policy.name"):
        (line,) = [line for line in found if line.startswith(f"{place}: ")]
        assert f"'{name}' is in a module that is not allowed" in line
        assert f"pass --allow-import {name.rpartition('.')[0]}" in line
    assert len(found) == 3


def test_dotted_path_in_an_allowed_module_is_a_term(user_module: str) -> None:
    env = load_json(CART_POLE_ENV)
    env["env"]["rewards"]["near"] = {"func": f"{user_module}.near"}
    config = tiny_config(trainer__gym_config=env, trainer__import_modules=[user_module])
    run = load_run_config(write_config(Path(), config), allowed_imports=[user_module])
    assert with_scene(run.env, "test").rewards["near"].func is sys.modules[user_module].near
    del sys.modules[user_module]
    (line,) = errors(tiny_config(trainer__gym_config=env), allowed_imports=[user_module])
    assert "must be imported first: list it in trainer.import_modules, pass --import, or import it in Python" in line


def test_config_for_a_gpu_trains_on_the_processor_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    env = load_json(CART_POLE_ENV)
    env["env"]["sim_cfg"] = {"sim_device": "cuda:0"}
    path = write_config(tmp_path, tiny_config(trainer__device="cuda:0", trainer__gym_config=env))
    with pytest.raises(ConfigError) as caught:
        load_run_config(path)
    assert str(caught.value).splitlines() == [
        "trainer.device: 'cuda:0' cannot be used: CUDA is not available here. For the processor, add "
        "trainer.device=cpu to the command line",
        "env.sim_cfg.sim_device: 'cuda:0' cannot be used: CUDA is not available here",
    ]
    args = parse_args(["--config", path, "--device", "cpu"])
    run = load_run_config(path, all_overrides(args))
    assert isinstance(run.env, EmbodiedEnvCfg)
    assert (run.algorithm.device, run.env.sim_cfg.sim_device) == ("cpu", "cpu")
    (warning,) = capsys.readouterr().err.splitlines()
    assert "env.sim_cfg.sim_device: 'cuda:0' is not here: the physics runs on the processor, too" in warning
    # On a machine with GPUs each stays where the config has it.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    run = load_run_config(path, ["trainer.device=cpu"])
    assert isinstance(run.env, EmbodiedEnvCfg)
    assert (run.algorithm.device, run.env.sim_cfg.sim_device) == ("cpu", "cuda:0")


@pytest.mark.parametrize("path", ["trainer.seed", "algorithm.cfg.batch_size"])
def test_setting_at_the_top_is_told_its_place(path: str) -> None:
    key = path.rpartition(".")[2]
    assert errors(tiny_config(**{key: 10})) == [f"{key}: unknown key. Did you mean '{path}'?"]


def test_loggers_of_a_config_are_checked_and_stand_in_the_record(user_module: str, tmp_path: Path) -> None:
    logger = {"func": f"{user_module}.note", "params": {"path": "a.csv"}}
    config = tiny_config(trainer__import_modules=[user_module], trainer__loggers=[logger])
    run = load_run_config(write_config(tmp_path, config), allowed_imports=[user_module])
    ((name, func, params),) = run.loggers
    assert (name, func.__name__, params) == (logger["func"], "note", {"path": "a.csv"})
    assert run.resolved["trainer"]["loggers"] == [logger]
    assert load_checkpoint_config(run.resolved, allowed_imports=[user_module]) == run
    with pytest.raises(ConfigError, match=r"trainer\.import_modules: .*--allow-import"):
        load_run_config(write_config(tmp_path, config))


ARM = """<mujoco><worldbody><body name="link"><joint name="hinge" type="hinge" range="-1 1" limited="true"/>
<geom size="0.1"/></body></worldbody></mujoco>"""
ASYNC_CAMERA = {"func": "record_camera_data_async", "mode": "interval"}


def load(folder: Path, **changes: Any) -> RunConfig:
    return load_run_config(write_config(folder, tiny_config(**changes)))


def env_with(**events: Any) -> dict[str, Any]:
    env: dict[str, Any] = load_json(CART_POLE_ENV)
    env["env"]["events"] = events
    return env


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer__iterations": 9, "trainer__device": "cpu", "trainer__keep_last": 3, "trainer__headless": False},
        {"trainer__events": {"train": {"look": ASYNC_CAMERA}, "eval": {"other": NUDGE}}},
        {"trainer__gym_config": load_json(CART_POLE_ENV) | {"$schema": "x", "max_episodes": 3}},
        {"algorithm__cfg": {"n_epochs": 1, "batch_size": 8, "gamma": 0.99}},  # the default
    ],
)
def test_what_decides_nothing_may_differ(changes: dict[str, Any], tmp_path: Path) -> None:
    check_resumed_config(load(tmp_path).resolved, load(tmp_path, **changes), "latest")


def test_differences_are_named_by_key_with_both_values(tmp_path: Path) -> None:
    before = load(tmp_path, trainer__gym_config=env_with(start=NUDGE)).resolved
    now = load(tmp_path, trainer__seed=2, trainer__gym_config=env_with(stop=NUDGE))
    with pytest.raises(ConfigError) as caught:
        check_resumed_config(before, now, "latest")
    term = json.dumps(now.resolved["gym_config"]["env"]["events"]["stop"])
    assert str(caught.value).splitlines() == [
        "latest: the config is not the run's:",
        "trainer.seed: 1 in the run, 2 now",
        f"gym_config.env.events.start: {term} in the run, not there now",
        f"gym_config.env.events.stop: not there in the run, {term} now",
    ]


def test_changes_of_the_environments_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_text(json.dumps(load_json(CART_POLE_ENV)), encoding="utf-8")
    run = load(tmp_path, trainer__gym_config=str(path))
    assert changes_of_env_file(run.resolved, run) == []
    path.write_text(json.dumps(load_json(CART_POLE_ENV) | {"max_episode_steps": 7}), encoding="utf-8")
    (line,) = changes_of_env_file(run.resolved, run)
    assert line.startswith("max_episode_steps: ")
    assert line.endswith(" in the run, 7 now")
    path.write_text("{", encoding="utf-8")  # half edited: the run's own config is the one that counts
    (line,) = changes_of_env_file(run.resolved, run)
    assert str(path) in line
    path.unlink()
    assert changes_of_env_file(run.resolved, run) == []


def test_model_file_beside_the_environments_file_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "arm.xml").write_text(ARM, encoding="utf-8")
    path = tmp_path / "sub" / "env.json"
    robot = {"uid": "arm", "fpath": "../arm.xml"}
    actions = {"joints": {"func": "JointPositionTerm"}}
    env = {"id": "RobotRL", "max_episode_steps": 9, "env": {"actions": actions}, "robot": robot}
    path.write_text(json.dumps(env), encoding="utf-8")
    run = load(tmp_path, trainer__gym_config=str(path))
    assert changes_of_env_file(run.resolved, run) == []


@pytest.mark.usefixtures("own_folder")
def test_last_run_is_recorded_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embodichain.agents.rl.checkpoint.saved_run.last_run", lambda exp_name: Path("outputs/x"))
    found = {
        target: load(Path(), policy__init_from=target).resolved["policy"]["init_from"]
        for target in ("latest", "latest/best", "outputs/y", "hf:user/name")
    }
    assert [*found.values()] == ["outputs/x", "outputs/x/best", "outputs/y", "hf:user/name"]


def test_field_says_itself_whether_it_may_change() -> None:
    assert {"trainer.iterations", "trainer.events.eval", "gym_config.env.sim_cfg.num_threads"} <= {*may_change()}
    assert not {"trainer.seed", "trainer.buffer_size", "trainer.asynchronous", "trainer.events"} & {*may_change()}
