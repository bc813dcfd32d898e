"""``python -m sparseformats``."""

import sys

from sparseformats.cli import main

sys.exit(main())
