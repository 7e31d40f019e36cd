"""Where a run's metrics go: files, TensorBoard, Weights & Biases, the terminal, a chart."""
