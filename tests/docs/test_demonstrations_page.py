"""What docs/demonstrations.md shows is what there is."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from embodichain.agents.rl.algo import SACCfg
from embodichain.agents.rl.train import train_from_config
from embodichain.lab.gym.envs.managers import DatasetCfg
from embodichain.utils import logger
from embodichain.utils.validation import from_dict

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/demonstrations.md").read_text(encoding="utf-8")
CONFIG = "configs/agents/rl/pick_cube/train_config_sac_sparse.json"
IMAGE_CONFIG = "configs/agents/rl/push_colored_cube/train_config_sac_images.json"


def test_table_has_the_settings_with_their_defaults() -> None:
    table = PAGE[PAGE.index("## Settings") :].partition("| --- |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[1:]]
    described = {row[1].strip(" `"): row[2].strip() for row in rows}
    names = [f.name for f in dataclasses.fields(SACCfg) if "demonstration" in f.name or "imitation" in f.name]
    defaults = {name: getattr(SACCfg(), name) for name in names}
    assert described == {name: "none" if value is None else str(value) for name, value in defaults.items()}


def test_commands_name_configs_that_are_there() -> None:
    paths = set(re.findall(r"configs/\S+\.json", PAGE))
    assert {CONFIG, IMAGE_CONFIG} <= paths
    assert all((REPOSITORY / path).is_file() for path in paths)


def test_recorders_block_is_a_valid_one() -> None:
    block = re.search(r"```json\n(\"dataset\": .*?)\n```", PAGE, re.DOTALL)
    assert block is not None
    term = json.loads("{" + block[1] + "}")["dataset"]["lerobot"]
    from_dict(DatasetCfg, term, "dataset")


def test_script_records_what_a_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    script = re.search(r"```python\n(.*?)\n```", PAGE, re.DOTALL)
    assert script is not None
    exec(compile(script[1], "demonstrations.md", "exec"), {})
    lines: list[str] = []
    monkeypatch.setattr(logger, "log_info", lines.append)
    few = ["trainer.iterations=1", "trainer.num_envs=2", "trainer.enable_eval=false", "trainer.events={}"]
    train_from_config(CONFIG, overrides=["algorithm.cfg.demonstrations=outputs/demonstrations", *few])
    found = [line for line in lines if line.startswith("demonstrations: outputs/demonstrations: ")]
    assert len(found) == 1
    match = re.search(r"(\d+) episodes of \d+ steps, (\d+) with success, rewards from 0 to 1", found[0])
    assert match is not None
    assert match[1] == match[2]
