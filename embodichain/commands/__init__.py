"""The subcommands of ``embodichain``, a module each, with ``EXAMPLES``, ``add_arguments`` and ``run``."""
