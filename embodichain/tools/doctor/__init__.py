"""Closed-form probes of an algorithm's ``update``."""

from embodichain.tools.doctor.run import CheckResult, check_algorithm

__all__ = ["CheckResult", "check_algorithm"]
