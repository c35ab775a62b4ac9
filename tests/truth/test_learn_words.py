"""What words say is learned from the cases that are here, and from no other."""

from __future__ import annotations

import learn_words
from why import HEALTHY, Case

from rltui.diagnose.index import CAUSES


def test_what_is_shipped_is_learned_from_today_s_cases() -> None:
    assert learn_words.WORDS.read_bytes() == learn_words.all_words()  # else run tests/truth/learn_words.py


def test_written_ends_are_of_causes_that_a_log_tells() -> None:
    causes = {case.cause for case in learn_words.written()} - {HEALTHY}
    assert len(causes) > 60
    assert [cause for cause in causes if cause not in CAUSES or CAUSES[cause].word] == []


def test_words_speak_for_the_cause_that_they_were_seen_with() -> None:
    texts = ["no room is left", "there is no room", "now no room remained"]
    cases = [Case("disk_full", "a/b#1", text) for text in texts] + [Case("gloo_timeout", "a/b#2", "a peer is silent")]
    told = learn_words.learn(cases)
    assert told.causes == ("disk_full", "gloo_timeout")
    assert sorted(told.terms) == ["is", "no", "no room", "room"]  # what fewer cases have says nothing of others
    assert told.terms["no room"][1].keys() == {0}
    assert told.terms["is"][1].keys() == {0, 1}
