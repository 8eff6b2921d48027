"""The real data sets, where they are at hand."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the collected cases and benchmarks are not beside this checkout (../shared)"
)
