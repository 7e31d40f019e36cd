"""An update of W processes is that of one process on the same rollout.

N = 8 environments of T = 6 steps; each of W processes has N / W of them. Minibatches of the single process are made of
those of the processes, in their order; everything else is as it is.
"""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.algo import build_algo, grpo, normalize_advantages, ppo
from embodichain.agents.rl.algo.grpo import alive_mask
from embodichain.agents.rl.buffer import rollout_buffer
from embodichain.agents.rl.buffer.rollout_buffer import minibatch_sizes
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.distributed.process_group import TorchProcessGroup
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.agents.rl.models import MLP, ActorCritic, ActorOnly, Policy
from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.trainer.trainer import Trainer, check_in_step
from embodichain.utils import ConfigError
from tests.agents.rl.distributed import users_algorithm
from tests.agents.rl.distributed.processes import RankError, run_ranks
from tests.agents.rl.fakes import read_metrics, tiny_config, write_config
from tests.agents.rl.test_resume import rows

pytestmark = pytest.mark.e2e

N, T, OBS, A, W = 8, 6, 3, 2, 4
NUM_UPDATES = 2

# Of 48 transitions, batches of 20 of a single process leave a remainder of 8.
COMMON: dict[str, Any] = {"n_epochs": 2, "learning_rate": 0.003}
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "ppo": ("ppo", {"ent_coef": 0.01, "clip_value_coef": 0.2}, False),
    "ppo, normaliser": ("ppo", {"n_epochs": 3}, True),
    "ppo, rate and end by divergence": (
        "ppo",
        {"lr_schedule": "adaptive", "desired_kl": 1e-4, "max_kl": 0.003, "n_epochs": 6},
        True,
    ),
    "ppo, advantages by minibatch": ("ppo", {"normalize_advantages": "minibatch"}, False),
    "grpo": ("grpo", {"group_size": 2, "kl_coef": 0.1}, False),
    "grpo, normaliser": ("grpo", {"group_size": 2, "ent_coef": 0.01}, True),
    "user's": ("users_a2c", {}, True),
}


