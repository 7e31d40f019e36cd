"""Every config that is shipped: it is read, its environment steps, and the documented command runs on it."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo import AlgorithmCfg
from embodichain.agents.rl.build import build_envs, build_learner
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import main
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.utils import ConfigError
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_json

REPOSITORY = Path(__file__).resolve().parent.parent
TRAIN_CONFIGS = sorted(REPOSITORY.glob("configs/**/train_config*.json"))
ENV_CONFIGS = sorted(REPOSITORY.glob("configs/**/gym_config*.json"))
BC_CONFIGS = sorted(REPOSITORY.glob("configs/**/bc_config*.json"))
# A run of seconds at the sizes of the documents, without videos: those are tested elsewhere.
TINY = [
    "trainer.num_envs=2",
    "trainer.iterations=2",
    "trainer.buffer_size=4",
    "trainer.num_eval_envs=2",
    "trainer.num_eval_episodes=2",
    "trainer.events={}",
    "algorithm.cfg.n_epochs=1",
    "algorithm.cfg.batch_size=8",
]
# Its model is another command's, and chooses two actions at a time.
TINY_VLA = [
    "policy.vla_config.model_path=null",
    "policy.vla_config.model_config.chunk_length=2",
    "policy.vla_config.model_config.width=20",
    "algorithm.cfg.batch_size=4",
]


def tiny(path: Path) -> list[str]:
    """Return the overrides that make a config tiny."""
    data = load_json(path)
    groups = ["algorithm.cfg.group_size=2"] if "group_size" in data["algorithm"]["cfg"] else []
    return [*TINY, *groups, *(TINY_VLA if data["policy"]["name"] == "vla" else [])]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY / "configs/agents/rl"))


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def test_there_are_configs_of_three_kinds_and_of_no_other() -> None:
    assert {path.name for path in REPOSITORY.glob("configs/agents/**/*.json")} == {
        path.name for path in [*TRAIN_CONFIGS, *ENV_CONFIGS, *BC_CONFIGS]
    }
    for folder in ("push_cube", "basic/cart_pole", "reach", "open_drawer", "pick_cube"):
        for name in ("gym_config.json", "train_config.json", "train_config_quickstart.json"):
            assert REPOSITORY / "configs/agents/rl" / folder / name in [*TRAIN_CONFIGS, *ENV_CONFIGS]


@pytest.mark.parametrize("path", ENV_CONFIGS, ids=name_of)
def test_environment_config_is_read(path: Path) -> None:
    cfg = config_to_cfg(load_json(path))
    assert cfg.max_episode_steps is not None


@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=name_of)
def test_training_config_is_read_and_its_environments_step_finite(path: Path) -> None:
    run = load_run_config(path, [override for override in tiny(path) if override != "trainer.events={}"])
    for env in build_envs(run):
        if env is None:
            continue
        obs, _ = env.reset(seed=0)
        assert flatten_dict_observation(obs).isfinite().all()
        for _ in range(3):
            shape = env.single_action_space.shape
            assert shape is not None
            action = torch.rand(2, *shape) * 2 - 1
            obs, reward, *_, info = env.step(action)
            assert flatten_dict_observation(obs).isfinite().all()
            assert reward.isfinite().all()
            assert all(value.isfinite().all() for value in (info["rewards"] | info["metrics"]).values())
        env.close()


# Keys without which a config says what it needs, and those whose defaults do not fit the sizes that are left.
NEEDED = {
    "trainer.gym_config": "trainer.gym_config: required, but missing",
    "trainer.num_envs": "1 environments (trainer.num_envs)",
    "policy.name": "policy.name: required, but missing",
    "policy.actor": "the block has no 'actor'",
    "policy.critic": "the block has no 'critic'",
}
NEEDED_OF_CHUNKS = {"trainer.buffer_size": "cannot be divided into chunks of 5 actions"}


def without_one(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a config without each of its keys, once without all of the algorithm's settings, and each key's path."""
    paths: list[tuple[str, ...]] = [(block, key) for block in ("trainer", "policy") for key in config[block]]
    paths += [("algorithm", "cfg"), *(("algorithm", "cfg", key) for key in config["algorithm"]["cfg"])]
    for *blocks, key in paths:
        left = copy.deepcopy(config)
        node = left
        for block in blocks:
            node = node[block]
        del node[key]
        yield ".".join([*blocks, key]), left
    yield "all of algorithm.cfg", config | {"algorithm": config["algorithm"] | {"cfg": {}}}


