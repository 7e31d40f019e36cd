"""``policy.init_from``: a training starts with the policy of another run, such as a behaviour cloning's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy, get_registered_policy_names, load_policy_state
from embodichain.agents.rl.models.registry import PolicyBlock, get_policy_cfg_class
from embodichain.utils import ConfigError
from embodichain.utils.errors import placed
from embodichain.utils.utility import leaves_by_path
from embodichain.utils.validation import from_dict

_PLACE = "policy.init_from: "
# Entries of a policy's block that decide how its parameters are used, other than names and shapes.
_MEANING = ("encoder", "actor", "critic", "squash", "scale_actions", "chunk_length", "obs_groups")


def init_policy(policy: Policy, cfg: PolicyBlock) -> None:
    """Load the parameters and input statistics of the run that ``init_from`` of the block names, if any.

    A policy without a critic skips the critic's. Rank 0 reads. The block of a user's policy is not read.

    Raises:
        ConfigError: the checkpoint cannot be read; parameters do not fit, each being named; or the run's policy used
            them in another way.
    """
    target: str | None = getattr(cfg, "init_from", None)
    if target is None:
        return

    def read() -> tuple[str, dict[str, Any], dict[str, Any]]:
        run = find_run(target)
        return str(run.checkpoint), run.content["policy"], run.content["config"].get("policy", {})

    with placed(_PLACE):
        path, saved, saved_block = get_process_group().run_on_main(read)
    has_critic = hasattr(cfg, "critic")
    if not has_critic:
        saved = {name: value for name, value in saved.items() if not name.startswith("critic.")}
    load_policy_state(policy, saved, _PLACE + path)
    before, now = _meaning(_as_cfg(saved_block, _PLACE + path), has_critic), _meaning(cfg, has_critic)
    lines = [f"{key} {before[key]!r} there, {now[key]!r} here" for key in now if before.get(key, now[key]) != now[key]]
    if lines:
        raise ConfigError(f"{_PLACE}{path}: its policy uses the same parameters in another way: {'; '.join(lines)}")


def _as_cfg(block: Mapping[str, Any], place: str) -> PolicyBlock | None:
    """Return a built-in policy's block; None for any other."""
    if block.get("name") not in get_registered_policy_names():
        return None
    cfg_class = get_policy_cfg_class(block["name"])
    return None if cfg_class is None else from_dict(cfg_class, dict(block), place)


def _meaning(cfg: PolicyBlock | None, has_critic: bool) -> dict[str, Any]:
    """Return a block's entries of ``_MEANING`` by their paths, without the critic's if it has none."""
    if cfg is None:
        return {}
    leaves = leaves_by_path({name: value for name, value in asdict(cfg).items() if name in _MEANING})
    # A script's policy has null for a setting that is off.
    return {path: value or False for path, value in leaves.items() if has_critic or "critic" not in path.split(".")}
