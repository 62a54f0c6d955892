"""``python -m macredit.cli``."""

import sys

from macredit.cli.app import main

sys.exit(main())
