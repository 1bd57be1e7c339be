"""Ctrl-C while the command's modules load: one line, no traceback."""

import subprocess
import sys

import pytest

CODE = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from bignn.cli import main
sys.exit(main(["datasets"]))
"""


@pytest.mark.parametrize("module", ["bignn.cli.run_command", "bignn.cli.datasets", "numpy"])
def test_ctrl_c_while_modules_load_is_one_line(module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", CODE, module], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "bignn: interrupted\n")
