"""``python -m bignn`` runs the command ``bignn``."""

import sys

from bignn.cli import main

if __name__ == "__main__":  # not in the processes that train seeds at the same time
    code = main()
    if (distributed := sys.modules.get("bignn.train.distributed")) is not None:
        distributed.end_process(code)
    sys.exit(code)
