"""Policies as files that run without this package: on a robot, with ONNX Runtime, or in plain PyTorch."""

from embodichain.agents.rl.export.formats import FORMATS
from embodichain.agents.rl.export.module import DeployedPolicy
from embodichain.agents.rl.export.parity import ParityError, Step, check_parity, record_steps

__all__ = ["FORMATS", "DeployedPolicy", "ParityError", "Step", "check_parity", "record_steps"]
