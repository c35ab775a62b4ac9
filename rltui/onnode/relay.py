"""The relay: carries out small requests on the cluster's side, for one rltui, over one byte stream.

It is sent as text, with the modules it imports (``rltui.cluster.relay_program`` names them), to a Python on the other
side, so it leaves no file there. Requests and answers are one JSON object a line (docs/formats.md has the table).
Operations that may wait for long (``IN_THREADS``) are done in threads; the others at once and in order.
The relay ends when its standard input does, and takes the children of ``run`` with it.
"""

import errno
import json
import os
import queue
import signal
import sys
import threading
import time
import zlib
from typing import BinaryIO, Callable, Dict

from rltui.onnode.processes import alive, send
from rltui.onnode.relay_children import Children
from rltui.onnode.relay_files import collect, list_directory, put, read, tail, user_name
from rltui.onnode.relay_http import ask
from rltui.onnode.relay_records import records
from rltui.onnode.relay_request import MIB, Answer, Refusal, Request, count_of, text_of
from rltui.onnode.relay_search import search

VERSION = 1

MAX_LINE = 32 * MIB
MAX_THREADS = 8
MAX_WAITING = 256

KINDS = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.EEXIST: "exists",
    errno.EISDIR: "not-a-file",
    errno.ENXIO: "not-a-file",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.ECONNREFUSED: "unreachable",
    errno.ECONNRESET: "unreachable",
    errno.ETIMEDOUT: "timeout",
}

CHILDREN = Children()


def hello(_: Request) -> Answer:
    """Who and where this relay is."""
    return {
        "version": VERSION,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "host": os.uname().nodename,
        "user": user_name(os.getuid()),
        "pid": os.getpid(),
        "home": os.path.expanduser("~"),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "time": time.time(),
    }


def are_alive(request: Request) -> Answer:
    """Whether each of ``processes`` (pid, start time, host) still runs; null for one of another host."""
    wanted = request.get("processes")
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted):
        raise Refusal("bad-request", "processes must be a list of {pid, start_time, host}")
    here = ("", os.uname().nodename)
    return {
        "alive": [
            alive(count_of(one, "pid"), text_of(one, "start_time")) if text_of(one, "host", "") in here else None
            for one in wanted
        ]
    }


def send_signal(request: Request) -> Answer:
    """Send a signal, by number, to exactly the process that had this pid and start time."""
    pid, number = count_of(request, "pid"), count_of(request, "signal")
    if pid <= 1:
        raise Refusal("bad-request", "pid must be over 1")
    return {"sent": send(pid, text_of(request, "start_time"), signal.Signals(number))}


OPERATIONS: Dict[str, Callable[[Request], Answer]] = {
    "hello": hello,
    "read": read,
    "tail": tail,
    "collect": collect,
    "put": put,
    "list": list_directory,
    "search": search,
    "records": records,
    "alive": are_alive,
    "signal": send_signal,
    "http": ask,
    "run": CHILDREN.run,
}
IN_THREADS = frozenset({"collect", "http", "records", "run", "search"})


def carry_out(request: Request) -> Answer:
    """Do one request; whatever goes wrong is an answer."""
    operation = OPERATIONS.get(str(request.get("op")))
    try:
        if operation is None:
            raise Refusal("bad-request", "there is no operation %.40r" % (request.get("op"),))
        return dict(operation(request), ok=True)
    except Refusal as error:
        return refusal(error.kind, str(error))
    except OSError as error:
        kind = "timeout" if isinstance(error, TimeoutError) else KINDS.get(error.errno or 0, "failed")
        place = ": " + os.fsdecode(error.filename) if error.filename else ""
        return refusal(kind, "%s%s" % (error.strerror or error, place))
    except (ValueError, zlib.error) as error:
        return refusal("bad-request", str(error))
    except Exception as error:  # noqa: BLE001 (the outermost edge: a traceback would break the stream)
        return refusal("failed", "%s: %s" % (type(error).__name__, error))


def refusal(kind: str, text: str) -> Answer:
    """Return the answer that says no."""
    return {"ok": False, "kind": kind, "error": text[:1000]}


class Relay:
    """Reads requests until they end, and writes the answers.

    Args:
        source: Where requests come from.
        sink: The descriptor that answers go to.
    """

    def __init__(self, source: BinaryIO, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self._waiting: "queue.Queue[Request]" = queue.Queue(MAX_WAITING)
        self._threads = 0

    def serve(self) -> None:
        """Answer until the other side closes its end."""
        while True:
            line = self._source.readline(MAX_LINE)
            if line.endswith(b"\n"):
                self._dispatch(line)
            elif len(line) < MAX_LINE:
                return
            else:
                self._skip_line()
                self._answer({}, refusal("too-large", "a request is over %d bytes" % MAX_LINE))

    def _skip_line(self) -> None:
        rest = b"-"
        while rest and not rest.endswith(b"\n"):
            rest = self._source.readline(MIB)

    def _dispatch(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            self._answer({}, refusal("bad-request", "a request must be one JSON object on one line"))
        elif str(request.get("op")) in IN_THREADS:
            self._enqueue(request)
        else:
            self._answer(request, carry_out(request))

    def _enqueue(self, request: Request) -> None:
        if self._threads < MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()
        try:
            self._waiting.put_nowait(request)
        except queue.Full:
            self._answer(request, refusal("busy", "%d requests are waiting already" % MAX_WAITING))

    def _work(self) -> None:
        while True:
            request = self._waiting.get()
            self._answer(request, carry_out(request))

    def _answer(self, request: Request, answer: Answer) -> None:
        name = request.get("id")
        answer["id"] = name if isinstance(name, (int, str)) else None
        left = memoryview(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
        try:
            # several threads answer, and a pipe takes a long line in pieces
            with self._writing:
                while left:
                    # a pipe to ssh takes 64 KiB at a time
                    left = left[os.write(self._sink, left) :]
        except BrokenPipeError:
            end()


def end() -> None:
    """End the relay and all that it started, without waiting for its threads."""
    CHILDREN.end_all()
    # threads may be in reads of a hung NFS, from which no exit of Python's would come back
    os._exit(0)


def end_on_signals() -> None:
    """Let the signals with which a session ends end the relay.

    Python calls a handler between two steps of the main thread, which sits in a read; a signal that comes just before
    the read would wait for the next request. The byte that Python writes to the wake-up descriptor does not.
    """
    inner, outer = os.pipe()
    # set_wakeup_fd refuses a descriptor that may block
    os.set_blocking(outer, False)
    signal.set_wakeup_fd(outer)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        os.read(inner, 1)
        end()

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Entry point: standard input and output are the stream."""
    end_on_signals()
    Relay(sys.stdin.buffer, sys.stdout.fileno()).serve()
    end()


if __name__ == "__main__":
    main()
