"""GRPO with one fault: its first engine's process is killed as the third weights are sent to it."""

from __future__ import annotations

import sys

from trainers.grpo import main as train
from trainers.roles.calls import Role, RoleDiedError
from trainers.weight_sync import Transfers

VERSION = 2


def main() -> int:
    """As ``python -m trainers.grpo``, with the fault in it; returns the exit code."""
    send = Transfers.send
    killed: list[Role] = []

    def killing(self: Transfers, version: int) -> list[RoleDiedError]:
        """End the process, wherever it is, and send: the learner finds nobody at the other end."""
        import ray

        if version == VERSION and not killed:
            killed.append(self._engines[0])
            ray.kill(self._engines[0].actor)
        return send(self, version)

    Transfers.send = killing  # type: ignore[method-assign]
    return train(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
