"""What becomes part of a job script stays text: proven by letting bash read it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltui.errors import RltuiError
from rltui.runs.quoting import (
    LONGEST,
    bash_path,
    bash_quote,
    comment_text,
    directive_value,
    file_pattern,
    variable_name,
)

HOSTILE = [
    "",
    "plain",
    "it's",
    'a "quoted" word',
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME} $HOME $$ $?",
    "a\nb",
    "a\r\nb",
    "-n -e --help",
    "; touch pwned",
    "& touch pwned &",
    "| touch pwned",
    "> pwned",
    "\\ \\n \\' \\\"",
    "!history !! !$",
    "~/x ~root",
    "*?[a-z]{a,b}",
    "#comment",
    "\t\v\f\x1b[31m\x07\x7f\x80\x9b",
    "ünïcödé ‮ \u2028 😀",
    "'\"'\"'",
    "<<EOF",
    "x" * 60_000,
]

shell_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


def as_bash_reads(words: list[str]) -> list[str]:
    script = "printf '%s\\0' " + " ".join(words)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


def test_hostile_words_are_what_they_were() -> None:
    assert as_bash_reads([bash_quote(word) for word in HOSTILE]) == HOSTILE


@settings(max_examples=100, deadline=None)
@given(st.lists(shell_text, min_size=1, max_size=40))
def test_any_words_are_what_they_were(words: list[str]) -> None:
    assert as_bash_reads([bash_quote(word) for word in words]) == words


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "x" * (LONGEST + 1)])
def test_what_no_script_can_hold_is_refused(bad: str) -> None:
    with pytest.raises(RltuiError) as refused:
        bash_quote(bad, "the value of X")
    assert "the value of X" in refused.value.message
    assert len(refused.value.message) < 300


def test_a_leading_tilde_is_home_and_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ho me")
    words = [bash_path(path) for path in ("~/a b$(x)", "/x/~/y", "~other/x")]
    assert as_bash_reads(words) == ["/ho me/a b$(x)", "/x/~/y", "~other/x"]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_a_directive_is_one_line_and_one_value_or_nothing(text: str) -> None:
    try:
        written = directive_value(text)
    except RltuiError:
        return
    inner = written.removeprefix('"').removesuffix('"')
    assert inner == text
    assert len(written.splitlines()) <= 1
    assert not set(inner) & set("\"'\\\0\n\r")
    assert written.startswith('"') or not set(" #\t") & set(written)


@pytest.mark.parametrize(
    "bad", ["a\nb", "a\r#SBATCH --uid=0", 'a"b', "a'b", "a\\", "a\0", "a\x1b[m", "a\u2028b", "x" * 20_000]
)
def test_directives_refuse_what_could_begin_another(bad: str) -> None:
    with pytest.raises(RltuiError):
        directive_value(bad, "slurm.partition")


def test_percent_signs_of_a_folder_begin_no_replacement() -> None:
    assert file_pattern("/runs/100%j/x", "slurm-%j.out") == "/runs/100%%j/x/slurm-%j.out"
    assert file_pattern("/my runs", "slurm-%j.out") == '"/my runs/slurm-%j.out"'


@pytest.mark.parametrize("bad", ["", "A B", "A=B", "1A", "A-B", "A\n", "x;y", "Ä"])
def test_names_of_variables_are_names(bad: str) -> None:
    with pytest.raises(RltuiError):
        variable_name(bad)
    assert variable_name("_A1") == "_A1"


def test_comments_are_one_line() -> None:
    assert comment_text("a\nb\x1b[m\u2028c") == "a b [m c"
