"""The subcommands of ``embodichain``, a module each, with ``HELP``, ``EXAMPLES``, ``add_arguments`` and ``run``."""
