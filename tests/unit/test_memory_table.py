"""Measured memory beside the estimate, as people read it."""

from __future__ import annotations

from rltui.cli.show import memory_lines


def document(**moments: dict[str, float]) -> dict[str, object]:
    """Two learners, the second of which took half of what the first did."""
    half = {name: {kind: size / 2 for kind, size in peak.items()} for name, peak in moments.items()}
    roles = [
        {"role": f"learner {rank}", "kind": "learner", "moments": peaks} for rank, peaks in enumerate((moments, half))
    ]
    estimate = {"learner": {"backward": {"total_gib": 13.5, "torch_gib": 12.0}}}
    return {"roles": roles, "estimate": {"roles": estimate, "notes": ["A note."]}}


def test_the_highest_rank_is_compared_with_the_estimate() -> None:
    peak = {"resident_gib": 3.0, "allocated_gib": 10.0, "reserved_gib": 11.0}
    table = list(memory_lines(document(backward=peak, save={"resident_gib": 4.0})))
    assert table[0].split() == ["role", "moment", "process", "torch", "reserved", "estimated", "off"]
    assert table[1].split() == ["learner", "backward", "3.00", "10.00", "11.00", "12.00", "+20%"]
    assert table[2].split() == ["learner", "save", "4.00", "-", "-", "-", "-"]
    assert table[-1] == "A note."
    assert not any("No card" in line for line in table)


def test_without_a_card_it_says_what_a_process_holds() -> None:
    table = list(memory_lines(document(backward={"resident_gib": 0.6})))
    assert table[1].split() == ["learner", "backward", "0.60", "-", "-", "12.00", "-"]
    assert any("interpreter and libraries" in line for line in table)
