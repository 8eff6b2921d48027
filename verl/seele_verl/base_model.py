"""The earlier name of ``seele model base``."""

import sys

from seele_models.command import base_main

if __name__ == "__main__":
    sys.exit(base_main())
