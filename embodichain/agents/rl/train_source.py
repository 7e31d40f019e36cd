"""Where a training config comes from: a file, or Python code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.named import find_config
from embodichain.agents.rl.config.trainer_cfg import TrainCfg
from embodichain.utils.configclass import to_dict
from embodichain.utils.errors import placed
from embodichain.utils.files import write_json
from embodichain.utils.plain_data import as_json, check_plain
from embodichain.utils.utility import load_config_file

TrainSource = str | Path | Mapping[str, Any] | TrainCfg
"""A training config: the path of its file or folder, or a shipped one's name; what such a file contains; or typed."""


def read_source(source: TrainSource) -> tuple[dict[str, Any], str, Path]:
    """Return a training config's plain data, its name in messages, and the folder that its paths may be relative to.

    Raises:
        ConfigError: the file cannot be read, or Python's objects hold what no file can.
    """
    if isinstance(source, (str, Path)):
        path = find_config(source)
        return load_config_file(path), str(path), path.parent
    data = to_dict(source) if isinstance(source, TrainCfg) else dict(source)
    plain = as_json(data, name := "the config")
    with placed(f"{name}: "):
        check_plain(plain)
    return plain, name, Path()


@contextmanager
def as_file(source: TrainSource | None) -> Iterator[str | None]:
    """Yield the path of a training config's file, for other processes; one made here is deleted at the block's end."""
    if source is None or isinstance(source, (str, Path)):
        yield None if source is None else str(source)
        return
    with tempfile.TemporaryDirectory(prefix="embodichain_") as folder:
        path = Path(folder) / "train_config.json"
        write_json(path, read_source(source)[0])
        yield str(path)
