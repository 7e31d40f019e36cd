"""EmbodiChain RL on MuJoCo: train robots by reinforcement learning from one JSON file.

import embodichain as ec

summary = ec.train("reach", **{"trainer.seed": 3})
policy = ec.load_policy(summary["run_folder"])
env = ec.make("ReachRL", num_envs=64)
obs, _ = env.reset(seed=1)
action = policy.act(obs)
"""

import sys
from typing import TYPE_CHECKING

import embodichain.conflict  # noqa: F401 (ends here if the next import would find another project's file)
from embodichain.utils import face, system

if TYPE_CHECKING:
    from embodichain.agents.rl.algo import register_algo
    from embodichain.agents.rl.models import register_network, register_policy
    from embodichain.agents.rl.train import train
    from embodichain.lab.gym.registry import make, register_env
    from embodichain.tools.policy import load_policy

if "torch" not in sys.modules:  # else OpenMP has read its variables already: see device.warn_of_spinning_threads
    system.limit_openmp_spinning()

__version__ = "0.2.0"
__all__ = ["load_policy", "make", "register_algo", "register_env", "register_network", "register_policy", "train"]

__getattr__ = face(
    __name__,
    {
        "load_policy": "embodichain.tools.policy",
        "make": "embodichain.lab.gym.envs.tasks.rl",  # which registers our tasks
        "register_algo": "embodichain.agents.rl.algo",
        "register_env": "embodichain.lab.gym.registry",
        "register_network": "embodichain.agents.rl.models",
        "register_policy": "embodichain.agents.rl.models",
        "train": "embodichain.agents.rl.train",
    },
)


def __dir__() -> list[str]:  # for completion by tab
    return __all__
