"""Subcommands of ``superbatch``, a module each; see :mod:`superbatch.cli`."""
