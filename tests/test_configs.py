"""Every config that is shipped: it is read, its environment steps, and the documented command runs on it."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo import get_registered_algo_names
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.build import build_envs, build_learner
from embodichain.agents.rl.checkpoint.saved_run import last_run
from embodichain.agents.rl.models import get_registered_policy_names
from embodichain.agents.rl.models.registry import get_policy_class
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import main
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.registry import get_env_spec, make
from embodichain.utils import ConfigError, collected
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_json
from tests.shipped import REPOSITORY, TRAIN_CONFIGS, env_config_of

ENV_CONFIGS = sorted(REPOSITORY.glob("configs/**/gym_config*.json"))
# A run of seconds at the sizes of the documents, without videos: those are tested elsewhere.
TINY = [
    "trainer.num_envs=2",
    "trainer.iterations=2",
    "trainer.buffer_size=4",
    "trainer.num_eval_envs=2",
    "trainer.num_eval_episodes=2",
    "trainer.events={}",
    "algorithm.cfg.batch_size=8",
]
TINY_REPLAY = ["algorithm.cfg.learning_starts=8", "algorithm.cfg.replay_capacity=100"]
# It begins from another command's run, and chooses two actions at a time.
TINY_VLA = [
    "policy.init_from=null",
    "policy.vla_config.model_config.chunk_length=2",
    "policy.vla_config.model_config.width=20",
    "algorithm.cfg.batch_size=4",
]


def tiny(path: Path) -> list[str]:
    """Return the overrides that make a config tiny."""
    data = load_json(path)
    cfg = data["algorithm"]["cfg"]
    groups = ["algorithm.cfg.group_size=2"] if "group_size" in cfg else []
    of_algorithm = {"sac": TINY_REPLAY, "bc": ["algorithm.cfg.updates_per_iteration=1"]}
    replay = of_algorithm.get(data["algorithm"]["name"], ["algorithm.cfg.n_epochs=1"])
    shown = ["algorithm.cfg.num_demonstrations=2"] if "demonstrations" in cfg else []
    return [*TINY, *replay, *shown, *groups, *(TINY_VLA if data["policy"]["name"] == "vla" else [])]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY / "configs/agents/rl"))


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def test_there_are_configs_of_two_kinds_and_of_no_other() -> None:
    assert {path.name for path in REPOSITORY.glob("configs/agents/**/*.json")} == {
        path.name for path in [*TRAIN_CONFIGS, *ENV_CONFIGS]
    }
    for folder in ("push_cube", "basic/cart_pole", "reach", "open_drawer", "pick_cube"):
        for name in ("gym_config.json", "train_config.json", "train_config_quickstart.json"):
            assert REPOSITORY / "configs/agents/rl" / folder / name in [*TRAIN_CONFIGS, *ENV_CONFIGS]


@pytest.mark.parametrize("path", ENV_CONFIGS, ids=name_of)
def test_environment_of_every_config_steps_finite(path: Path) -> None:
    data = load_json(path)
    env = make(data["id"], config_to_cfg(data), num_envs=2)
    obs, _ = env.reset(seed=0)
    assert flatten_dict_observation(obs).isfinite().all()
    for _ in range(3):
        action = torch.rand(2, *env.single_action_space.shape) * 2 - 1
        obs, reward, *_, info = env.step(action)
        assert flatten_dict_observation(obs).isfinite().all()
        assert reward.isfinite().all()
        assert all(value.isfinite().all() for value in (info["rewards"] | info["metrics"]).values())
    env.close()


# Keys without which a config says what it needs, and those whose defaults do not fit the sizes that are left.
NEEDED = {
    "trainer.gym_config.id": "the name of an environment is needed",
    "trainer.gym_config": "trainer.gym_config: required, but missing",
    "policy.name": "policy.name: required, but missing",
    "policy.actor": "the block has no 'actor'",
    "policy.critic": "the block has no 'critic'",
    "policy.teacher": "policy.teacher: is needed by algorithm.name 'distillation'",
    "algorithm.name": "algorithm.name: required, but missing",
    "trainer.events.eval.record_camera.func": "record_camera.func: required, but missing",
    "trainer.events.train.pose.func": "pose.func: required, but missing",
}
NEEDED_OF_CHUNKS = {"trainer.buffer_size": "cannot be divided into chunks of 5 actions"}


def needed_of_networks(policy: dict[str, Any]) -> dict[str, str]:
    """Return the needed keys of networks that read images, and of those that are no MLPs."""
    blocks = {name: policy.get(name, {}) for name in ("encoder", "actor", "critic")}
    keys = [name for name, block in blocks.items() if "keys" in block]
    typed = [name for name, block in blocks.items() if block.get("type", "mlp") != "mlp"]
    return {f"policy.{name}.keys": f"policy.{name}.keys: required, but missing" for name in keys} | {
        f"policy.{name}.type": "object that does not say of which type it is" for name in typed
    }


def keys_in(node: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every key inside a config, at any depth."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(node, dict):
            yield (*path, key)
        if isinstance(value, dict | list):
            yield from keys_in(value, *path, key)


def without(config: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return a copy of a config without a key."""
    left = copy.deepcopy(config)
    node: Any = left
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return left


