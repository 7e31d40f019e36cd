import dataclasses
import json
import os
import types
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl import build, run_folder
from embodichain.agents.rl.build import build_envs, build_learner, build_trainer, for_rank, provide
from embodichain.agents.rl.distributed.launch import Placement
from embodichain.agents.rl.run_config import RunConfig, load_run_config, with_scene
from embodichain.agents.rl.run_folder import RunFolder
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError, device, replace
from tests.agents.rl.fakes import tiny_config, write_config

pytestmark = pytest.mark.usefixtures("own_folder")

RECURRENT: dict[str, Any] = {
    "name": "actor_critic_recurrent",
    "hidden_size": 4,
    "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}},
    "critic": {"type": "mlp", "network_cfg": {"hidden_sizes": [4]}},
}


def build_tiny(**changes: Any) -> tuple[RunConfig, Any, Any, Any]:
    """Return the config of a training without evaluation, its environment, policy and algorithm."""
    run = load_run_config(write_config(Path(), tiny_config(trainer__enable_eval=False, **changes)))
    env, _ = build_envs(run)
    return run, env, *build_learner(run, env, torch.device("cpu"))


def test_without_evaluation_there_is_no_second_environment() -> None:
    run = load_run_config(write_config(Path(), tiny_config(trainer__enable_eval=False)))
    assert run.eval_env is None
    env, eval_env = build_envs(run)
    assert eval_env is None
    assert isinstance(env, CartPoleEnv)


def test_action_size_that_is_not_the_environments_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"policy\.action_dim is 3, the environment's action size is 1"):
        build_tiny(policy__action_dim=3)


# Rollouts have 2 environments of 4 steps, minibatches 8 transitions.
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"policy__sequence_length": 3}, r"policy\.sequence_length: a rollout of 4 steps .* sequences of 3"),
        ({"algorithm__cfg__batch_size": 3}, r"algorithm\.cfg\.batch_size: 3 transitions are less than one sequence"),
    ],
)
def test_sequences_that_do_not_fit_the_rollouts_are_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        build_tiny(policy=RECURRENT, **changes)


def test_off_policy_sequences_need_not_fit_the_rollouts() -> None:
    *_, policy, algorithm = build_tiny(policy=RECURRENT | {"sequence_length": 3}, algorithm={"name": "off_policy_fake"})
    assert (policy.sequence_length, algorithm.learns_from) == (3, "replay")


