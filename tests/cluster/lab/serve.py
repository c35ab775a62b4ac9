"""The process that keeps a lab: ``python -m lab.serve FOLDER [OWNER]``.

It keeps the lab described in FOLDER until it is told to stop or, with the pid of an owner, until that process ends. A
request and its answer are one line of JSON each, on a connection of their own to FOLDER/control: ``{"do": NAME, ...}``
gives ``{"ok": ANSWER}`` or ``{"error": TEXT}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from .control import start_time
from .keeper import Keeper
from .spec import LabError, Spec


class Control:
    """Answers requests about one lab until it is to end."""

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder, self._owner = folder, owner
        self._ending = asyncio.Event()
        self._keeper = Keeper(Spec.load(folder))
        self._lock = asyncio.Lock()

    async def serve(self) -> None:
        """Start the lab, answer, and end it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._ending.set)
        if self._owner:
            loop.add_reader(os.pidfd_open(self._owner), self._ending.set)
        (self._folder / "keeper").write_text(f"{os.getpid()} {start_time(os.getpid())}\n")
        starting = asyncio.create_task(self._keeper.start())
        server = await asyncio.start_unix_server(
            lambda *ends: self._answer(starting, *ends), str(self._folder / "control.new")
        )
        # under its name only now: a socket that is bound and does not listen yet refuses
        (self._folder / "control.new").rename(self._folder / "control")
        try:
            await self._ending.wait()
        finally:
            starting.cancel()
            await asyncio.wait([starting])
            await self._keeper.stop()
            server.close()
            if self._owner:
                shutil.rmtree(self._folder, ignore_errors=True)

    async def _answer(
        self, starting: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = json.loads(await reader.readline())
        try:
            await asyncio.shield(starting)
            async with self._lock:
                answer = {"ok": await self._do(**request)}
        except (LabError, OSError, asyncio.CancelledError, TimeoutError) as error:
            answer = {"error": str(error) or type(error).__name__}
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def _do(self, do: str, **values: Any) -> Any:
        if do == "stop":
            self._ending.set()
            return None
        return await getattr(self._keeper, do)(**values)


if __name__ == "__main__":
    asyncio.run(Control(Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])).serve())
