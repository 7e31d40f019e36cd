"""Reports of runs, comparisons, sweeps; see the README of this folder."""

from embodichain.commands import Command

REPORT = Command(
    "embodichain.ext.report.page",
    "Write report.html into a run's folder: curves, reward terms, evaluations, videos, config. Runs end with one.",
)
COMPARE = Command(
    "embodichain.ext.report.compare",
    "Compare trainings over seeds: interquartile means, intervals, a plot, a winner only where the data allow it.",
)
DIFF = Command(
    "embodichain.ext.report.diff",
    "Compare two runs side by side: the values that differ in their configs, machines and code, and the results.",
)
REWARDS = Command(
    "embodichain.ext.report.rewards",
    "Analyse a run's reward: each term's size, share of the variance and correlation with success.",
)
SWEEP = Command(
    "embodichain.ext.report.sweep",
    "Search for hyperparameters: train with many settings in separate processes, print the best (Optuna).",
)
