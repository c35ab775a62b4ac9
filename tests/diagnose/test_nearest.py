"""Where nothing says why, the causes that a log is nearest to by its words are named, and are no diagnoses."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import examine
from rltui.diagnose.index import CAUSES
from rltui.diagnose.kind import PROGRAM
from rltui.diagnose.nearest import in_words, nearest
from rltui.diagnose.sources import text_source

IN_OTHER_WORDS = [
    ("hf_rate_limit", "the huggingface hub answers: too many requests were made, error 429, try again later"),
    ("disk_quota", "write to the home folder failed as its quota is exceeded"),
    ("ray_pg_infeasible", "failed: the placement group asks for more GPU than nodes of this cluster can fulfill"),
    ("wandb_auth", "wandb login did not work: invalid API key, permission denied"),
    ("xid_nvlink", "GPU 3: NVLink reports a fatal uncorrectable error"),
]


@pytest.mark.parametrize(("cause", "line"), IN_OTHER_WORDS, ids=[cause for cause, _ in IN_OTHER_WORDS])
def test_words_that_no_wording_has_lead_to_their_cause(cause: str, line: str) -> None:
    assert cause in nearest([line.encode()])


@pytest.mark.parametrize("line", ["loading the model from the huggingface hub", "WARNING hub: 429, retry later", ""])
def test_what_does_not_complain_or_only_warns_is_near_to_nothing(line: str) -> None:
    assert nearest([f"{line}\nstep 3 loss 0.4\n".encode(), b""]) == ()


def test_only_what_nothing_else_explains_is_asked() -> None:
    unknown = examine([text_source("log", "the scheduler failed: too many requests to the hub\n")])
    assert (unknown.diagnoses, bool(unknown.nearest)) == ((), True)
    assert examine([text_source("log", "OSError: [Errno 28] No space left on device\n")]).nearest == ()


def test_the_end_of_a_long_log_is_read() -> None:
    cause, line = IN_OTHER_WORDS[0]
    log = f"{line}\n" + "step and step\n" * 10_000
    assert examine([text_source("log", log)]).nearest == ()
    assert cause in examine([text_source("log", f"{log}{line}\n")]).nearest


def test_neither_the_general_cause_nor_what_slows_a_run_is_named() -> None:
    texts = [f"failed: {cause.title}. {cause.tell}".encode() for cause in CAUSES.values()]
    named = {cause for text in texts for cause in nearest([text])}
    assert named
    assert [cause for cause in named if cause == PROGRAM or CAUSES[cause].word] == []


def test_people_read_titles() -> None:
    assert list(in_words(())) == []
    heading, first = in_words(("gloo_timeout",))
    assert heading.startswith("If it failed")
    assert first.startswith("  · gloo_timeout: Processes lost each other")
