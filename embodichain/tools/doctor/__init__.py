"""The self-test of algorithms: closed-form probes that name what is wrong with an ``update``."""

from embodichain.tools.doctor.report import CheckResult, format_result, format_totals
from embodichain.tools.doctor.run import check_algorithm, run_checks

__all__ = ["CheckResult", "check_algorithm", "format_result", "format_totals", "run_checks"]