@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=name_of)
def test_every_key_with_a_default_may_be_left_out(path: Path, tmp_path: Path) -> None:
    config = load_json(path)
    config["trainer"]["device"] = "cpu"
    needed = NEEDED
    if config["policy"]["name"] == "vla":
        config["policy"]["vla_config"]["model_path"] = None
        needed = NEEDED | NEEDED_OF_CHUNKS
    if config["algorithm"]["cfg"].get("batch_size") == AlgorithmCfg.batch_size and "group_size" not in str(config):
        needed = {key: message for key, message in needed.items() if key != "trainer.num_envs"}  # at most so many
    env, eval_env = build_envs(load_run_config(path, ["trainer.device=cpu", *tiny(path)]))
    if eval_env is not None:
        eval_env.close()
    file = tmp_path / "train.json"
    for name, left in without_one(config):
        file.write_text(json.dumps(left), encoding="utf-8")
        if name not in needed:
            build_learner(load_run_config(file), env, torch.device("cpu"))
            continue
        with pytest.raises(ConfigError) as caught:
            build_learner(load_run_config(file), env, torch.device("cpu"))
        assert needed[name] in str(caught.value)
    env.close()


@pytest.mark.parametrize(
    ("policy", "algorithm", "num_envs"),
    [("actor_critic", "ppo", 2), ("actor_critic_recurrent", "ppo", 2), ("actor_only", "grpo", 8)],
)
def test_training_needs_sizes_alone(
    policy: str, algorithm: str, num_envs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gym_config = str(REPOSITORY / "configs/agents/rl/basic/cart_pole/gym_config.json")
    sizes = {"gym_config": gym_config, "num_envs": num_envs, "iterations": 1, "buffer_size": 4}
    networks: dict[str, Any] = {"actor": {}} if policy == "actor_only" else {"actor": {}, "critic": {}}
    config = {"trainer": sizes, "policy": {"name": policy} | networks, "algorithm": {"name": algorithm}}
    Path("train.json").write_text(json.dumps(config), encoding="utf-8")
    assert main(["--config", "train.json"]) == 0


def test_loading_takes_no_time_to_speak_of() -> None:
    path = REPOSITORY / "configs/agents/rl/push_cube/train_config.json"
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        load_run_config(path)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=name_of)
def test_paths_in_the_config_are_those_of_the_documented_command(path: Path) -> None:
    # It is given from the repository's root: python -m embodichain.agents.rl.train --config <path>
    trainer = load_json(path)["trainer"]
    assert (REPOSITORY / trainer["gym_config"]).is_file()


@pytest.mark.parametrize("path", TRAIN_CONFIGS, ids=name_of)
def test_documented_command_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the outputs; the environment's config is then found by its own path
    gym_config = REPOSITORY / load_json(path)["trainer"]["gym_config"]
    limited = load_json(gym_config) | {"max_episode_steps": 5}
    Path("gym_config.json").write_text(json.dumps(limited), encoding="utf-8")
    assert main(["--config", str(path), "trainer.gym_config=gym_config.json", *tiny(path)]) == 0
    (summary,) = tmp_path.glob("outputs/*/summary.json")
    # 2 iterations x 4 steps x 2 environments; an episode of 5 steps leaves no sixth for its third chunk of 2
    assert load_json(summary)["env_steps"] == (14 if load_json(path)["policy"]["name"] == "vla" else 16)
