"""Compares mathematical answers: one JSON line ``[gold, answer text]`` in, one JSON number out, until stdin ends.

A process of its own, because what a model writes can keep a computer algebra system busy for ever (a tower of powers
is evaluated in C, where no alarm reaches it): whoever asks ends this process and starts another.
"""

from __future__ import annotations

import json
import logging
import resource
import sys

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

MEMORY_BYTES = 4 * 2**30
MOST_CHARACTERS = 4000
"""Of an answer, from its end: the result stands there, and the patterns of the parser take long on long texts."""


def equal(gold: str, said: str) -> bool:
    """Whether ``said`` ends in a value equal to ``gold``; both may be LaTeX or plain."""
    kinds = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    wanted = parse(gold, kinds, parsing_timeout=None) or parse(f"${gold}$", kinds, parsing_timeout=None)
    return bool(verify(wanted, parse(said[-MOST_CHARACTERS:], kinds, parsing_timeout=None), timeout_seconds=None))


def main() -> None:
    """Compare formulas, one pair a line, until stdin ends; memory is bounded, as some never end growing."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    # by default Python turns no number of more than 4,300 digits into text, and answers may have longer ones
    sys.set_int_max_str_digits(100_000) if hasattr(sys, "set_int_max_str_digits") else None
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        gold, said = json.loads(line)
        try:
            found = equal(gold, said)
        except Exception:  # noqa: BLE001 - what cannot be parsed is not equal
            found = False
        print(json.dumps(float(found)), flush=True)


if __name__ == "__main__":
    main()
