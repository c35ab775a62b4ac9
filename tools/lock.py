"""Resolve constraints/lock.txt anew: ``make lock``, with ARGS=--upgrade to move to newer versions.

One resolution for all profiles, both engines and Python 3.10 to 3.13, so that every machine gets versions that were
chosen together. The present lock is the preference: without --upgrade only what has to change does. Extra indexes and
find-links folders are left out: what only they have, others cannot install.
"""

from __future__ import annotations

import os
import subprocess
import sys

from environment.pip_settings import uv_environment
from environment.profiles import CONSTRAINTS, ROOT

COMMAND = (
    *("pip", "compile", "--quiet", "--universal", "--python-version", "3.10"),
    *("--no-emit-index-url", "--no-emit-find-links", "--annotation-style", "line"),
    *("--overrides", "constraints/overrides.txt", "--output-file", "constraints/lock.txt"),
    *("--extra", "trainers", "--extra", "eight-bit", "--extra", "tasks", "--extra", "pictures"),
    *("--extra", "test", "--extra", "peers", "--extra", "dev"),
    *("pyproject.toml", "constraints/engine-cpu.txt", "constraints/engine-gpu.txt"),
)


PRIVATE = ("UV_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY")


def main(arguments: list[str]) -> int:
    """Run uv in the repository's root, so that no path of this machine gets into the file; return its exit code."""
    binaries = ROOT / ".venv" / "bin"
    listing = subprocess.run(
        [binaries / "python", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = {
        variable: value for variable, value in uv_environment(listing, os.environ).items() if variable not in PRIVATE
    }
    environ = {**os.environ, **settings, "UV_CUSTOM_COMPILE_COMMAND": "make lock"}
    code = subprocess.run([binaries / "uv", *COMMAND, *arguments], cwd=ROOT, env=environ, check=False).returncode
    if code == 0:
        print(f"{CONSTRAINTS / 'lock.txt'}: {len((CONSTRAINTS / 'lock.txt').read_text().splitlines())} lines")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
