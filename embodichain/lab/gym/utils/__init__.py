"""Registration of environments and reading of their configs."""
