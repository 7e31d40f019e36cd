"""Writes the report of a run into its folder."""

from __future__ import annotations

from pathlib import Path

from embodichain.tools.report.page import make_page
from embodichain.tools.report.run_data import read_run
from embodichain.utils.files import write_atomically

REPORT = "report.html"


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a run's folder, from what is there; return its path.

    Raises:
        ConfigError: the folder is not a run's.
        OSError: it cannot be written.
    """
    page = make_page(read_run(folder))
    path = folder / REPORT
    write_atomically(path, lambda file: file.write(page.encode()))
    return path
