"""``ray start`` without what nothing of rltui uses: each such part is a Python process more at every launch."""

import importlib
from typing import Any, List

_BARE = "import sys; sys.modules['ray.serve.scripts'] = None; "
_RUN = "from ray.scripts.scripts import main; sys.exit(main())"

START = _BARE + _RUN
"""``ray``, but for its commands about Ray Serve: with them it imports pandas first, and takes twice the CPU seconds."""

START_OWN = _BARE + "from rltui.onnode import ray_start; ray_start.leave_out(); " + _RUN
"""The same for a Ray that only a trainer of ours uses; a script may want all that ``ray start`` gives."""

RELEASE = "2.60."
"""Ray's release whose names these are, that of the trainers; any other starts whole."""

HEADS = ("EventHead", "NodeHead", "StateHead", "TaskEventsHead")
"""Modules of Ray's dashboard that answer what rltui asks of actors, tasks and nodes, and take what its agents report.
The others (Data, Jobs, Metrics, Reports, Serve, Train) are a process each."""

_LOAD = "--modules-to-load="


def leave_out() -> None:
    """Let the ``ray start`` that follows in this process start no client server, log monitor or other ``HEADS``.

    The log monitor brings what roles print to their driver, and a trainer of ours asks for none of that.
    """
    if not importlib.import_module("ray").__version__.startswith(RELEASE):
        return
    services: Any = importlib.import_module("ray._private.services")
    whole = services.start_ray_process

    def start(command: List[str], kind: str, *others: Any, **options: Any) -> Any:
        if kind == "dashboard" and not any(word.startswith(_LOAD) for word in command):
            command = [*command, _LOAD + ",".join(HEADS)]
        return whole(command, kind, *others, **options)

    services.start_ray_process = start
    importlib.import_module("ray._private.node").Node.start_log_monitor = lambda _node: None
    # no option leaves the client server out, only that what it needs is missing
    scripts: Any = importlib.import_module("ray.scripts.scripts")
    scripts.get_ray_client_dependency_error = lambda: ImportError("nobody asks for it")
