"""Policies as files that run without this package: on a robot, with ONNX Runtime, or in plain PyTorch."""

from embodichain.tools.export.formats import FORMATS
from embodichain.tools.export.module import DeployedPolicy
from embodichain.tools.export.parity import ParityError, Step, check_parity, record_steps

__all__ = ["FORMATS", "DeployedPolicy", "ParityError", "Step", "check_parity", "record_steps"]
