"""Lists which configs of an EmbodiChain wheel load here: python scripts/upstream_configs.py embodichain-0.2.4-*.whl

The wheels come from `pip download --no-deps embodichain==VERSION`. Nothing of them is installed or run.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from embodichain.agents.rl.config.trainer_cfg import is_env_config
from embodichain.commands.validate import format_config, read_config
from embodichain.ext.upstream.environment import refuse_other_products
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_config_file

SUFFIXES = (".json", ".yaml", ".yml")


def main(wheels: list[str]) -> None:
    """Print a table for each wheel."""
    logging.disable(logging.WARNING)  # what is read as what; `embodichain validate CONFIG` shows it
    try:
        for wheel in wheels:
            results = dict(check_wheel(Path(wheel)))
            loaded = sum(result.startswith("loads") for result in results.values())
            print(f"{Path(wheel).name}: {loaded} of {len(results)} configs load")
            print("\n".join(f"  {name}: {result}" for name, result in results.items()))
    finally:
        logging.disable(logging.NOTSET)


def check_wheel(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each training config, environment config and task program in a wheel, and whether it loads.

    A file that is there twice counts once.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root, [name for name in archive.namelist() if name.endswith(SUFFIXES)])
        seen = set()
        for path in sorted(root.rglob("*.*")):
            if path.is_file() and path.read_bytes() not in seen and (result := check(path)):
                seen.add(path.read_bytes())
                yield str(path.relative_to(root)), result.replace(f"{root}/", "")


def check(path: Path) -> str | None:
    """Return whether a file loads, or the first line of what refuses it; None if it is neither kind of config."""
    try:
        data = load_config_file(path)
        refuse_other_products(data)
        if "trainer" not in data and not is_env_config(data):
            return None
        config = read_config(path, [] if is_env_config(data) else ["trainer.device=cpu"], [])
    except ConfigError as error:
        lines = str(error).splitlines()
        return f"refused: {lines[0].removeprefix(f'{path}: ')}" + (
            f" (and {len(lines) - 1} more lines)" if lines[1:] else ""
        )
    return f"loads: {format_config(config)}"


if __name__ == "__main__":
    main(sys.argv[1:])
