"""What came of runs, read from their folders: reports, comparisons, the reward's terms. Nothing is simulated here."""
