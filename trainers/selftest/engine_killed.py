"""GRPO with one fault: its first engine's process is killed as the third weights are sent to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainers.roles.transfers import Transfers

if TYPE_CHECKING:
    from trainers.roles.calls import RoleDiedError

VERSION = 2


class KillingTransfers(Transfers):
    """Transfers of which one meets a death."""

    is_done = False

    def send(self, version: int) -> list[RoleDiedError]:
        """Kill the engine's process, wherever it is, and send: the learner finds nobody at the other end."""
        import ray

        if version == VERSION and not KillingTransfers.is_done:
            KillingTransfers.is_done = True
            ray.kill(self._engines[0].actor)
        return super().send(version)


def main() -> int:
    """As ``python -m trainers.grpo``."""
    import trainers.roles.fleet as fleet
    from trainers.grpo import main as train

    fleet.Transfers = KillingTransfers  # type: ignore[misc]
    return train(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
