"""Gymnasium environments where ours go: config, training, evaluation and resume."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from embodichain.agents.rl.algo import build_algo
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy
from embodichain.agents.rl.run_config import load_checkpoint_config, load_run_config
from embodichain.agents.rl.train import main, train_from_config
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.cli import main as command
from embodichain.ext.gymnasium.envpool_env import EnvPoolCfg, EnvPoolEnv
from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv, GymnasiumEnvCfg
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import NETWORK, read_metrics, tiny_config, write_config
from tests.ext.gymnasium.scripted import SayingEnv, registered, scripted

pytestmark = pytest.mark.usefixtures("own_folder")

PENDULUM: dict[str, Any] = {"id": "gymnasium:Pendulum-v1", "kwargs": {"g": 9.0}, "max_episode_steps": 6}
CNN = {"type": "cnn", "keys": ["image"], "network_cfg": {"channels": [4], "kernel_sizes": [4], "strides": [2]}}


def config(gym_config: Any = PENDULUM, **changes: Any) -> dict[str, Any]:
    return tiny_config(trainer__gym_config=gym_config, trainer__iterations=4, **changes)


def errors(overrides: list[str], **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_run_config(write_config(Path(), config(**changes)), overrides)
    return str(caught.value).splitlines()


# --- the config ---


@pytest.mark.parametrize("place", ["file", "inline"])
def test_a_gymnasium_environment_is_read_from_a_file_or_inline(place: str) -> None:
    Path("pendulum.json").write_text(json.dumps(PENDULUM), encoding="utf-8")
    path = write_config(Path(), config("pendulum.json" if place == "file" else PENDULUM))
    run = load_run_config(path, ["trainer.gym_config.kwargs.g=3.5", "trainer.seed=7"])
    cfg = GymnasiumEnvCfg(PENDULUM["id"], {"g": 3.5}, num_envs=2, max_episode_steps=6, seed=7)
    assert (run.env_id, run.env, run.eval_env) == ("gymnasium:Pendulum-v1", cfg.without_records(), cfg)
    assert run.resolved["gym_config"] == PENDULUM | {"kwargs": {"g": 3.5}, "num_envs": 1, "vectorization": "sync"}
    assert load_checkpoint_config(json.loads(json.dumps(run.resolved))) == run


@pytest.mark.parametrize(("changes", "scales"), [({}, True), ({"policy__scale_actions": False}, False)])
def test_actions_are_scaled_to_a_gymnasium_environments_bounds(changes: dict[str, Any], scales: bool) -> None:
    assert load_run_config(write_config(Path(), config(**changes))).resolved["policy"]["scale_actions"] is scales
    ours = load_run_config(write_config(Path(), tiny_config()))
    assert ours.resolved["policy"]["scale_actions"] is False


@pytest.mark.parametrize(
    ("gym_config", "line"),
    [
        ({"env": {}}, "env: unknown key. Known: id, kwargs, num_envs, vectorization, max_episode_steps"),
        ({"vectorization": "threads"}, "vectorization: Input should be 'sync' or 'async', got 'threads'"),
        (
            {"kwargs": {"render_mode": "human"}},
            "kwargs.render_mode: must be 'rgb_array', for videos of evaluations, got 'human'",
        ),
    ],
)
def test_wrong_values_are_a_line_each(gym_config: dict[str, Any], line: str) -> None:
    assert errors([], gym_config=PENDULUM | gym_config) == [f"trainer.gym_config.{line}"]


def test_id_without_the_prefix_is_named_with_it() -> None:
    lines = errors([], gym_config={"id": "Pendulum-v1"})
    assert lines[0] == "trainer.gym_config.id: 'Pendulum-v1' is another library's: write 'gymnasium:Pendulum-v1'"


def test_evaluation_needs_a_time_limit() -> None:
    with registered():
        (line,) = errors([], gym_config={"id": "gymnasium:Scripted-v0"})
    assert line.endswith("max_episode_steps: evaluation needs a time limit, and neither config nor task gives one")


@pytest.mark.parametrize(
    "override",
    ["trainer.viewer=true", "trainer.sim_device=warp:cpu", 'trainer.events={"eval":{"camera":{"func":"reset"}}}'],
)
def test_what_needs_a_scene_is_refused(override: str) -> None:
    lines = [line for line in errors([override]) if "needs an environment with a scene" in line]
    assert len(lines) == 1
    assert "'gymnasium:Pendulum-v1' is another library's" in lines[0]


# --- training ---


def test_teacher_of_other_bounds_is_refused() -> None:
    teacher = train_from_config(write_config(Path(), config()), overrides=["trainer.iterations=1"])["run_folder"]
    student = {"name": "actor_only", "actor": NETWORK, "teacher": teacher}
    other = config({"id": "gymnasium:MountainCarContinuous-v0"}, policy=student, algorithm={"name": "distillation"})
    with pytest.raises(ConfigError, match=r"^policy\.teacher: .*: its actions are Box\(-2\.0.* and here Box\(-1\.0"):
        train_from_config(write_config(Path(), other))


def test_a_training_ends_with_the_return_as_its_headline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", write_config(Path(), config())]) == 0
    (run,) = Path("outputs").iterdir()
    summary = load_json(run / "summary.json")
    assert summary["success_rate"] is summary["success_interval_95"] is None
    assert summary["avg_reward"] < 0
    assert summary["episodes"] == 3
    assert summary["env_steps"] == 32
    assert f"return          {summary['avg_reward']:.4g}, mean of 3 episodes" in capsys.readouterr().out
    rows = read_metrics(run)
    assert "eval/avg_reward" in rows[-1]
    assert "charts/episode_reward_avg_100" in rows[-1]
    assert not [name for row in rows for name in row if "success" in name]
    best = load_json(run / "checkpoints/best.json")
    returns = {row["step"]: row["eval/avg_reward"] for row in rows if "eval/avg_reward" in row}
    assert best["step"] == max(returns, key=lambda step: returns[step])


def test_success_that_an_environment_reports_is_the_headline() -> None:
    with scripted():
        task = {"id": "gymnasium:Scripted-v0", "max_episode_steps": 9}
        summary = train_from_config(write_config(Path(), config(task, trainer__num_envs=4, trainer__num_eval_envs=4)))
    assert summary["success_rate"] is not None


class _Clock(gym.Env[Any, Any]):
    """Shows a time in s, which float32 does not tell from the one before."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 1.7e9
        return np.array([self.t]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1.0
        return np.array([self.t]), 0.0, False, False, {}


@pytest.mark.parametrize("is_normalised", [True, False])
def test_a_policy_that_normalises_sees_float64(is_normalised: bool) -> None:
    with registered("Clock-v0", _Clock):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Clock-v0", num_envs=2))
        block = {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": is_normalised}
        policy = build_policy(block, env.flattened_observation_space, env.single_action_space, "cpu")
        rollout = SyncCollector(env, policy, "cpu").collect(3)
        env.close()
    assert rollout["obs"].dtype == (torch.float64 if is_normalised else torch.float32)
    if is_normalised:
        policy.update_normalizer(rollout["obs"])
        # Times 0 to 3 after the first: variance 1.25, and 1 / sqrt(1.25) = 0.894 from one to the next.
        shown: torch.Tensor = policy.get_submodule("normalizer")(rollout["obs"][0]).squeeze(1)
        assert shown.diff().tolist() == pytest.approx([0.894] * 3, abs=1e-3)


def test_sac_collects_truncated_episodes_of_float64_observations() -> None:
    with registered("Clock-v0", _Clock):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Clock-v0", num_envs=2, max_episode_steps=2))
        block = {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK}
        policy = build_policy(block, env.flattened_observation_space, env.single_action_space, "cpu")
        collector = SyncCollector(env, policy, "cpu")
        collector.keeps_final_obs = True
        rollout = collector.collect(3)
        env.close()
    assert rollout["truncated"][0].tolist()[:3] == [False, True, False]
    assert (rollout["final", "obs"][0, 1] - rollout["obs"][0, 0]).tolist() == [2.0]  # seconds


def test_a_resumed_run_begins_new_episodes_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(Path(), config(trainer__enable_eval=False))
    train_from_config(path, overrides=["trainer.iterations=2", "trainer.save_freq=1 it"])
    (run,) = Path("outputs").iterdir()
    saved = load_checkpoint(next(run.glob("checkpoints/*_step_16.pt")))
    capsys.readouterr()
    train_from_config(None, overrides=["trainer.iterations=3"], resume="latest")
    said = [line for line in capsys.readouterr().err.splitlines() if "new episodes begin" in line]
    assert len(said) == 1
    now = load_checkpoint(next(run.glob("checkpoints/*_step_24.pt")))
    # The resume begins the next episode, which 4 steps do not end.
    assert torch.equal(now["env"]["random"]["episode"], saved["env"]["random"]["episode"] + 1)


def test_the_resumed_environments_arguments_must_be_the_runs_own(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(Path(), config(PENDULUM | {"kwargs": {"g": 9.0, "render_mode": "rgb_array"}}))
    train_from_config(path, overrides=["trainer.iterations=1", "trainer.enable_eval=false"])
    with pytest.raises(ConfigError) as caught:
        train_from_config(None, overrides=["trainer.gym_config.kwargs.g=8.0", "trainer.iterations=2"], resume="latest")
    assert str(caught.value).splitlines()[1:] == ["gym_config.kwargs.g: 9.0 in the run, 8.0 now"]
    without_video = ["trainer.iterations=2", 'trainer.gym_config.kwargs={"g": 9.0}']
    assert train_from_config(None, overrides=without_video, resume="latest")["env_steps"] == 16


def test_command_continues_a_scripts_own_trainer(tmp_path: Path) -> None:
    env = GymnasiumEnv(GymnasiumEnvCfg(PENDULUM["id"], num_envs=2, max_episode_steps=6, seed=5))
    block = {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK}
    policy = build_policy(block, env.flattened_observation_space, env.single_action_space, "cpu")
    algorithm = build_algo("ppo", {"batch_size": 8, "n_epochs": 1}, policy, "cpu")
    Trainer(policy, env, algorithm, 4, checkpoint_dir=tmp_path / "checkpoints").train(16)
    env.close()
    run = load_run_config(tmp_path / "config.json")
    assert run.env == GymnasiumEnvCfg(PENDULUM["id"], num_envs=2, max_episode_steps=6, seed=5, records=False)
    assert train_from_config(None, overrides=["trainer.iterations=3"], resume=str(tmp_path))["env_steps"] == 24


class _Pixels(gym.Env[Any, Any]):
    """Shows an image alone, whose brightness is to be the action."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 1), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._obs(), float(action[0]), False, False, {}

    def _obs(self) -> Any:
        return np.full((16, 16, 1), self.np_random.integers(256), np.uint8)


SAC = {"batch_size": 4, "learning_starts": 4, "replay_capacity": 100}


@pytest.mark.parametrize(
    ("algorithm", "policy", "cfg"), [("ppo", "actor_critic", {"batch_size": 8}), ("sac", "soft_actor_critic", SAC)]
)
def test_an_image_alone_is_learned_from(
    algorithm: str, policy: str, cfg: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    block = {"name": policy, "actor": CNN, "critic": CNN, "normalize_obs": True}
    own = {"name": algorithm, "cfg": cfg}
    with registered("Pixels-v0", _Pixels, max_episode_steps=5):
        path = write_config(Path(), config({"id": "gymnasium:Pixels-v0"}, policy=block, algorithm=own))
        summary = train_from_config(path, overrides=["trainer.iterations=3"])
        assert train_from_config(None, overrides=["trainer.iterations=4"], resume="latest")["env_steps"] == 32
        assert command(["eval", "latest", "--episodes", "2"]) == 0
        if algorithm == "ppo":  # of the other's export nothing differs
            assert command(["export", "latest", "--format", "onnx", "--observations", "8", "--envs", "2"]) == 0
            assert "\ninputs     image\n" in capsys.readouterr().out
    assert summary["avg_reward"] is not None


@pytest.mark.filterwarnings("ignore")  # Gymnasium's own, of the NaN
def test_infinite_return_is_null_in_files(capsys: pytest.CaptureFixture[str]) -> None:
    with registered("NoNumber-v0", SayingEnv, kwargs={"reward": math.nan}, max_episode_steps=5):
        assert command(["train", write_config(Path(), config({"id": "gymnasium:NoNumber-v0"}))]) == 0
        (run,) = Path("outputs").iterdir()
        out, err = capsys.readouterr()
        assert command(["eval", str(run), "--episodes", "2", "--json"]) == 0
        result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert "\nreturn          not finite, mean of 3 episodes\n" in out
    assert "is not a run's summary" not in err
    assert json.loads((run / "summary.json").read_text(), parse_constant=pytest.fail)["avg_reward"] is None
    assert result["figures"]["return"]["mean"] is None
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "not finite" in page
    assert "unfinished" not in page


@pytest.mark.e2e
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_discrete_actions_are_trained_resumed_and_exported(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = {"n_epochs": 1, "batch_size": 4} | ({"group_size": 2, "kl_coef": 0.1} if algorithm == "grpo" else {})
    blocks = {"algorithm": {"name": algorithm, "cfg": cfg}, "trainer__enable_eval": False}
    path = write_config(Path(), config({"id": "gymnasium:CartPole-v1", "max_episode_steps": 5}, **blocks))
    assert main(["--config", path]) == 0
    assert command(["resume", "latest", "trainer.iterations=5"]) == 0
    assert command(["export", "latest", "--observations", "8", "--envs", "2"]) == 0
    assert "actions differ by 0 at most" in capsys.readouterr().out
    (spec,) = Path().glob("outputs/*/export/policy.json")
    assert load_json(spec)["action"]["choices"] == [2]
    policy = {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK}
    sac = write_config(Path(), config({"id": "gymnasium:CartPole-v1"}, policy=policy, algorithm={"name": "sac"}))
    assert main(["--config", sac]) == 2
    assert "policy.name: soft_actor_critic: needs an action space with finite bounds" in capsys.readouterr().err


def test_policy_of_another_environment_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    gym.register("OtherPendulum-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv")
    run = train_from_config(config(trainer__enable_eval=False))["run_folder"]
    capsys.readouterr()
    other = PENDULUM | {"id": "gymnasium:OtherPendulum-v0"}
    train_from_config(config(other, trainer__enable_eval=False, policy__init_from=run))
    known = "was trained with the environment gymnasium:Pendulum-v1, and here it is gymnasium:OtherPendulum-v0"
    assert known in capsys.readouterr().err


def envpool_config(task: dict[str, Any], **changes: Any) -> str:
    return write_config(Path(), tiny_config(trainer__gym_config=task, **changes))


def test_without_envpool_an_id_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"id: EnvPool cannot be imported \(No module named 'envpool'\); .*install"):
        load_run_config(envpool_config({"id": "envpool:HopperHop-v1"}))


@pytest.fixture
def _envpool() -> None:
    pytest.importorskip("envpool")


def make(name: str, num_envs: int, **settings: Any) -> EnvPoolEnv:
    return EnvPoolEnv(EnvPoolCfg(f"envpool:{name}", num_envs=num_envs, **settings))


@pytest.mark.usefixtures("_envpool")
def test_done_environments_reset_in_the_same_step() -> None:
    env = make("Pendulum-v1", 3, max_episode_steps=2)
    first, _ = env.reset(seed=1)
    env.reset(options={"reset_ids": [1]})  # one step out of time with the others
    env.step(torch.zeros(3, 1))
    env.reset(options={"reset_ids": [1]})
    obs, _, terminated, truncated, info = env.step(torch.zeros(3, 1))
    assert truncated.tolist() == [True, False, True]
    assert not terminated.any()
    assert info["elapsed_steps"].tolist() == [2, 1, 2]
    assert env.elapsed_steps.tolist() == [0, 1, 0]
    same = (obs["observation"] == info["final_obs"]["observation"]).all(1)
    assert same.tolist() == [False, True, False]
    *_, truncated, info = env.step(torch.zeros(3, 1))
    assert truncated.tolist() == [False, True, False]
    assert torch.equal(env.reset(seed=1)[0]["observation"], first["observation"])
    env.close()


@pytest.mark.usefixtures("_envpool")
def test_members_of_a_group_begin_equal_episodes() -> None:
    env = make("Pendulum-v1", 4, group_size=2)
    rows = env.reset(seed=5)[0]["observation"]
    env.close()
    assert torch.equal(rows[::2], rows[1::2])
    assert not torch.equal(rows[0], rows[2])


@pytest.mark.usefixtures("_envpool")
def test_numbers_in_its_info_are_metrics() -> None:
    env = make("HalfCheetah-v4", 2)
    env.reset(seed=1)
    info = env.step(torch.zeros(2, 6))[4]
    env.close()
    assert sorted(info["metrics"]) == ["reward_ctrl", "reward_run", "x_position", "x_velocity"]
    assert info["metrics"]["reward_ctrl"].tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("_envpool")
def test_a_task_of_envpool_is_trained_evaluated_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    path = envpool_config({"id": "envpool:HopperHop-v1", "max_episode_steps": 6}, trainer__iterations=2)
    summary = train_from_config(path)
    assert summary["success_rate"] is None
    assert np.isfinite(summary["avg_reward"])
    capsys.readouterr()
    train_from_config(None, overrides=["trainer.iterations=3"], resume="latest")
    assert capsys.readouterr().err.count("envpool:HopperHop-v1: new episodes begin") == 1
    assert command(["eval", "latest", "--episodes", "3", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert command(["eval", "latest", "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first


@pytest.mark.usefixtures("_envpool")
def test_an_unknown_name_has_its_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"EnvPool has no environment 'HopperHop-v0'\. Did you mean 'HopperHop-v1'"):
        load_run_config(envpool_config({"id": "envpool:HopperHop-v0"}))
