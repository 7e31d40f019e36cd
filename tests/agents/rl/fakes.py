"""Scripted environments, a policy and an algorithm for the tests of the learner. Shapes: N environments."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import AlgorithmCfg, BaseAlgorithm, register_algo
from embodichain.agents.rl.algo.optim import gradient_step
from embodichain.agents.rl.buffer import ReplayBuffer
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.models import ActorCritic, Policy
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import configclass

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
CART_POLE_ENV = CONFIGS / "agents/rl/basic/cart_pole/gym_config.json"
PUSH_CUBE_ENV = CONFIGS / "agents/rl/push_cube/gym_config.json"

NETWORK: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [4], "activation": "tanh"}}
# 2 iterations of 2 environments x 4 steps: 16 environment steps.
TINY: dict[str, Any] = {
    "trainer": {
        "exp_name": "tiny",
        "gym_config": str(CART_POLE_ENV),
        "device": "cpu",
        "num_envs": 2,
        "iterations": 2,
        "buffer_size": 4,
        "enable_eval": True,
        "num_eval_envs": 2,
        "num_eval_episodes": 3,
        "eval_freq": "1 it",
    },
    "policy": {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True},
    "algorithm": {"name": "ppo", "cfg": {"n_epochs": 1, "batch_size": 8}},
}


def tiny_config(**changes: Any) -> dict[str, Any]:
    """Return a copy of the config above; ``trainer__num_envs=3`` changes an entry, ``None`` removes it."""
    config = copy.deepcopy(TINY)
    for path, value in changes.items():
        *blocks, key = path.split("__")
        node = config
        for block in blocks:
            node = node.setdefault(block, {})
        if value is None:
            node.pop(key, None)
        else:
            node[key] = copy.deepcopy(value)
    return config


def tiny_sac_config(**changes: Any) -> dict[str, Any]:
    """Return ``tiny_config`` for SAC, which learns from its first rollout on; ``None`` removes an entry."""
    settings = {"learning_starts": 0, "replay_capacity": 100, "batch_size": 8, "updates_per_step": 0.5}
    policy = {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": True}
    return tiny_config(**{"policy": policy, "algorithm": {"name": "sac", "cfg": settings}} | changes)


def write_config(folder: Path, config: dict[str, Any], name: str = "train_config.json") -> str:
    """Write a config and return its path."""
    path = folder / name
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def read_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) of every scalar in TensorBoard's files, by tag."""
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def only_run(folder: Path = Path()) -> Path:
    """Return the folder of the only run in ``outputs``."""
    (run,) = (folder / "outputs").iterdir()
    return run


def last_checkpoint(run: Path) -> dict[str, Any]:
    """Return what a run's checkpoint of the most steps holds."""
    return load_checkpoint(max((run / "checkpoints").glob("*.pt"), key=lambda path: int(path.stem.rpartition("_")[2])))


def give_cart_pole_an_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cart-pole's expert move the cart to where the pole leans."""
    monkeypatch.setattr(
        CartPoleEnv, "expert_action", lambda self: self.robot.get_qpos("hand").clamp(-1, 1), raising=False
    )


def assert_same(ours: Any, theirs: Any, place: str = "") -> None:
    """Compare plain data to the last bit."""
    assert type(ours) is type(theirs), place
    if isinstance(ours, torch.Tensor):
        # bits, so that not-a-number equals itself
        assert ours.dtype == theirs.dtype, place
        assert ours.contiguous().numpy().tobytes() == theirs.contiguous().numpy().tobytes(), place
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), place
        for key in ours:
            assert_same(ours[key], theirs[key], f"{place}.{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), place
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_same(*pair, f"{place}[{i}]")
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), place


