"""The training config: its typed form, older layouts, and values from the command line."""
