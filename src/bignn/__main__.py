"""``python -m bignn`` runs the command ``bignn``."""

import sys

from bignn.cli import main

if __name__ == "__main__":  # not in the processes that train seeds at the same time
    sys.exit(main())
