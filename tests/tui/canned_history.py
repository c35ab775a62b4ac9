"""The history of a run that lost an attempt to a GPU's memory, and lives."""

from __future__ import annotations

from rltui.watch.snapshots import AttemptHistory, RunHistory

NOW = 1_793_000_000.0

HISTORY = RunHistory(
    attempts=(
        AttemptHistory(
            number=1, outcome="failed", cause="xid_memory_ecc", reason="the trainer was killed by signal 9 (SIGKILL)",
            submitted_at=NOW - 9000, started_at=NOW - 7200, ended_at=NOW - 3600, queue_s=1800, slots=8, first_step=1,
            last_step=400, steps=400, overtaken_steps=50, held_s=3600, start_up_s=300, kept_s=2400, overtaken_s=360,
            between_s=120, tail_s=420,
        ),
        AttemptHistory(
            number=2, submitted_at=NOW - 3500, started_at=NOW - 3000, queue_s=500, slots=8, first_step=351,
            last_step=700, steps=350, held_s=3000, start_up_s=300, kept_s=2600, overtaken_s=0, between_s=80, tail_s=20,
        ),
    ),
    queue_s=2300, held_h=14.667, kept_h=11.111, overhead_h=1.111, under_way_h=0.045, lost_h={"xid_memory_ecc": 2.4},
    goodput=0.76,
)  # fmt: skip
