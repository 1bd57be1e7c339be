"""``python -m bignn`` is the command ``bignn``."""

import sys

from bignn.cli import main

sys.exit(main())
