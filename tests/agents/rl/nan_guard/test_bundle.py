from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.checkpoint.file import save_checkpoint
from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.agents.rl.distributed.shards import bundle_folder
from embodichain.agents.rl.nan_guard.bundle import load_bundle, save_bundle, space_from_data, space_to_data
from embodichain.utils import ConfigError


def test_bundle_describes_itself_and_comes_back_as_it_was(tmp_path: Path) -> None:
    rollout = TensorDict({"reward": torch.tensor([[1.0, float("nan")]])}, batch_size=[1, 2])
    path = save_bundle(tmp_path / "bundles", "update", 8, {"rollout": rollout, "skipped": 2})
    assert path == tmp_path / "bundles" / "update_step_8.pt"
    bundle = load_bundle(path)
    assert (bundle["kind"], bundle["global_step"], bundle["skipped"]) == ("update", 8, 2)
    assert set(bundle["versions"]) == {"embodichain", "torch", "numpy", "python"}
    assert bundle["rollout"].batch_size == rollout.batch_size
    torch.testing.assert_close(bundle["rollout"]["reward"], rollout["reward"], equal_nan=True)


def test_each_of_several_processes_keeps_bundles_of_its_own(tmp_path: Path) -> None:
    process_group = ProcessGroup()
    assert bundle_folder(tmp_path, process_group) == tmp_path / "bundles"
    process_group.rank, process_group.world_size = 1, 2
    path = save_bundle(bundle_folder(tmp_path, process_group), "update", 8, {"skipped": 2})
    assert path == tmp_path / "bundles" / "rank_1" / "update_step_8.pt"
    assert load_bundle(path)["skipped"] == 2


def test_checkpoint_is_no_bundle(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.pt", {"global_step": 8})
    with pytest.raises(ConfigError, match="a checkpoint, not a bundle"):
        load_bundle(tmp_path / "a.pt")


def test_spaces_come_back_as_they_were() -> None:
    space = spaces.Dict(
        {
            "robot": spaces.Dict({"qpos": spaces.Box(-np.inf, np.inf, (3,), dtype=np.float32)}),
            "color": spaces.Box(0, 255, (2, 2, 3), dtype=np.uint8),
            "limits": spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 2.0], np.float32)),
        }
    )
    assert space_from_data(space_to_data(space)) == space
