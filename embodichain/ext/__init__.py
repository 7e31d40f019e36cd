"""Extensions: each folder adds to the core through entry points or lazy names, and may be deleted."""
