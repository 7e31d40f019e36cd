"""Algorithms that fail on purpose; a config names this module. Each fault happens once: a file remembers it."""

import os
import signal
import time
from pathlib import Path

from tensordict import TensorDict

from embodichain.agents.rl.algo import PPO, register_algo
from embodichain.agents.rl.distributed import get_process_group


@register_algo("ppo_killed")
class KilledPPO(PPO):
    """In the third update of a run rank 0, which writes the run's files, gets SIGKILL."""

    def update(self, rollout: TensorDict) -> dict[str, float]:
        file = Path("killed")
        is_third = round(self.progress * 5) == 2  # of 5 iterations
        if is_third and get_process_group().rank == 0 and not file.exists():
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(rollout)


@register_algo("ppo_waiting")
class WaitingPPO(PPO):
    """In the third update it waits for a machine to be lost."""

    def update(self, rollout: TensorDict) -> dict[str, float]:
        if self.progress >= 2 / 6:  # of 6 iterations
            Path(f"waiting_{get_process_group().rank}").touch()
            while not Path("machine_lost").exists():
                time.sleep(0.02)
        return super().update(rollout)
