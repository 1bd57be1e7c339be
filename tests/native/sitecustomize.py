"""Makes Python take bignn from PYTHONPATH, not from where it is installed, for `make sanitize`.

An editable installation puts a finder of its own in front of the path.
"""

import sys

sys.meta_path[:] = [
    finder for finder in sys.meta_path if "_editable_skbc_bignn" not in type(finder).__module__
]
