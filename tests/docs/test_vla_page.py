"""What docs/vla.md shows is what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from embodichain.agents.rl.models import LoRACfg, SmolVLACfg, TinyVLACfg, VLAConfig, VLAPolicyCfg
from embodichain.tools.cloning.config import BCCfg
from embodichain.utils.utility import load_json
from embodichain.utils.validation import from_dict

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/vla.md").read_text(encoding="utf-8")


def keys_of(heading: str) -> set[str]:
    """Return the names in the first column of the first table of keys after a text."""
    table = PAGE[PAGE.index(heading) :].partition("| key |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_commands_name_configs_that_are_there() -> None:
    paths = re.findall(r"configs/\S+\.json", PAGE)
    assert len(set(paths)) == 4
    assert all((REPOSITORY / path).is_file() for path in paths)


def test_policy_block_is_the_shipped_one() -> None:
    block = re.search(r"```json\n\"policy\": (.*?)\n```", PAGE, re.DOTALL)
    assert block is not None
    policy = json.loads(block[1])
    from_dict(VLAPolicyCfg, policy, "policy")
    assert policy == load_json(REPOSITORY / "configs/agents/rl/push_colored_cube/train_config.json")["policy"]


def test_tables_have_the_keys_that_there_are() -> None:
    assert keys_of("## The policy") == set(vars(VLAConfig())) - {"lora"}
    assert keys_of("The keys of its `model_config`") < set(TinyVLACfg.__dataclass_fields__)
    assert keys_of("## Behaviour cloning") == set(vars(BCCfg("x")))
    assert keys_of("`embodichain.agents.rl.models.SmolVLA`") < set(SmolVLACfg.__dataclass_fields__)
    for key in ("rank", "alpha", "target_modules", "trained_modules"):
        assert f"{key}" in PAGE
        assert key in vars(LoRACfg())


def test_defaults_of_the_model_are_as_said() -> None:
    fields = TinyVLACfg.__dataclass_fields__
    row = f"| {fields['width'].default}, {fields['depth'].default}, {fields['heads'].default} |"
    assert row in PAGE