class ScriptedEnv:
    """Episode e lasts e + 1 steps, each with reward e + 1, and succeeds if e is even; even ones are truncated.

    Environment i plays the episodes i, i + N, i + 2N, ...; the observation is (e, steps done of it). The reward term
    ``progress`` is half of the reward, the metric ``place`` is i.
    """

    def __init__(self, num_envs: int, length: Callable[[Tensor], Tensor] = lambda e: e + 1) -> None:
        self.num_envs = num_envs
        self.device = torch.device("cpu")
        self.flattened_observation_space = spaces.Box(0, 1000, (2,))
        self.action_space = spaces.Box(-1, 1, (num_envs, 1))
        self.length = length
        self.episode = torch.arange(num_envs)
        self.t = torch.zeros(num_envs, dtype=torch.int64)
        self.resets: list[tuple[int | None, Any]] = []
        self.actions: list[Tensor] = []
        self.threads: set[int] = set()
        self.recordings: list[tuple[Path, str, float]] = []
        self.is_recording = False
        self.fails_after: int | None = None
        self.rollout: TensorDict | None = None
        self.slot = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[TensorDict, dict[str, Any]]:
        self.resets.append((seed, options))
        self.episode = torch.arange(self.num_envs)
        self.t = torch.zeros(self.num_envs, dtype=torch.int64)
        return self._obs(), {}

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        if self.fails_after is not None and len(self.actions) >= self.fails_after:
            raise RuntimeError("the robot fell off the table")
        self.actions.append(action.clone())
        self.threads.add(torch.get_num_threads())
        self.t += 1
        reward = (self.episode + 1).float()
        done = self.t >= self.length(self.episode)
        is_even = self.episode % 2 == 0
        info = {
            "success": is_even & done,
            "fail": done & ~is_even,
            "rewards": {"progress": reward / 2},
            "metrics": {"place": torch.arange(self.num_envs).float()},
            "elapsed_steps": self.t.clone(),
            "final_obs": self._obs(),
        }
        self.episode = self.episode + done * self.num_envs
        self.t[done] = 0
        truncated, terminated = done & is_even, done & ~is_even
        if self.rollout is not None:
            for name, value in zip(
                ("reward", "done", "terminated", "truncated"), (reward, done, terminated, truncated), strict=True
            ):
                self.rollout[name][:, self.slot] = value
            self.slot += 1
        return self._obs(), reward, terminated, truncated, info

    def set_rollout_buffer(self, rollout: TensorDict) -> None:
        self.rollout, self.slot = rollout, 0

    def start_recording(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        self.recordings.append((folder, label, num_episodes))
        self.is_recording = True

    def stop_recording(self) -> list[Path]:
        self.is_recording = False
        folder, label, _ = self.recordings[-1]
        return [folder / f"{label}.mp4"]

    def close(self) -> None:
        pass

    def _obs(self) -> TensorDict:
        return TensorDict({"at": torch.stack((self.episode, self.t), dim=1).float()}, batch_size=[self.num_envs])


class ChunkedEnv(ScriptedEnv):
    """Takes chunks of actions too: an environment whose episode ends waits for the chunk's end."""

    def step_chunk(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        rollout, self.rollout = self.rollout, None
        shape = action.shape[:2]
        reward, executed = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        terms = {kind: torch.zeros(shape) for kind in ("progress", "place")}
        alive = torch.ones(self.num_envs, dtype=torch.bool)
        terminated, truncated, success = (torch.zeros_like(alive) for _ in range(3))
        final = self._obs()
        for h in range(shape[1]):
            before = self.episode.clone(), self.t.clone()
            _, now, ended, cut, info = self.step(action[:, h])
            # who has ended goes nowhere
            self.episode, self.t = (
                torch.where(alive, a, b) for a, b in zip((self.episode, self.t), before, strict=True)
            )
            reward[:, h], executed[:, h] = now * alive, alive
            terms["progress"][:, h] = info["rewards"]["progress"] * alive
            terms["place"][:, h] = info["metrics"]["place"] * alive
            terminated, truncated = terminated | ended & alive, truncated | cut & alive
            success = torch.where(alive, info["success"], success)
            final["at"] = torch.where(alive[:, None], info["final_obs"]["at"], final["at"])
            alive = alive & ~(ended | cut)
        self.rollout = rollout
        if rollout is not None:
            values = {"reward": reward, "executed": executed, "done": ~alive}
            for name, value in {**values, "terminated": terminated, "truncated": truncated}.items():
                rollout[name][:, self.slot] = value
            self.slot += 1
        info = {
            "success": success,
            "fail": terminated,
            "rewards": {"progress": terms["progress"]},
            "metrics": {"place": terms["place"]},
            "executed": executed,
            "elapsed_steps": self.t.clone(),
            "final_obs": final,
        }
        return self._obs(), reward, terminated, truncated, info


class StubPolicy(Policy):
    """Does nothing; its subclasses say what it evaluates actions to."""

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return td


def linear_policy(
    normalize_obs: bool = False, obs_dim: int = 2, action_dim: int = 1, chunk_length: int = 1
) -> ActorCritic:
    """Return the smallest actor-critic, of the same parameters each time."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(obs_dim, chunk_length * action_dim), nn.Linear(obs_dim, 1)
    return ActorCritic(
        obs_dim, action_dim, "cpu", actor, critic, normalize_obs=normalize_obs, chunk_length=chunk_length
    )


def tiny_trainer(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return arguments of a ``Trainer`` with rollouts of 4 steps, that hardly evaluates or saves.

    Args:
        folder: of the checkpoints.
        changes: of these, and settings of ``TrainerCfg``.
    """
    arguments: dict[str, Any] = {
        "buffer_size": 4,
        "eval_freq": "100 it",
        "save_freq": "100 it",
        "checkpoint_dir": folder,
        "exp_name": "tiny",
        "num_eval_episodes": 3,
        "config": {"seed": 1},
    }
    settings = {name: value for name, value in changes.items() if name not in arguments}
    return arguments | {n: v for n, v in changes.items() if n in arguments} | {"cfg": TrainerCfg({}, **settings)}


class IdleAlgorithm(BaseAlgorithm):
    """Learns nothing; keeps what it was given."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(AlgorithmCfg(), policy)
        self.rollouts: list[TensorDict] = []
        self.counts: list[float] = []

    def update(self, rollout: TensorDict) -> dict[str, float]:
        self.rollouts.append(rollout.clone())
        normalizer = getattr(self.policy, "normalizer", None)
        self.counts.append(float(getattr(normalizer, "count", 0.0)))
        return {"loss": 10.0 * len(self.rollouts)}


@configclass
class OffPolicyCfg:
    """No epochs, no minibatches of a rollout."""

    device: str = "cpu"
    replay_capacity: int = 16


@register_algo("off_policy_fake")
class OffPolicyFake(BaseAlgorithm):
    """Learns the value of past observations, by 3-step returns from a replay buffer; the actor stays as it is."""

    learns_from = "replay"
    cfg_class = OffPolicyCfg
    reads_final_obs = True

    def __init__(self, cfg: OffPolicyCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-2)

    def prepare(self, rollout: TensorDict) -> None:
        self.replay = ReplayBuffer.allocate(self.cfg.replay_capacity, rollout)

    def stores(self) -> dict[str, ReplayBuffer]:
        return {"replay": self.replay}

    def update(self, rollout: TensorDict) -> dict[str, float]:
        self.replay.add(rollout)
        for _ in range(2):
            batch = self.replay.sample(8, 3, 0.9)
            target = batch["reward"] + batch["discount"] * self.policy.get_value(batch["next"])["value"]
            loss = (self.policy.evaluate_actions(batch)["value"] - target).square().mean()
            gradient_step(self.optimizer, self.parameters, loss, 1.0)
        return {"loss": loss.item()}


class ListSink:
    """Keeps what it is given."""

    name = "a list"

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.is_closed = False

    def write(self, scalars: dict[str, float], step: int) -> None:
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        self.is_closed = True
