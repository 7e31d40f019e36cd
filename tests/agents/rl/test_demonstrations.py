"""Trainings with demonstrations, through the command. Legend: N envs, T rollout steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl import run_config
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.demonstrations import FILE, play_expert
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main as cli
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.utils import ConfigError, logger
from embodichain.utils.observations import flat_input
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import (
    CART_POLE_ENV,
    NETWORK,
    assert_same,
    give_cart_pole_an_expert,
    last_checkpoint,
    tiny_config,
    write_config,
)
from tests.lab.scenes import cart_cfg

pytestmark = pytest.mark.usefixtures("own_folder")

START = {"start": {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.49], [1, 0.49]]}}}


class Steered(CartPoleEnv):
    """Its expert moves the cart away from where the pole leans, and so lets it fall."""

    def expert_action(self) -> Tensor:
        return -3.0 * self.robot.get_qpos("hand").sign()  # beyond the limits


def reader(*keys: str, has_normalizer: bool = True) -> Any:
    return SimpleNamespace(obs_keys=keys, has_normalizer=has_normalizer)


def steered(num_envs: int) -> Steered:
    return Steered(cart_cfg(num_envs, {"events": START}, max_episode_steps=6))


def test_episodes_are_what_the_environment_gave() -> None:
    env = steered(2)
    episodes = play_expert(env, 2, reader("robot/qpos"), seed=3)
    obs, _ = env.reset(seed=3, options={"enumerate_episodes": True})
    is_running = [True, True]
    for t in range(6):
        action = env.expert_action()
        for i, episode in enumerate(episodes):
            if is_running[i]:
                assert torch.equal(episode.observed["obs"][t], flat_input(obs)[i])
                assert torch.equal(episode.observed["entries", "robot/qpos"][t], obs["robot", "qpos"][i])
                assert torch.equal(episode.acted["action"][t], action[i].clamp(-1, 1))  # as it was executed
        obs, reward, terminated, truncated, info = env.step(action)
        for i, episode in enumerate(episodes):
            if not is_running[i]:
                continue
            assert episode.acted["reward"][t] == reward[i]
            assert episode.acted["terminated"][t] == terminated[i]
            if terminated[i] or truncated[i]:
                is_running[i] = False
                assert len(episode.acted) == t + 1
                assert torch.equal(episode.observed["obs"][t + 1], flat_input(info["final_obs"])[i])
                assert episode.is_success == bool(info["success"][i])
    assert not any(is_running)
    # One fell, the other one was cut.
    assert [bool(episode.acted["terminated"].any()) for episode in episodes] == [True, False]


@pytest.mark.parametrize(("has_normalizer", "expected"), [(True, torch.float64), (False, torch.float32)])
def test_inputs_have_the_precision_that_the_policy_gets(
    has_normalizer: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = steered(1)
    monkeypatch.setattr(env, "get_obs", lambda: TensorDict({"time": torch.zeros(1, 1, dtype=torch.float64)}, [1]))
    (episode,) = play_expert(env, 1, reader(has_normalizer=has_normalizer), seed=3)
    assert episode.observed["obs"].dtype == expected


def test_episodes_do_not_depend_on_the_number_of_environments() -> None:
    by_number = [play_expert(steered(n), 5, reader(), seed=7) for n in (1, 2, 5)]
    lengths = [[len(episode.acted) for episode in episodes] for episodes in by_number]
    assert lengths[0] == lengths[1] == lengths[2]
    assert len(set(lengths[0])) > 1  # some fall, some do not
    for one, *others in zip(*by_number, strict=True):
        for other in others:
            torch.testing.assert_close(one.observed["obs"], other.observed["obs"])
            torch.testing.assert_close(one.acted["action"], other.acted["action"])


# --- trainings ---


@pytest.fixture(autouse=True)
def expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the cart-pole an expert, which moves the cart to where the pole leans."""
    give_cart_pole_an_expert(monkeypatch)


