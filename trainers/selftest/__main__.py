"""``python -m trainers.selftest --attempt DIR``."""

import sys

from trainers.selftest.program import main

if __name__ == "__main__":
    sys.exit(main())
