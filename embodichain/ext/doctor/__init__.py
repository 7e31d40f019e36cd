"""Checks of this machine, and of an algorithm by closed-form probes; see the README of this folder."""

from typing import TYPE_CHECKING

from embodichain.commands import Command
from embodichain.utils import face

if TYPE_CHECKING:
    from embodichain.ext.doctor.run import CheckResult, check_algorithm

__all__ = ["COMMAND", "CheckResult", "check_algorithm"]

COMMAND = Command(
    "embodichain.ext.doctor.run",
    "Check this machine and advise what to improve; with --algo, check an algorithm by closed-form probes.",
)

__getattr__ = face(__name__, dict.fromkeys(("CheckResult", "check_algorithm"), "embodichain.ext.doctor.run"))
