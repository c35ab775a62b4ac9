"""Create .venv and install what a profile needs: ``python3 tools/setup_env.py PROFILE``.

This file is read by whatever ``python3`` a machine has, so it keeps to the syntax of Python 3.6. It finds a Python
that rltui supports ($PYTHON, else this one, else one on the PATH) and continues there, in ``environment.main``.
"""

import os
import subprocess
import sys
from typing import NoReturn, Optional, Sequence, Tuple

OLDEST, NEWEST = (3, 10), (3, 13)
CANDIDATES = ("python3.11", "python3.12", "python3.13", "python3.10")  # 3.10 last: vLLM needs 3.11

PROBE = "import sys; print(*sys.version_info[:2]); print(sys.executable)"


def fail(message: str, hint: str) -> NoReturn:
    """Print one error with its next step and leave with exit code 1."""
    sys.exit("setup: {}\n  {}".format(message, hint))


def probe(command: str) -> Optional[Tuple[Tuple[int, int], str]]:
    """Return ((major, minor), path) of the Python called ``command``, or None if it does not run.

    A name on the PATH proves nothing: version managers leave stubs for Pythons that are not selected.
    """
    try:
        output = subprocess.check_output([command, "-c", PROBE], stderr=subprocess.DEVNULL, timeout=20)
        version, executable = output.decode().splitlines()
        major, minor = version.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return (int(major), int(minor)), executable


def supported(version: Sequence[int]) -> bool:
    """Tell whether rltui runs on the Python ``(major, minor)``."""
    return OLDEST <= tuple(version) <= NEWEST


def find_python() -> str:
    """Return the path of the Python that .venv is to be made with."""
    wish = os.environ.get("PYTHON")
    if wish:
        found = probe(wish)
        if found is None:
            fail(
                "PYTHON={} does not run.".format(wish), "Name a Python 3.10 to 3.13, as in PYTHON=/usr/bin/python3.11."
            )
        if not supported(found[0]):
            fail("PYTHON={} is Python {}.{}; rltui needs 3.10 to 3.13.".format(wish, *found[0]), "Name another one.")
        return found[1]
    if supported(sys.version_info[:2]):
        return sys.executable
    for name in CANDIDATES:
        found = probe(name)
        if found is not None and supported(found[0]):
            return found[1]
    fail(
        "this is Python {}.{}, and no Python 3.10 to 3.13 is on the PATH.".format(*sys.version_info[:2]),
        "Install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: PYTHON=/path/to/python3.11.",
    )


def main() -> int:
    """Continue in the chosen Python: in this process where it is this one, else in its place."""
    python = find_python()
    if python != sys.executable:
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
    from environment.main import main as set_up

    return set_up(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
