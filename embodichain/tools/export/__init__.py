"""Policies as files that run without this package: on a robot, with ONNX Runtime, or in plain PyTorch."""
