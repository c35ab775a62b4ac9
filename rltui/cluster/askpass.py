"""The program that ssh calls for an answer (``SSH_ASKPASS``): it passes the question to the rltui that started ssh.

Standard library only, run as a file, so that it starts in some 20 ms.
"""

import json
import os
import socket
import sys

SOCKET_VARIABLE = "RLTUI_ASKPASS"


def main() -> int:
    """Print the answer to the question in ``argv[1]``; 1 where there is none, which ssh takes as a refusal."""
    question = {"text": sys.argv[1] if len(sys.argv) > 1 else "", "kind": os.environ.get("SSH_ASKPASS_PROMPT", "")}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ[SOCKET_VARIABLE])
        link.sendall(json.dumps(question).encode() + b"\n")
        answer = json.loads(link.makefile().readline() or "null")
    if answer is None:
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