def without_one(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a config without each of its keys, once without all of the algorithm's settings, and each key's path."""
    for path in keys_in(config):
        if path[1:]:
            yield ".".join(map(str, path)), without(config, path)
    yield "all of algorithm.cfg", config | {"algorithm": config["algorithm"] | {"cfg": {}}}


def first_with_a_key() -> dict[Path, list[str]]:
    """Return the keys of each training config that none before it has beside the same algorithm and policy."""
    seen: set[tuple[str, ...]] = set()
    found: dict[Path, list[str]] = {}
    for path in TRAIN_CONFIGS:
        config = load_json(path)
        keys = {(config["algorithm"]["name"], config["policy"]["name"], key) for key, _ in without_one(config)}
        if keys - seen:
            found[path] = [key[-1] for key in keys - seen]
        seen |= keys
    return found


WITH_NEW_KEYS = first_with_a_key()


@pytest.mark.e2e
@pytest.mark.ext
@pytest.mark.parametrize("path", WITH_NEW_KEYS, ids=name_of)
def test_every_key_with_a_default_may_be_left_out(path: Path, tmp_path: Path) -> None:
    config = load_json(path)
    config["trainer"]["device"] = "cpu"
    needed = NEEDED | needed_of_networks(config["policy"])
    config["policy"]["init_from"] = None  # another command's run
    if config["policy"]["name"] == "vla":
        needed = NEEDED | (NEEDED_OF_CHUNKS if config["algorithm"]["name"] != "bc" else {})
    if config["policy"]["name"] == "actor_critic_recurrent":
        needed = needed | {"trainer.buffer_size": "less than one sequence of the policy"}
    if config["algorithm"]["name"] == "grpo":
        needed = needed | {"trainer.num_envs": "1 environments (trainer.num_envs)"}
    env, eval_env = build_envs(load_run_config(path, ["trainer.device=cpu", *tiny(path)]))
    if eval_env is not None:
        eval_env.close()
    file = tmp_path / "train.json"
    for name, left in without_one(config):
        if name not in WITH_NEW_KEYS[path]:
            continue
        file.write_text(json.dumps(left), encoding="utf-8")
        if name not in needed:
            build_learner(load_run_config(file), env, torch.device("cpu"))
            continue
        with pytest.raises(ConfigError) as caught:
            build_learner(load_run_config(file), env, torch.device("cpu"))
        assert needed[name] in str(caught.value)
    env.close()


# What an environment's config needs, as the errors say it: a thing's or term's own keys, and what others name.
IS_NEEDED = re.compile(
    r"required, but missing|is needed, got None|at least one action term is needed|must be 'modify', got 'add'"
    r"|unknown (entry|joint)|no (rigid object |robot )?'\w+' in the scene|no command|no contact sensor"
    r"|no control part|needs an arm"
    r"|has \d+ values for \d+ joints|no joint \d+\. There are"
    r"|must be an object with '(shape_type|kind)'|does not say of which type it is"
    r"|give either bound|servo_gain needs a servo|eye and target belong together"
    r"|or an object with one of|whose grip \w+ measures|needs an? [a-z ]+ '\w+'"
)


@pytest.mark.e2e
def test_every_key_of_an_environment_with_a_default_may_be_left_out() -> None:
    seen: set[tuple[str | int, ...]] = set()
    needed = 0
    for path in ENV_CONFIGS:
        config = load_json(path)
        env_class = get_env_spec(config["id"]).cls
        for key in [key for key in keys_in(config) if key not in seen]:
            problems: list[str] = []
            with collected(problems):
                config_to_cfg(without(config, key), env_class=env_class)
            assert all(map(IS_NEEDED.search, problems)), (path, key, problems)
            needed += bool(problems)
        seen.update(keys_in(config))
    assert needed < 0.6 * len(seen)


SMALLEST = [
    ("actor_critic", "ppo", "basic/cart_pole", 2),
    ("actor_critic", "bc", "pick_cube", 2),
    ("actor_critic_recurrent", "ppo", "basic/cart_pole", 2),
    ("actor_critic", "distillation", "basic/cart_pole", 2),
    ("actor_only", "grpo", "basic/cart_pole", 8),
    ("soft_actor_critic", "sac", "reach", 2),
    ("deterministic_actor_critic", "td3", "reach", 2),
    ("vla", "ppo", "push_colored_cube", 2),
]
NETWORKS: dict[str, Any] = {"actor_only": {"actor": {}}, "vla": {}}


@pytest.mark.ext
def test_smallest_configs_are_of_every_shipped_algorithm_and_policy() -> None:
    policies = {name: get_policy_class(name).__module__ for name in get_registered_policy_names()}
    algorithms = {name: get_algo_class(name).__module__ for name in get_registered_algo_names()}
    for i, modules in enumerate((policies, algorithms)):
        assert {name for name in modules if modules[name].startswith("embodichain.")} == {row[i] for row in SMALLEST}


@pytest.mark.e2e
@pytest.mark.ext
@pytest.mark.parametrize(("policy", "algorithm", "task", "num_envs"), SMALLEST)
def test_training_needs_sizes_alone(
    policy: str, algorithm: str, task: str, num_envs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gym_config = str(REPOSITORY / "configs/agents/rl" / task / "gym_config.json")
    sizes = {"gym_config": gym_config, "num_envs": num_envs, "iterations": 1, "buffer_size": 8}
    networks = NETWORKS.get(policy, {"actor": {}, "critic": {}})
    config = {"trainer": sizes, "policy": {"name": policy} | networks, "algorithm": {"name": algorithm}}
    Path("train.json").write_text(json.dumps(config), encoding="utf-8")
    teacher = []
    if algorithm == "distillation":
        assert main(["--config", "train.json", "algorithm.name=ppo"]) == 0
        teacher = ["policy.teacher=outputs/generic_exp"]
    assert main(["--config", "train.json", *teacher]) == 0


@pytest.mark.e2e
@pytest.mark.ext
@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=name_of)
def test_documented_command_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the outputs; the environment's config is then found by its own path
    # An expert needs the time to succeed.
    limit = 60 if "demonstrations" in load_json(path)["algorithm"]["cfg"] else 5
    limited = env_config_of(load_json(path)) | {"max_episode_steps": limit}
    if "LunarLander" in limited["id"]:
        pytest.importorskip("Box2D", reason="needs gymnasium[box2d]")
    Path("gym_config.json").write_text(json.dumps(limited), encoding="utf-8")
    policy, before = load_json(path)["policy"], path.with_name("train_config_quickstart.json")
    needs_run = "teacher" in policy or ("init_from" in policy and policy["name"] != "vla")
    for each in [*([before] if needs_run else []), path]:
        assert main(["--config", str(each), "trainer.gym_config=gym_config.json", *tiny(each)]) == 0
    summary = last_run() / "summary.json"
    # 2 iterations x 4 steps x 2 environments; an episode of 5 steps leaves no sixth for its third chunk of 2. Cloning:
    # 2 minibatches of 8 frames, of a VLA 4.
    data = load_json(path)
    of_vla = 8 if data["algorithm"]["name"] == "bc" else 14
    assert load_json(summary)["env_steps"] == (of_vla if data["policy"]["name"] == "vla" else 16)
