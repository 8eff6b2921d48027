"""The ``seele`` command. Each sub-command imports its stage when it runs, so that ``seele --help`` is
quick."""
