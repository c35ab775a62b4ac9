"""The lab by hand: ``python -m tests.cluster.lab up|down|status|shell NODE [USER]``, run from the checkout.

It lies in $LAB_FOLDER, or in a folder of its own below the temporary one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .lab import Lab
from .spec import LabError

FOLDER = Path(os.environ.get("LAB_FOLDER") or Path(tempfile.gettempdir(), "rltui-lab-by-hand"))


def is_up() -> bool:
    """Whether a lab runs in the folder."""
    with contextlib.suppress(LabError, FileNotFoundError):
        return bool(Lab.running(FOLDER).status())
    return False


def up() -> None:
    """Start the lab and say how to get in."""
    began = time.monotonic()
    if is_up():
        raise LabError(f"{FOLDER} is up already")
    if (FOLDER / "spec.json").exists():
        shutil.rmtree(FOLDER)  # of one that has ended
    lab = Lab(folder=FOLDER).start()
    ssh = lab.ssh_settings()
    print(f"up in {time.monotonic() - began:.1f} s, logs in {FOLDER}/log")
    print(f"login node:    ssh -F {ssh.config} lab        (127.0.0.1:{ssh.port}, user alice, key {ssh.key})")
    print(f"compute node:  ssh -F {ssh.config} node1")
    print("root on one:   python -m tests.cluster.lab shell node1 root")


def main(words: list[str]) -> None:
    """Do what the words say."""
    match words:
        case ["up"]:
            up()
        case ["down"]:
            Lab.running(FOLDER).stop()
        case ["status"]:
            for name, node in Lab.running(FOLDER).status().items():
                print(f"{name:6} {'off' if not node['pid'] else ' '.join(node['services'])}")
        case ["shell", node, *user]:
            argv = Lab.running(FOLDER).command(node, ["bash", "-l"], *user)
            os.execvp(argv[0], argv)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FileNotFoundError:
        sys.exit(f"lab: there is none in {FOLDER}")
    except LabError as error:
        sys.exit(f"lab: {error}")
