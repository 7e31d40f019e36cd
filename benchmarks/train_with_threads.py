"""Trains as ``embodichain.agents.rl.train``, but lets torch use all cores while it collects, too: see async_real."""

from __future__ import annotations

from embodichain.utils.openmp import limit_openmp_spinning

if __name__ == "__main__":
    limit_openmp_spinning()

import sys

import torch

from embodichain.agents.rl import train
from embodichain.agents.rl.collector import sync_collector
from embodichain.utils.threads import torch_threads

if __name__ == "__main__":
    count = torch.get_num_threads()
    sync_collector._threads_beside = lambda env: torch_threads(count)
    sys.exit(train.main())
