"""The training loop and what it needs: evaluation, statistics of steps, precision, profiling."""