def config(**algorithm: Any) -> dict[str, Any]:
    """Return the config of 3 iterations of 2 steps in 2 environments, with 3 gradient steps in the last two."""
    settings = {"batch_size": 8, "learning_starts": 8, "updates_per_step": 0.75, "replay_capacity": 100}
    return tiny_config(
        trainer__gym_config=load_json(CART_POLE_ENV) | {"max_episode_steps": 5},
        trainer__enable_eval=False,
        trainer__num_envs=2,
        trainer__buffer_size=2,
        trainer__iterations=3,
        policy={"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK},
        algorithm={"name": "sac", "cfg": settings | {"demonstrations": "expert", "num_demonstrations": 2} | algorithm},
    )


def train(folder: Path, **algorithm: Any) -> Path:
    """Train, and return the run's folder."""
    return Path(train_from_config(write_config(folder, config(**algorithm)))["run_folder"])


def test_experts_episodes_are_recorded_reported_and_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "log_info", lines.append)
    run = train(tmp_path)
    rewards = torch.cat([episode["reward"][0, :-1] for episode in load_checkpoint(run / FILE)["episodes"]])
    line = (
        "demonstrations: the scripted expert of CartPoleRL: 2 episodes of 10 steps, 1 with success, rewards from "
        f"{rewards.min():.4g} to {rewards.max():.4g}"
    )
    assert line in lines
    assert len(last_checkpoint(run)["algorithm"]["demonstrations"]) == 64  # a SHA-256


@pytest.mark.e2e
def test_demonstrations_depend_on_the_seed(tmp_path: Path) -> None:
    digests = []
    for seed in (1, 2):
        path = write_config(tmp_path, config())
        summary = train_from_config(path, overrides=[f"trainer.seed={seed}", "trainer.iterations=1"])
        digests.append(last_checkpoint(Path(summary["run_folder"]))["algorithm"]["demonstrations"])
    assert digests[0] != digests[1]


@pytest.mark.e2e
def test_changed_episodes_of_the_expert_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = train(tmp_path), train(tmp_path, num_demonstrations=1)
    (run / FILE).unlink()
    assert cli(["resume", str(run), "trainer.iterations=4"]) == 2
    assert "algorithm.cfg.demonstrations: the expert's episodes of this run: " in capsys.readouterr().err
    (run / FILE).write_bytes((other / FILE).read_bytes())
    assert cli(["resume", str(run), "trainer.iterations=4"]) == 2
    assert "demonstrations: expert: are not the run's" in capsys.readouterr().err


def test_expert_that_always_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPoleEnv, "success_angle", 0.0)
    with pytest.raises(ConfigError, match="the scripted expert of CartPoleRL failed in all 2 episodes"):
        train(tmp_path)
    assert not list(tmp_path.glob("outputs/*"))


def test_task_without_an_expert_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(CartPoleEnv, "expert_action")
    path = write_config(tmp_path, config())
    ids = get_registered_env_ids()
    shipped = [env_id for env_id in ids if get_env_spec(env_id).cls.__module__.startswith("embodichain.")]
    monkeypatch.setattr(run_config, "get_registered_env_ids", lambda: shipped)  # without other tests' tasks
    with pytest.raises(ConfigError) as error:
        load_run_config(path)
    assert str(error.value) == (
        "algorithm.cfg.demonstrations: 'expert': CartPoleRL has no scripted expert (a method expert_action). With one: "
        "ManipulateCubesRL, PickCubeRL, PushColoredCubeRL; or name a dataset's folder"
    )


@pytest.mark.e2e
def test_resumed_run_needs_the_same_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    recording = config(demonstrations=None)
    recorder = {"func": "LeRobotRecorder", "mode": "save", "params": {"save_path": "data", "environment_state": True}}
    recording["trainer"]["gym_config"]["max_episode_steps"] = 2
    recording["trainer"]["gym_config"]["env"]["dataset"] = {"lerobot": recorder}
    data = Path(train_from_config(write_config(tmp_path, recording))["run_folder"]) / "data"
    run = train(tmp_path, demonstrations=str(data), num_demonstrations=None)
    assert cli(["resume", str(run), "trainer.iterations=4"]) == 0
    (path,) = (data / "meta/episodes").rglob("*.parquet")
    parquet.write_table(parquet.read_table(path)[1:], path)  # without the first episode
    capsys.readouterr()
    assert cli(["resume", str(run), "trainer.iterations=5"]) == 2
    assert f"demonstrations: {data}: are not the run's" in capsys.readouterr().err


@pytest.mark.e2e
def test_resumed_training_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole = last_checkpoint(train(tmp_path))
    path = write_config(tmp_path, config())
    run = Path(train_from_config(path, overrides=["trainer.iterations=2"])["run_folder"])
    assert cli(["resume", str(run), "trainer.iterations=3"]) == 0
    resumed = last_checkpoint(run)
    for part in ("policy", "algorithm", "generators"):
        assert_same(resumed[part], whole[part], part)
