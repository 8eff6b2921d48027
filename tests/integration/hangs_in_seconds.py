"""``seele``, for whose first driver a silent second counts as a minute once the file FILE is there: a start
takes longer than a test can wait for a hang.

python tests/integration/hangs_in_seconds.py FILE train OVERRIDES...
"""

import sys
from pathlib import Path

from seele.cli.main import main
from seele_verl.runs.watchdog import Watchdog


def hasten(file: Path) -> None:
    measure, first = Watchdog.silent_minutes, []

    def silent_minutes(self: Watchdog) -> float:
        first.append(self)
        return measure(self) * (60 if self is first[0] and file.exists() else 1)

    Watchdog.silent_minutes = silent_minutes


if __name__ == "__main__":
    hasten(Path(sys.argv[1]))
    main(sys.argv[2:])
