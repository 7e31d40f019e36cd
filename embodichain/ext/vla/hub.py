"""Files from the Hugging Face hub, or from its cache on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from embodichain.utils import ConfigError
from embodichain.utils.doors import install_extra


def download(repo: str, revision: str | None, patterns: Sequence[str], place: str) -> Path:
    """Return the folder with the files of a repository that match; only missing files are downloaded.

    Args:
        revision: a commit, tag or branch; None: the main branch.
        place: place in the config, for messages.

    Raises:
        ConfigError: huggingface_hub is not installed, or the repository is neither reachable nor in the cache.
    """
    name = repo if revision is None else f"{repo}@{revision}"
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"{place}: '{name}' is no folder here, and to download it needs huggingface_hub: {install_extra('vla')}"
        )
    import huggingface_hub  # noqa: PLC0415 (optional extra)

    try:
        return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))
    # Its errors are OSErrors (no connection, offline mode, HTTP) and ValueErrors (no such name).
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{place}: '{name}' cannot be downloaded and is not in the hub's cache here: {str(error).splitlines()[0]}"
        ) from error
