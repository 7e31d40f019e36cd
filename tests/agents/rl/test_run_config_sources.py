"""Training configs from Python: dictionaries and typed configs mean what files mean."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embodichain.agents.rl.algo import PPOCfg
from embodichain.agents.rl.config.trainer_cfg import AlgorithmBlockCfg, TrainCfg, TrainerCfg
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.train import train_from_config
from embodichain.utils import ConfigError, to_dict
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config
from tests.lab.originals import PUSH_CUBE

pytestmark = pytest.mark.e2e


@pytest.mark.ext
def test_dictionary_is_read_as_the_file_and_not_changed(tmp_path: Path) -> None:
    config = tiny_config(trainer__rollout_steps=4, trainer__buffer_size=None)  # a key of an older layout
    before = json.dumps(config)

    assert load_run_config(config).resolved == load_run_config(write_config(tmp_path, config)).resolved
    assert json.dumps(config) == before


def test_typed_config_is_read_as_the_file() -> None:
    config = tiny_config()
    typed = TrainCfg(
        trainer=TrainerCfg(**config["trainer"]),
        policy=config["policy"],
        algorithm=AlgorithmBlockCfg(name="ppo", cfg=to_dict(PPOCfg(n_epochs=1, batch_size=8))),
    )

    assert load_run_config(typed).resolved == load_run_config(config).resolved


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id": "CartPoleRL"}, "^the config: is an environment's config"),
        (
            {"trainer": {"seed": np.zeros(2)}},
            r"^the config holds more than a file can say: array\(\[0\., 0\.\]\) of type ndarray$",
        ),
        (5, "^the config: must be a file's path or its content, a dictionary or a TrainCfg, got 5$"),
        (tiny_config(trainer__iteration=3), "^trainer.iteration: unknown key.*iterations"),
    ],
)
def test_wrong_dictionary_is_one_error(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run_config(config)


def test_numbers_of_numpy_are_numbers() -> None:
    config = tiny_config(trainer__iterations=np.int64(7), trainer__enable_eval=np.bool_(False))
    config["algorithm"]["cfg"]["gamma"] = np.float32(0.5)
    run = load_run_config(config)
    assert run.resolved["trainer"]["iterations"] == 7
    assert run.resolved["algorithm"]["cfg"]["gamma"] == 0.5
    assert not run.trainer.enable_eval


def test_relative_paths_of_a_dictionary_start_here(own_folder: Path) -> None:
    (own_folder / "env.json").write_text(CART_POLE_ENV.read_text(encoding="utf-8"), encoding="utf-8")
    assert load_run_config(tiny_config(trainer__gym_config="env.json")).env_id == "CartPoleRL"


@pytest.mark.usefixtures("own_folder")
def test_unused_keys_of_a_scene_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    train_from_config(tiny_config(trainer__gym_config=PUSH_CUBE, trainer__iterations=1))
    assert capsys.readouterr().err.count("[WARNING] without counterpart in MuJoCo, not used: ") == 1
