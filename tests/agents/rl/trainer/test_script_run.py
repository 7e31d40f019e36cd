"""A ``Trainer`` that a script has made by hand. Shapes: N = 2 environments, T = 4 steps: an iteration has 8 steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.checkpoint.saved_run import RunLock, find_run
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.distributed.process_group import ProcessGroup, forget_process_group, get_process_group
from embodichain.agents.rl.models import Policy, build_mlp_from_cfg, build_policy
from embodichain.agents.rl.train import main
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.record import record_camera_data
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.state import freeze
from embodichain.utils.utility import load_json
from tests.agents.rl.distributed.processes import environment, free_port, run_ranks
from tests.agents.rl.fakes import (
    CART_POLE_ENV,
    NETWORK,
    PUSH_CUBE_ENV,
    IdleAlgorithm,
    ScriptedEnv,
    assert_same,
    linear_policy,
    read_metrics,
    tiny_trainer,
)

pytestmark = pytest.mark.e2e

N, T = 2, 4


def cart_pole_cfg(**changes: Any) -> EmbodiedEnvCfg:
    data = {key: value for key, value in load_json(CART_POLE_ENV).items() if key != "$schema"}
    cfg = config_to_cfg(data | {"num_envs": N, **changes})
    cfg.sim_cfg.sim_device = torch.device("cpu")
    return cfg


@pytest.fixture
def env() -> Iterator[EmbodiedEnv]:
    env = build_env("CartPoleRL", cart_pole_cfg())
    yield env
    env.close()


def make_policy(env: Any, name: str = "actor_critic", **keys: Any) -> Policy:
    """Build a policy as the tutorial's script does: networks first."""
    torch.manual_seed(5)
    size = env.flattened_observation_space.shape[-1]
    networks: dict[str, Any] = {
        "actor": build_mlp_from_cfg(NETWORK, size, 1),
        "critic": build_mlp_from_cfg(NETWORK, size, 1),
    }
    if name == "actor_only":
        del networks["critic"]
    block = {"name": name, **dict.fromkeys(networks, NETWORK), **keys}
    return build_policy(block, env.flattened_observation_space, env.action_space, torch.device("cpu"), **networks)


def make_trainer(env: Any, folder: Path, algorithm: BaseAlgorithm | None = None, **changes: Any) -> Trainer:
    if algorithm is None:
        algorithm = build_algo("ppo", {"n_epochs": 1, "batch_size": 8}, make_policy(env), torch.device("cpu"))
    arguments: dict[str, Any] = {
        "buffer_size": T,
        "batch_size": 8,
        "writer": None,
        "eval_freq": 0,
        "save_freq": 1000,
        "checkpoint_dir": str(folder / "checkpoints"),
        "exp_name": "tiny",
    }
    return Trainer(policy=algorithm.policy, env=env, algorithm=algorithm, **arguments | changes)


# --- what a script hands over ---


def test_second_training_in_a_folder_begins_its_metrics_anew(env: EmbodiedEnv, tmp_path: Path) -> None:
    for _ in range(2):
        make_trainer(env, tmp_path).train(16)
    assert [row["step"] for row in read_metrics(tmp_path)] == [8, 16]


def test_resumed_script_has_each_step_once(env: EmbodiedEnv, tmp_path: Path) -> None:
    make_trainer(env, tmp_path, save_freq=8).train(32)
    again = make_trainer(env, tmp_path)
    again.load_state_dict(load_checkpoint(tmp_path / "checkpoints/tiny_step_16.pt"))
    again.train(32)
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [8, 16, 24, 32]
    assert rows[2]["wall_time"] > rows[1]["wall_time"]


@pytest.mark.parametrize("rate", [3e-4, 1e-5])
def test_resumed_script_with_another_algorithm_is_warned(
    rate: float, env: EmbodiedEnv, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = (
        make_trainer(
            env, tmp_path, build_algo("ppo", {"learning_rate": each, "batch_size": 8}, make_policy(env), "cpu")
        )
        for each in (3e-4, rate)
    )
    again.load_state_dict(first.state_dict())
    assert ("algorithm: the checkpoint has another config" in capsys.readouterr().err) == (rate != 3e-4)


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({"num_eval_episodes": 77}, True),
        ({"events": {"eval": {"push": {"func": "push_robot"}}}}, True),
        ({"events": {"eval": {"look": {"func": "record_camera_data"}}}}, False),
    ],
)
def test_best_is_chosen_again_where_the_evaluation_is_another(
    change: dict[str, Any], is_another: bool, env: EmbodiedEnv, tmp_path: Path
) -> None:
    trainer = make_trainer(env, tmp_path)
    best = {"best_success": 0.9, "best_reward": 1.0, "best_checkpoint": "a.pt"}
    state = freeze(trainer.state_dict()) | best
    state["config"] = {**state["config"], "trainer": {**state["config"]["trainer"], **change}}
    trainer.load_state_dict(state)
    assert (trainer.saver.state_dict() != best) == is_another
    assert trainer.saver.is_best({"eval/success_rate": 0.8, "eval/avg_reward": 0.0}, 24) == is_another


