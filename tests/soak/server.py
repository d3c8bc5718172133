"""`rmt` on a host whose clock jumps: `python -m tests.soak.server skew serve r1 --work`.

The file `skew` says by how many seconds the clock is wrong; it may be written at any moment.
"""

import sys
import time
from pathlib import Path

from rmt_pipeline.cli.main import main
from rmt_pipeline.system import SystemClock


def skewed(file: Path) -> float:
    try:
        return time.time() + float(file.read_text())
    except (OSError, ValueError):  # being written
        return time.time()


if __name__ == "__main__":
    skew = Path(sys.argv.pop(1))
    SystemClock.now_s = lambda _: skewed(skew)  # type: ignore[method-assign]
    main()
