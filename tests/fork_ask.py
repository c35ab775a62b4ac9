"""What is started where a Python would be: it has the server of ``forks.py`` fork a process, and ends as that does.

usage: python fork_ask.py PATH-OF-THE-SERVER WORDS-FOR-PYTHON

It imports little, as it is started for each process that is forked.
"""

import json
import os
import signal
import socket
import sys

N_STREAMS = 3
HEAD_BYTES = 16
HANDED_ON = (signal.SIGTERM, signal.SIGUSR2)
"""Signals on which a trainer saves and ends."""


def ask(path: str, words: list[str]) -> None:
    """Have the server at ``path`` fork a process of these words with this one's environment, folder and streams."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        asked = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(server, [b"%0*d" % (HEAD_BYTES, len(asked))], range(N_STREAMS))
        server.sendall(asked)
        for number in HANDED_ON:
            signal.signal(number, lambda number, _: server.sendall(bytes([number])))
        code = int(server.recv(HEAD_BYTES) or -signal.SIGKILL)  # nothing: the server was ended with all it had
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    ask(sys.argv[1], sys.argv[2:])
