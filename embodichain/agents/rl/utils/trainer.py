"""The trainer, where the documented import finds it."""

from embodichain.agents.rl.trainer.trainer import Trainer

__all__ = ["Trainer"]
