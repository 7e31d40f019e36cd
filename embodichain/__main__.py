"""``python -m embodichain COMMAND`` is ``embodichain COMMAND``."""

import sys

from embodichain.cli import main

if __name__ == "__main__":
    sys.exit(main())
