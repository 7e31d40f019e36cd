"""The page on the algorithms names every setting and every diagnostic."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import GRPO, PPO, SAC, GRPOCfg, PPOCfg, SACCfg, SymmetryCfg
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import MLP, ActorCritic
from embodichain.ext.doctor.probes import bandit
from embodichain.ext.doctor.soft_policy import soft_table_policy
from embodichain.utils.mirror import Mirror, MirrorMap
from tests.agents.rl.algo.linear_sac import make_rollout
from tests.agents.rl.algo.test_sac_demonstrations import make as make_demonstrated_sac

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs/algorithms.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    return re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, str]:
    """The tables' rows: each name in code in the first column, and its row."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return {name: line for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


@pytest.mark.parametrize(("title", "cfg_class"), [("PPO", PPOCfg), ("GRPO", GRPOCfg), ("SAC", SACCfg)])
def test_every_setting_has_its_row_with_its_default(title: str, cfg_class: type) -> None:
    common = {} if cfg_class is SACCfg else rows(section("Settings of PPO and GRPO"))
    described = common | rows(section(title))
    fields = {field.name: field.default for field in dataclasses.fields(cfg_class)}
    assert set(described) == set(fields)
    for name in set(fields) - {"device"}:
        said = described[name].split("|")[2].strip(' `"')
        assert said == _written(fields[name]) or float(said) == fields[name], name


def _written(value: Any) -> str:
    """A default as the page writes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_every_diagnostic_has_its_row() -> None:
    policy = ActorCritic(2, 1, "cpu", MLP(2, 1, [4]), MLP(2, 1, [4]))
    rollout = allocate_rollout(2, 3, 2, 1, "cpu")
    rollout.update(policy.get_action(TensorDict({"obs": torch.randn(2, 4, 2)}, batch_size=[2, 4])))
    rollout["lag"] = torch.ones(2, 4, dtype=torch.int64)  # as of asynchronous collection
    logged = PPO(PPOCfg(lr_schedule="adaptive"), policy).update(rollout)
    sided = PPO(PPOCfg(symmetry=SymmetryCfg()), policy)
    sided.use_mirror_map(MirrorMap(Mirror.of([0, 1], [1, -1], "obs"), Mirror.of([0], [-1], "action")))
    logged |= sided.update(rollout)
    logged |= GRPO(GRPOCfg(group_size=2, kl_coef=0.1), policy).update(rollout)
    soft = soft_table_policy(2)
    sac = SAC(SACCfg(learning_starts=0, replay_capacity=100, batch_size=4), soft)
    logged |= sac.update(bandit(soft, torch.zeros(4, dtype=torch.int64), 2, torch.ones_like))
    logged |= make_demonstrated_sac(imitation_coef=0.1).update(make_rollout())
    assert set(rows(section("Reading the diagnostics"))) == set(logged)
