"""EmbodiChain's import paths since 0.2: ``embodichain.learning.rl`` is ``embodichain.agents.rl`` with its modules."""

from __future__ import annotations

import sys

import embodichain.agents.rl.collector
import embodichain.agents.rl.train
import embodichain.agents.rl.utils.trainer  # noqa: F401 (these imports load the learner)
from embodichain.agents import rl
from embodichain.agents.rl import models

# The modules themselves, since a second copy of one would have registries of its own.
for _name in [name for name in sys.modules if name.startswith(f"{rl.__name__}.")]:
    sys.modules[_name.replace(rl.__name__, f"{__name__}.rl", 1)] = sys.modules[_name]
sys.modules[f"{__name__}.rl"] = rl
sys.modules[f"{__name__}.rl.policies"] = models  # since 0.3
