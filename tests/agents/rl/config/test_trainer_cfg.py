import json
from pathlib import Path

import pytest
import torch
import yaml

from embodichain.agents.rl.algo import PPOCfg
from embodichain.agents.rl.config.trainer_cfg import Schedule, TrainerCfg, parse_period
from embodichain.agents.rl.run_config import load_run_config
from embodichain.utils import ConfigError
from embodichain.utils.device import resolve_device
from tests.agents.rl.fakes import tiny_config, write_config


def test_documented_defaults() -> None:
    trainer = TrainerCfg(gym_config="env.json")
    assert (trainer.exp_name, trainer.seed, trainer.device, trainer.num_envs) == ("generic_exp", 1, "auto", None)
    assert (trainer.iterations, trainer.buffer_size) == (250, 2048)
    assert (trainer.enable_eval, trainer.num_eval_envs, trainer.num_eval_episodes) == (False, 4, 5)
    assert (trainer.eval_freq, trainer.save_freq) == (10000, 50000)
    assert (trainer.use_wandb, trainer.distributed, trainer.model_type) == (False, False, "standard")


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    config = tiny_config(trainer__seed=7)
    path = tmp_path / "train_config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert load_run_config(path) == load_run_config(write_config(tmp_path, config))


def test_override_takes_the_place_of_a_value_at_any_depth() -> None:
    overrides = [
        "trainer.num_envs=256",  # a number
        "trainer.enable_eval=false",
        "trainer.device=cpu",  # no JSON: text
        "trainer.eval_freq=5 it",
        'policy.actor.network_cfg={"hidden_sizes": [8, 8]}',
        "algorithm.cfg.gamma=0.98",  # a new key
        "trainer.seed=1",
        "trainer.seed=2",  # the later one counts
    ]
    cfg = load_run_config(tiny_config(), overrides)
    assert (cfg.trainer.num_envs, cfg.trainer.enable_eval, cfg.trainer.device) == (256, False, "cpu")
    assert (cfg.trainer.eval_freq, cfg.trainer.seed) == ("5 it", 2)
    assert cfg.resolved["policy"]["actor"]["network_cfg"]["hidden_sizes"] == [8, 8]
    assert isinstance(cfg.algorithm, PPOCfg)
    assert (cfg.algorithm.n_epochs, cfg.algorithm.batch_size, cfg.algorithm.gamma) == (1, 8, 0.98)


def test_override_makes_the_blocks_on_its_way() -> None:
    camera = '{"func": "record_camera_data", "mode": "interval"}'
    cfg = load_run_config(tiny_config(), [f"trainer.events.eval.camera={camera}"])
    assert json.loads(camera).items() <= cfg.trainer.events.eval["camera"].items()


@pytest.mark.parametrize("override", ["trainer.num_envs", "=3", "trainer..num_envs=3"])
def test_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run_config(tiny_config(), [override])
    assert str(caught.value) == f"override '{override}': must be of the form trainer.num_envs=256"


def test_override_through_a_value_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        load_run_config(tiny_config(), ["trainer.num_envs.train=3"])
    assert str(caught.value) == "override 'trainer.num_envs.train=3': 'num_envs' is not an object in the config"


# --- devices ---


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("cpu", 0, "cpu"),
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_device_that_is_there(monkeypatch: pytest.MonkeyPatch, name: str, count: int, expected: str) -> None:
    pretend_cuda(monkeypatch, count)
    assert resolve_device(name) == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "count", "problem"),
    [
        ("cuda:2", 2, "trainer.device: 'cuda:2' cannot be used: there are 2 (cuda:0 to cuda:1)"),
        ("gpu", 2, "trainer.device: must be 'auto', 'cpu' or 'cuda:<number>', got 'gpu'"),
    ],
)
def test_device_that_is_not_there_is_an_error_never_another_one(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, problem: str
) -> None:
    pretend_cuda(monkeypatch, count)
    with pytest.raises(ConfigError) as caught:
        resolve_device(name)
    assert str(caught.value) == problem


def test_schedule_fires_once_at_or_past_each_multiple() -> None:
    schedule = Schedule(10, "eval_freq")
    # 12 is the first check past 10, 20 is at 20, 32 past 30
    fired = [step for step in range(4, 37, 4) if schedule.is_due(step, iteration=0)]
    assert fired == [12, 20, 32]


def test_resumed_schedule_continues_with_the_next_multiple() -> None:
    schedule = Schedule(10, "eval_freq")
    schedule.start_from(24, 3)
    assert [step for step in range(28, 45, 4) if schedule.is_due(step, iteration=0)] == [32, 40]


@pytest.mark.parametrize(
    ("period", "expected"),
    [(5, (5, False)), ("5", (5, False)), ("100 it", (100, True)), (" 7it ", (7, True))],
)
def test_period_is_a_number_of_steps_or_of_iterations(period: int | str, expected: tuple[int, bool]) -> None:
    assert parse_period(period) == expected


@pytest.mark.parametrize("period", [0, -5, "0 it", "often", "10 its", "", "1.5", "1e4"])
def test_impossible_period_is_an_error_that_names_its_place(period: int | str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule(period, "trainer.save_freq")
    assert str(caught.value) == (
        f"trainer.save_freq: must be a positive number of steps, or iterations as '100 it', got {period!r}"
    )
