"""`python -m bisimetric` is the command `bisimetric`."""

import sys

from bisimetric.cli import main

if __name__ == "__main__":
    sys.exit(main())