def make_policy(algorithm: str, normalize_obs: bool, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    actor, critic = MLP(OBS, A, [8], "tanh"), MLP(OBS, 1, [8], "tanh")
    if algorithm == "grpo":
        return ActorOnly(OBS, A, "cpu", actor, normalize_obs=normalize_obs)
    return ActorCritic(OBS, A, "cpu", actor, critic, normalize_obs=normalize_obs)


def make_rollout(policy: Policy, number: int, envs: slice) -> TensorDict:
    """Return the rollout of some of the N environments: what it holds does not depend on which others are there."""
    generator = torch.Generator().manual_seed(number)
    obs = 3 + 2 * torch.randn(N, T + 1, OBS, generator=generator)
    action = torch.randn(N, T + 1, A, generator=generator)
    terminated = torch.rand(N, T + 1, generator=generator) < 0.2
    fields: dict[str, Tensor] = {
        "obs": obs,
        "action": action,
        "reward": torch.randn(N, T + 1, generator=generator),
        "done": terminated,
        "terminated": terminated,
        "truncated": torch.zeros_like(terminated),
    }
    rollout = TensorDict(fields, batch_size=[N, T + 1])[envs]
    with torch.no_grad():
        new = policy.evaluate_actions(rollout)
    rollout["sample_log_prob"] = new["sample_log_prob"] + 0.1 * torch.randn(N, T + 1, generator=generator)[envs]
    rollout["value"] = new["value"]
    return rollout


def shuffled(rank: int, epoch: int, count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(1000 * epoch + rank)).argsort()


def learn(name: str, envs: slice, distributed: bool) -> list[dict[str, Tensor]]:
    """Return the policy's state after each update."""
    algorithm, settings, normalises = CASES[name]
    # ProcessGroup begin with different parameters: those of rank 0 count.
    policy = make_policy(algorithm, normalises, seed=envs.start)
    batch_size = 20 // W * (1 if distributed else W)
    learner = build_algo(
        algorithm, COMMON | settings | {"batch_size": batch_size}, policy, "cpu", distributed=distributed
    )
    states = []
    for number in range(NUM_UPDATES):
        rollout = make_rollout(policy, number, envs)
        learner.update(rollout)
        policy.update_normalizer(rollout["obs"][:, :-1])
        states.append({name: value.clone() for name, value in policy.state_dict().items()})
    return states


def in_order(rank: int, epochs: Iterator[int], count: int, device: Any) -> Tensor:
    return shuffled(rank, next(epochs), count)


def learn_as_rank(process_group: TorchProcessGroup) -> dict[str, list[dict[str, Tensor]]]:
    share = N // W
    results = {}
    for name in CASES:
        epochs = iter(range(100))
        rollout_buffer.torch.randperm = partial(in_order, process_group.rank, epochs)  # type: ignore[attr-defined]
        envs = slice(process_group.rank * share, (process_group.rank + 1) * share)
        results[name] = learn(name, envs, distributed=True)
    return results


def learn_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """Learn in this process, in minibatches that hold what those of W processes hold together."""
    epochs = iter(range(100))

    def together(flat: TensorDict, batch_size: int, device: Any) -> Iterator[TensorDict]:
        counts = rows_of_ranks(flat)
        offsets = [sum(counts[:rank]) for rank in range(W)]
        epoch = next(epochs)
        pieces = [
            (shuffled(rank, epoch, count) + offset).split(minibatch_sizes(count, batch_size // W, counts))
            for rank, (count, offset) in enumerate(zip(counts, offsets, strict=True))
        ]
        for parts in zip(*pieces, strict=True):
            yield flat[torch.cat(parts)]

    for module in (ppo, grpo, users_algorithm):
        monkeypatch.setattr(module, "iterate_minibatches", together)
    return learn(name, slice(0, N), distributed=False)


def rows_of_ranks(flat: TensorDict) -> list[int]:
    if len(flat) == N * T:
        return [N * T // W] * W
    # GRPO keeps the steps of first episodes alone.
    rollouts = [make_rollout(make_policy("grpo", False), number, slice(0, N)) for number in range(NUM_UPDATES)]
    valid = [alive_mask(rollout["done"][:, :-1]) for rollout in rollouts]
    (mask,) = (mask for mask in valid if mask.sum() == len(flat))
    return [int(part.sum()) for part in mask.chunk(W)]


@pytest.fixture(scope="module")
def learned() -> list[dict[str, list[dict[str, Tensor]]]]:
    return run_ranks(W, learn_as_rank)


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_have_the_same_bits_after_every_update(name: str, learned: list[Any]) -> None:
    for other in learned[1:]:
        for own_state, state in zip(learned[0][name], other[name], strict=True):
            assert all(torch.equal(own_state[key], state[key]) for key in own_state)
    first, second = learned[0][name]
    assert not all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", CASES)
def test_update_is_that_of_one_process_on_the_same_rollout(
    name: str, learned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, alone in zip(learned[0][name], learn_alone(name, monkeypatch), strict=True):
        for key, value in alone.items():
            torch.testing.assert_close(state[key], value, rtol=1e-4, atol=1e-5)


def be_careless(process_group: TorchProcessGroup) -> None:
    policy = make_policy("ppo", False)
    learner = build_algo("users_careless", {}, policy, "cpu", distributed=True)
    check_in_step(policy, process_group)
    learner.update(make_rollout(policy, 0, slice(4 * process_group.rank, 4 * process_group.rank + 4)))
    check_in_step(policy, process_group)


def test_algorithm_that_averages_nothing_is_found_out() -> None:
    with pytest.raises(RankError, match=r"the processes' policies have parted: .*gradient_step"):
        run_ranks(2, be_careless)


def normalize_parts(process_group: TorchProcessGroup) -> Tensor:
    return normalize_advantages(torch.tensor([[1.0, 2.0], [3.0, 10.0]])[process_group.rank])


def test_advantages_are_normalised_over_all_ranks() -> None:
    # mean 4, squared deviations 9 + 4 + 1 + 36 = 50, deviation sqrt(12.5)
    expected = torch.tensor([-3.0, -2.0, -1.0, 6.0]) / 12.5**0.5
    torch.testing.assert_close(torch.cat(run_ranks(2, normalize_parts)), expected)


def config(folder: Path, **changes: Any) -> str:
    return write_config(folder, tiny_config(**changes))


def train(rank: int, folder: Path, path: str | None, **arguments: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    return train_from_config(path, True, **arguments)


def train_and_resume(rank: int, folder: Path) -> list[dict[str, Any]]:
    """Two iterations at once; and one, then the second in a training that continues it. Returns their summaries."""
    path = config(folder, trainer__save_freq="1 it") if rank == 0 else str(folder / "train_config.json")
    whole = train(rank, folder / "whole", path)
    half = train(rank, folder / "half", path, overrides=["trainer.iterations=1"])
    run = half["run_folder"]
    return [whole, train(rank, folder / "half", None, overrides=["trainer.iterations=2"], resume=run)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Any]]:
    """The folders of the run at once and of the one that was resumed, and what each rank returned."""
    folder = tmp_path_factory.mktemp("runs")
    config(folder, trainer__save_freq="1 it")
    results = run_ranks(2, train_and_resume, folder, joined=False)
    whole, half = results[0]
    return folder / "whole" / whole["run_folder"], folder / "half" / half["run_folder"], results


def test_rank_0_alone_leaves_the_run_and_all_return_its_summary(runs: tuple[Path, Path, list[Any]]) -> None:
    whole, _, results = runs
    assert results[0] == results[1]
    summary = results[0][0]
    assert summary["env_steps"] == 2 * 4 * 2 * 2  # iterations x steps x environments x processes
    assert summary["episodes"] == 3
    assert [row["step"] for row in read_metrics(whole)] == [16, 32]
    assert os.listdir(whole.parent) == [whole.name]
    assert sorted(path.name for path in (whole / "checkpoints").glob("*.pt")) == ["tiny_step_16.pt", "tiny_step_32.pt"]


def test_checkpoint_holds_the_environments_of_all_ranks(runs: tuple[Path, Path, list[Any]]) -> None:
    content = load_checkpoint(runs[0] / "checkpoints" / "tiny_step_32.pt")
    # 17 of the first steps in 4 environments, and two rollouts of 16.
    assert content["policy"]["normalizer.count"] == 17 * 4 + 32
    assert content["world_size"] == 2
    (other,) = content["other_ranks"]
    ids = [part["env"]["random"]["stream_ids"].tolist() for part in (content, other)]
    assert ids == [[0, 1], [2, 3]]
    assert not torch.equal(content["generators"]["torch"], other["generators"]["torch"])  # seed + rank


def test_resumed_run_is_the_same_bit_for_bit(runs: tuple[Path, Path, list[Any]]) -> None:
    whole, half, _ = runs
    first, second = (load_checkpoint(run / "checkpoints" / "tiny_step_32.pt") for run in (whole, half))
    for part in ("policy", "collector"):
        assert str(first[part]) == str(second[part])
    assert all(torch.equal(first["policy"][name], second["policy"][name]) for name in first["policy"])
    assert str(first["other_ranks"][0]["env"]["sim"]) == str(second["other_ranks"][0]["env"]["sim"])
    assert rows(whole) == rows(half)


def test_another_number_of_processes_begins_new_episodes(
    runs: tuple[Path, Path, list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = runs[0]
    monkeypatch.chdir(whole.parents[1])
    summary = train_from_config(
        None, False, ["trainer.iterations=3"], resume=str(whole / "checkpoints/tiny_step_32.pt")
    )
    assert summary["env_steps"] == 32 + 8
    text = capsys.readouterr().err
    assert text.count("[WARNING]") == 1
    assert "the run had 2 processes and now has 1: policy, optimiser, normaliser and counters continue" in text
    content = load_checkpoint(summary["checkpoint"])
    assert content["policy"]["normalizer.count"] == 17 * 4 + 32 + 8
    assert content["world_size"] == 1


def evaluate(rank: int, folder: Path) -> list[float]:
    """Return the results of an evaluation of 5 episodes, by a policy that is the same on all."""
    summary = train(rank, folder, str(folder / "train_config.json"), overrides=["algorithm.cfg.learning_rate=1e-30"])
    return results_of(folder / summary["run_folder"])


def results_of(run: Path) -> list[float]:
    """Return the last evaluation's success, return, length and metric."""
    row = read_metrics(run)[-1]
    return [row[f"eval/{name}"] for name in ("success_rate", "avg_reward", "avg_length", "metrics/pole_angle")]


def test_split_evaluation_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(
        tmp_path,
        trainer__num_eval_episodes=5,
        trainer__eval_freq="9 it",
        policy__normalize_obs=False,  # its statistics would differ
    )
    two = run_ranks(2, evaluate, tmp_path, joined=False)
    monkeypatch.chdir(tmp_path)
    changes = ["algorithm.cfg.learning_rate=1e-30", "trainer.exp_name=alone"]
    one = train_from_config("train_config.json", False, changes)
    assert two == [pytest.approx(results_of(tmp_path / one["run_folder"]), rel=1e-5)] * 2


def interrupt(rank: int, folder: Path) -> tuple[int, int]:
    """Let a signal reach rank 1 alone, in the second iteration; return the exit code and the finished iterations."""
    trainers: list[Trainer] = []
    collect = Trainer._collect

    def signalled(trainer: Trainer, num_steps: int) -> Any:
        trainers.append(trainer)
        if rank == 1 and trainer._iteration == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return collect(trainer, num_steps)

    Trainer._collect = signalled  # type: ignore[method-assign, assignment]
    try:
        train(rank, folder, str(folder / "train_config.json"))
    except InterruptedTraining as stop:
        return stop.exit_code, trainers[0].saver.saved_iteration
    return 0, 0


def test_signal_to_one_rank_stops_all_after_the_same_iteration(tmp_path: Path) -> None:
    config(tmp_path, trainer__iterations=5)
    assert run_ranks(2, interrupt, tmp_path, joined=False) == [(143, 1), (143, 1)]
    (path,) = tmp_path.glob("outputs/*/checkpoints/*.pt")
    content = load_checkpoint(path)
    assert (content["global_step"], len(content["other_ranks"])) == (16, 1)


def forget(rank: int, folder: Path) -> str:
    os.chdir(folder)
    try:
        train_from_config("train_config.json")
    except ConfigError as error:
        return str(error)
    return ""


def test_processes_that_would_each_train_alone_are_refused(tmp_path: Path) -> None:
    config(tmp_path)
    for message in run_ranks(2, forget, tmp_path, joined=False):
        assert message.startswith("WORLD_SIZE: this is one of 2 processes, and trainer.distributed is false")
    assert not (tmp_path / "outputs").exists()
