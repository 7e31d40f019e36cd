import dataclasses
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
from embodichain.agents.rl.run_folder import create_folder, remove_folder
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError, device, replace
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config

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


def test_learner_with_symmetry_gets_the_environments_mirror_map() -> None:
    environment = load_json(CART_POLE_ENV)
    environment["env"]["symmetry"] = SYMMETRY
    changes = {"trainer__gym_config": environment, "algorithm__cfg__symmetry": {"mirror_loss_coef": 0.5}}
    run, env, _, algorithm = build_tiny(**changes)
    provide(algorithm, run, env, Path())
    assert algorithm.cfg.symmetry.mirror_loss_coef == 0.5
    assert algorithm.symmetry.mirror_map.obs.size == 6


def test_failed_start_removes_its_folder_and_closes_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    run, *parts = build_tiny()

    def fail(self: EmbodiedEnv, **kwargs: Any) -> Any:
        raise RuntimeError("no start position")

    monkeypatch.setattr(EmbodiedEnv, "reset", fail)
    with pytest.raises(RuntimeError, match="no start position"):  # an open file would be a ResourceWarning
        build_trainer(run, create_folder("tiny"), parts[0], None, *parts[1:])
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
    names = [create_folder("a").name for _ in range(2)]
    assert names == ["a_20260102_030405", "a_20260102_030406"]
    assert sorted(os.listdir("outputs")) == names


def test_removing_a_folder_leaves_those_of_other_runs() -> None:
    first, second = create_folder("a"), create_folder("b")
    remove_folder(first)
    assert os.listdir("outputs") == [second.name]
    remove_folder(second)
    assert not Path("outputs").exists()