def test_two_scripts_do_not_train_in_one_folder(env: EmbodiedEnv, tmp_path: Path) -> None:
    trainer = make_trainer(env, tmp_path)
    with RunLock() as lock:
        lock.take(tmp_path)
        with pytest.raises(ConfigError, match="trains in this folder"):
            trainer.train(8)
    trainer.train(8)
    trainer.train(16)  # and its own lock is free again


def test_interrupted_script_saves_its_finished_iterations(env: EmbodiedEnv, tmp_path: Path) -> None:
    trainer = make_trainer(env, tmp_path)
    update, iterations = trainer.algorithm.update, 0

    def interrupted(rollout: Any) -> dict[str, float]:
        nonlocal iterations
        iterations += 1
        if iterations == 3:
            raise KeyboardInterrupt
        return update(rollout)

    vars(trainer.algorithm)["update"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.train(80)
    assert trainer.save_checkpoint() == tmp_path / "checkpoints" / "tiny_step_16.pt"
    assert load_checkpoint(tmp_path / "checkpoints" / "tiny_step_16.pt")["iteration"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distributed": True, "rank": 1, "world_size": 2}, r"rank=1, world_size=2\): this is rank 0 of 1"),
        ({"save_freq": 0}, r"^Trainer\.save_freq: must be a positive number of steps"),
        ({"exp_name": "a/b"}, r"^Trainer\.exp_name: .*got 'a/b'"),
        (
            {"eval_event_cfg": {"video": EventCfg(record_camera_data)}},
            r"\(eval_event_cfg=\.\.\.\): there is no eval_env",
        ),
        ({"event_cfg": {"video": EventCfg("record_camera_dat")}}, r"\(event_cfg=\.\.\.\): .*'record_camera_dat'"),
    ],
)
def test_what_does_not_fit_together_is_one_line(
    env: EmbodiedEnv, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_trainer(env, tmp_path, **changes)
    assert "\n" not in str(error.value)


# --- events ---


def count_steps(env: EmbodiedEnv, env_ids: torch.Tensor) -> None:
    """An event: counts in the environment how often it happened to each of its environments."""
    calls = getattr(env, "calls", torch.zeros(env.num_envs))
    env.calls = calls.index_add(0, env_ids, torch.ones(len(env_ids)))  # type: ignore[attr-defined]


def test_events_happen_in_training_and_evaluation_envs(env: EmbodiedEnv, tmp_path: Path) -> None:
    eval_env = build_env("CartPoleRL", cart_pole_cfg(max_episode_steps=4))
    event = {"count": EventCfg(count_steps, mode="interval", interval_step=2)}
    policy = make_policy(env, normalize_obs=False)  # without the steps that begin a normaliser
    make_trainer(
        env,
        tmp_path,
        build_algo("ppo", {"n_epochs": 1, "batch_size": 8}, policy, torch.device("cpu")),
        eval_env=eval_env,
        eval_freq=16,
        num_eval_episodes=2,
        event_cfg=event,
        eval_event_cfg={"count": EventCfg(count_steps, mode="interval", interval_step=1)},
    ).train(16)
    # 8 steps in each training environment, every second of them; 4 steps of one evaluation episode in each, all.
    assert env.calls.tolist() == [4, 4]  # type: ignore[attr-defined]
    assert eval_env.calls.tolist() == [4, 4]  # type: ignore[attr-defined]
    eval_env.close()


# --- groups ---


@pytest.mark.parametrize("has_collector", [False, True])
def test_groups_of_grpo_begin_alike_in_built_environments(has_collector: bool, tmp_path: Path) -> None:
    data = load_json(PUSH_CUBE_ENV)
    del data["$schema"]
    env = build_env("PushCubeRL", config_to_cfg(data | {"num_envs": 4}))
    assert not torch.equal(*env.reset()[0]["object", "cube_pos"][:2])
    policy = build_policy(
        {"name": "actor_only", "actor": NETWORK}, env.flattened_observation_space, env.action_space, "cpu"
    )
    algorithm = build_algo("grpo", {"batch_size": 16, "group_size": 2, "reset_every_rollout": True}, policy, "cpu")
    collector = SyncCollector(env, policy, torch.device("cpu")) if has_collector else None
    trainer = make_trainer(env, tmp_path, algorithm, batch_size=16, collector=collector)
    start = trainer.collector.collect(1)["entries" if policy.obs_keys else "obs"][:, 0]
    env.close()
    assert torch.equal(start[0], start[1])
    assert torch.equal(start[2], start[3])
    assert not torch.equal(start[0], start[2])


# --- what others make of its checkpoints ---


def test_run_of_a_script_is_resumed_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, total in (("whole", 32), ("half", 16)):
        env = build_env("CartPoleRL", cart_pole_cfg(max_episode_steps=5))
        torch.manual_seed(9)
        make_trainer(env, tmp_path / name).train(total)
        env.close()
    assert main(["--resume", "half", "trainer.iterations=4"]) == 0
    whole, half = (load_checkpoint(tmp_path / name / "checkpoints" / "tiny_step_32.pt") for name in ("whole", "half"))
    for part in ("policy", "algorithm", "generators", "env", "collector"):
        assert_same(whole[part], half[part], part)


def test_parts_that_cannot_be_described_are_refused_elsewhere(tmp_path: Path) -> None:
    make_trainer(ScriptedEnv(2), tmp_path, IdleAlgorithm(linear_policy()), batch_size=None).train(16)
    assert load_checkpoint(tmp_path / "checkpoints" / "tiny_step_16.pt")["global_step"] == 16
    with pytest.raises(ConfigError, match=r"the environment ScriptedEnv has no config_data\(\)") as error:
        find_run(str(tmp_path))
    assert "\n" not in str(error.value)


# --- several processes ---


def train_in_own_process_group(rank: int, folder: Path, port: int) -> tuple[Any, ...]:
    """What the tutorial's script does on each rank."""
    address = environment(rank, 2, port)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address['MASTER_ADDR']}:{address['MASTER_PORT']}", rank=rank, world_size=2
    )
    torch.manual_seed(1 + rank)
    env = build_env("CartPoleRL", cart_pole_cfg())
    eval_env = build_env("CartPoleRL", cart_pole_cfg(max_episode_steps=3)) if rank == 0 else None
    policy = make_policy(env)
    algorithm = build_algo("ppo", {"n_epochs": 1, "batch_size": 8}, policy, torch.device("cpu"), distributed=True)
    trainer = make_trainer(
        env,
        folder,
        algorithm,
        eval_env=eval_env,
        eval_freq=16,
        num_eval_episodes=3,
        distributed=True,
        rank=rank,
        world_size=2,
    )
    trainer.train(32)
    trainer.save_checkpoint()
    parameters = torch.cat([p.detach().flatten() for p in policy.parameters()])
    ids = env.random.stream_ids.tolist()
    dist.destroy_process_group()
    forget_process_group()
    return trainer.global_step, parameters, ids, type(get_process_group()) is ProcessGroup


def test_own_process_group_shares_updates_and_rank_0_evaluates(tmp_path: Path) -> None:
    first, second = run_ranks(2, train_in_own_process_group, tmp_path, free_port(), joined=False)
    assert first[0] == second[0] == 32
    assert torch.equal(first[1], second[1])
    assert (first[2], second[2]) == ([0, 1], [2, 3])
    assert first[3]
    assert second[3]
    assert [row["step"] for row in read_metrics(tmp_path) if "eval/avg_reward" in row] == [16, 32]
    assert load_checkpoint(tmp_path / "checkpoints" / "tiny_step_32.pt")["world_size"] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chunk_length": 3}, "buffer_size: 4 steps cannot be divided into chunks of 3"),
        ({"sequence_length": 3}, "sequence_length: a rollout of 4 steps"),
    ],
)
def test_rollouts_that_do_not_fit_the_policy_are_refused(
    settings: dict[str, int], message: str, env: EmbodiedEnv, tmp_path: Path
) -> None:
    policy = make_policy(env)
    vars(policy).update(settings)
    algorithm = IdleAlgorithm(policy)
    with pytest.raises(ConfigError, match=message):
        Trainer(policy=policy, env=env, algorithm=algorithm, **tiny_trainer(tmp_path))
