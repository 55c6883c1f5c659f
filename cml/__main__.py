"""``python -m cml``."""

import sys

from cml.cli import main

sys.exit(main())
