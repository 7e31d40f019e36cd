"""A setting of the trainer stands in two places: in its config class, and where it is used."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from embodichain import schema
from embodichain.agents.rl import run_config
from embodichain.agents.rl.config.trainer_cfg import AlgorithmBlockCfg, TrainerCfg
from embodichain.agents.rl.run_config import check_resumed_config, load_checkpoint_config, load_run_config
from embodichain.agents.rl.trainer import script_run
from embodichain.utils import ConfigError, MayChange, configclass
from scripts.config_docs import render
from tests.agents.rl.fakes import tiny_config, write_config

pytestmark = pytest.mark.e2e


@configclass
class NewTrainerCfg(TrainerCfg):
    """The trainer's settings and two new ones: what a developer writes in trainer_cfg.py."""

    temperature: float = 0.5
    """How hot it may get, K."""
    colour: MayChange[Literal["red", "blue"]] = "red"
    """Of the progress panel."""


@configclass
class NewTrainCfg:
    trainer: NewTrainerCfg
    """The new settings are among them."""
    policy: dict[str, Any]
    algorithm: AlgorithmBlockCfg


@pytest.fixture(autouse=True)
def new_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the class have the new settings; nothing else of the package is changed."""
    for module in (run_config, script_run):
        monkeypatch.setattr(module, "TrainerCfg", NewTrainerCfg)
    for module in (run_config, schema):
        monkeypatch.setattr(module, "TrainCfg", NewTrainCfg)


def load(folder: Path, **changes: Any) -> Any:
    return load_run_config(write_config(folder, tiny_config(**changes)))


def test_new_setting_is_read_checked_and_recorded(tmp_path: Path) -> None:
    run = load(tmp_path, trainer__colour="blue")
    assert (run.trainer.colour, run.trainer.temperature) == ("blue", 0.5)
    assert (run.resolved["trainer"]["colour"], run.resolved["trainer"]["temperature"]) == ("blue", 0.5)
    assert load_checkpoint_config(json.loads(json.dumps(run.resolved))) == run
    assert load_run_config(write_config(tmp_path, tiny_config()), ["trainer.colour=blue"]).resolved == run.resolved
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, trainer__color="red", trainer__temperature="hot")
    assert sorted(str(caught.value).splitlines()) == [
        "trainer.color: unknown key. Did you mean 'colour'?",
        "trainer.temperature: Input should be a valid number, got 'hot'",
    ]


def test_new_setting_says_whether_a_resumed_run_may_change_it(tmp_path: Path) -> None:
    before = load(tmp_path).resolved
    check_resumed_config(before, load(tmp_path, trainer__colour="blue"), "latest")
    with pytest.raises(ConfigError, match=r"\ntrainer.temperature: 0.5 in the run, 0.6 now$"):
        check_resumed_config(before, load(tmp_path, trainer__temperature=0.6), "latest")


@pytest.mark.ext
def test_new_setting_is_in_the_schema_and_the_table_of_the_docs() -> None:
    properties = schema.train_schema()["$defs"]["NewTrainerCfg"]["properties"]
    assert properties["colour"]["default"] == "red"
    table = render("<!-- keys: train class NewTrainerCfg -->\n<!-- end -->")
    assert "`temperature`" in table
    assert "How hot it may get, K." in table
    assert '`colour` (`"red"`, `"blue"`, default `"red"`): Of the progress panel.' in table
