"""`python -m tests.simulation --seeds n --first k`."""

import sys

from tests.simulation.run import main

sys.exit(main())