def test_memory_of_final_observations_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 environments x (4 + 1) slots x (6 of the observation + 4 of the hidden state) float32: 400 bytes more."""
    wanted: list[int] = []

    def check(place: str, what: str, size: int, device: torch.device) -> None:
        wanted.extend([size] if place == "trainer.buffer_size" else [])

    monkeypatch.setattr(build, "check_memory", check)
    for name in ("ppo", "off_policy_fake"):
        build_tiny(policy=RECURRENT, algorithm={"name": name})
    assert wanted[1] - wanted[0] == 400


def test_gradients_and_copy_of_a_policy_must_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    run, env, policy, _ = build_tiny()
    count = sum(values.numel() for values in policy.parameters())
    monkeypatch.setattr(device, "available_memory", lambda device: 8 * count)  # float32, twice
    build.check_built_policy(run, env, policy, torch.device("cpu"))
    monkeypatch.setattr(device, "available_memory", lambda device: 8 * count - 1)
    with pytest.raises(
        ConfigError, match=f"^policy: gradients and the saved copy of the policy's {count:,} parameters"
    ):
        build.check_built_policy(run, env, policy, torch.device("cpu"))


@pytest.mark.parametrize("role", ["actor", "critic"])
def test_network_that_does_not_fit_the_memory_is_named(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    monkeypatch.setattr(device, "available_memory", lambda device: 10**9)
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [10**6, 10**6]}}
    with pytest.raises(ConfigError, match=rf"^policy\.{role}\.network_cfg\.hidden_sizes: the [\d,]+ parameters"):
        build_tiny(policy=RECURRENT | {role: network})


SYMMETRY = {
    "observations": {
        name: {"permutation": [0, 1], "signs": [-1, -1]} for name in ("robot/qf", "robot/qpos", "robot/qvel")
    },
    "actions": {"delta_qpos": {"permutation": [0], "signs": [-1]}},
}


def symmetric_learner(network: dict[str, Any], *overrides: str) -> Any:
    symmetry = {"algorithm__cfg__symmetry": {"mirror_loss_coef": 0.5}, "trainer__enable_eval": False}
    run = load_run_config(write_config(Path(), tiny_config(**network, **symmetry)), overrides)
    env, _ = build_envs(run)
    algorithm = build_learner(run, env, torch.device("cpu"))[1]
    provide(algorithm, run, env, Path())
    return algorithm


def test_learner_with_symmetry_gets_the_environments_mirror_map() -> None:
    algorithm = symmetric_learner({}, f"env.symmetry={json.dumps(SYMMETRY)}")
    assert algorithm.cfg.symmetry.mirror_loss_coef == 0.5
    assert algorithm.symmetry.mirror_map.obs.size == 6


def test_symmetry_in_an_environment_without_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.symmetry: no mirror map: the config of CartPoleEnv has"):
        symmetric_learner({})


def tiny_parts(**changes: Any) -> tuple[Any, ...]:
    run = load_run_config(write_config(Path(), tiny_config(**changes)))
    env, eval_env = build_envs(run)
    policy, algorithm = build_learner(run, env, torch.device("cpu"))
    return run, RunFolder.create("tiny"), env, eval_env, policy, algorithm


def test_folder_of_a_run_has_the_resolved_config() -> None:
    run, folder, *rest = tiny_parts()
    trainer = build_trainer(run, folder, *rest)
    trainer.log.close()
    assert json.loads((folder.path / "config.json").read_text(encoding="utf-8")) == json.loads(json.dumps(run.resolved))
    assert sorted(os.listdir(folder.path)) == ["checkpoints", "config.json", "logs", "metrics.jsonl"]


def test_failed_start_removes_its_folder_and_closes_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tiny_parts()

    def fail(self: EmbodiedEnv, **kwargs: Any) -> Any:
        raise RuntimeError("no start position")

    monkeypatch.setattr(EmbodiedEnv, "reset", fail)
    with pytest.raises(RuntimeError, match="no start position"):  # an open file would be a ResourceWarning
        build_trainer(*parts)
    assert not Path("outputs").exists()


@pytest.mark.parametrize(("place", "expected"), [("cuda:0", "cuda:1"), ("cpu", "cpu"), ("warp:cpu", "warp:cpu")])
def test_process_has_physics_and_images_on_its_own_gpu(place: str, expected: str) -> None:
    run = load_run_config(write_config(Path(), tiny_config()))
    sim_cfg = replace(with_scene(run.env, "test").sim_cfg, sim_device=place, render_device=place)
    run = dataclasses.replace(run, env=replace(run.env, sim_cfg=sim_cfg))
    own = with_scene(for_rank(run, Placement(), 3, torch.device("cuda", 1)).env, "test").sim_cfg
    assert (own.sim_device, own.render_device) == (expected, expected)


# --- the run's folder ---


def test_run_that_begins_in_the_same_second_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([datetime(2026, 1, 2, 3, 4, second) for second in (5, 5, 5, 6)])
    monkeypatch.setattr(run_folder, "datetime", types.SimpleNamespace(now=lambda: next(clock)))
    monkeypatch.setattr(run_folder, "time", types.SimpleNamespace(sleep=lambda seconds: None))
    names = [RunFolder.create("a").path.name for _ in range(2)]
    assert names == ["a_20260102_030405", "a_20260102_030406"]
    assert sorted(os.listdir("outputs")) == names


def test_folder_has_name_and_time_and_its_subfolders() -> None:
    folder = RunFolder.create("my.exp-1")
    assert folder.path.parent == Path("outputs")
    name, date, time = folder.path.name.rsplit("_", 2)
    assert (name, len(date), len(time), (date + time).isdigit()) == ("my.exp-1", 8, 6, True)
    assert sorted(os.listdir(folder.path)) == ["checkpoints", "logs"]


def test_removing_a_folder_leaves_those_of_other_runs() -> None:
    first, second = RunFolder.create("a"), RunFolder.create("b")
    first.remove()
    assert os.listdir("outputs") == [second.path.name]
    second.remove()
    assert not Path("outputs").exists()
