"""The training loop with evaluation, statistics of steps, precision, profiling."""
