"""The shell reader against bash itself, and against anything at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltui.errors import UsageError
from rltui.importers.areal import read_allocation
from rltui.importers.read import import_text
from rltui.importers.shell_run import read_shell
from rltui.importers.values import HOLE

NAMES = ("A", "B", "C")
PRINTS_ITS_WORDS = 'run() { for word in "$@"; do printf \'%s\\0\' "$word"; done; }\n'
NUMBERS = st.integers(0, 99)
NAME = st.sampled_from(NAMES)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 0) -> str:
    """Arithmetic over numbers and variables; no division, whose zero ends the script in bash."""
    if depth > 2 or draw(st.booleans()):
        return draw(NAME) if draw(st.booleans()) else str(draw(NUMBERS))
    left, right = draw(expressions(depth + 1)), draw(expressions(depth + 1))
    operator = draw(st.sampled_from(["+", "-", "*", "<", ">", "==", "!=", "<=", ">=", "&&", "||"]))
    return f"({left} {operator} {right})"


@st.composite
def words(draw: st.DrawFn) -> str:
    """A word with expansions and quotes."""
    name = draw(NAME)
    number = draw(NUMBERS)
    return draw(
        st.sampled_from(
            [
                f"${name}", f'"${{{name}}}x"', f"${{{name}:-{number}}}", f"${{{name}:+{number} y}}",
                f"${{{name}-{number}}}",
                f"'${name}'", f'"a ${{{name}:-"b c"}}"', f"${{#{name}}}", "${L[@]}", '"${L[@]}"', "${#L[@]}", "${L[0]}",
                f"$(({draw(expressions())}))", "\\$x", f"k=${name}", f"--f={number}", f"${{{name}%0}}",
                f"${{{name}##*1}}", f"a{{{number},${name}}}b", f"{{1..{number % 4}}}",
                "${L[-1]}", '"${L[@]:1}"', '"${!L[@]}"', "${M[a]}", "${#M[@]}", f"${{{name}/{number % 10}/x y}}",
                f'"${{{name}//[12]/-}}"', f"${{{name}:1}}", f"${{{name}: -1}}", f"${{{name}^^}}", '"${L[@]/q/z}"',
                f"$(echo ${name} | tr 1 2)", f"$(printf '%03d.%s' {number} ${name})", f"`echo ${name}`", "$(show)",
                f"$(basename /a/${name}.sh .sh)", f"$(echo a,${name},b | cut -d, -f2)", f"$(wc -w <<< 'a {number}')",
                f"$(echo ${name} a | awk '{{print $2}}')", f"$(echo {number}-${name} | sed 's/-/ /; s/1/x/g')",
                '"${L[*]}"', f"\"${{{name}:-'q'}}\"", '"$@"', '"${E[@]}"', '"${E[@]}x"',
            ]
        )
    )  # fmt: skip


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> str:
    """An assignment, a condition, a case, a loop, a subshell or a function."""
    kind = draw(st.integers(0, 14 if depth < 2 else 3))
    name = draw(NAME)
    if kind == 0:
        return f"{name}={draw(NUMBERS)}"
    if kind == 1:
        return f"{name}=$(({draw(expressions())}))"
    if kind == 2:
        return f"L+=({draw(words())} # a remark\n {draw(words())})"
    if kind == 3:
        return f': "${{{name}:={draw(NUMBERS)}}}"'
    body, other = draw(statements(depth + 1)), draw(statements(depth + 1))
    test = draw(
        st.sampled_from([f'[ "${name}" -gt {draw(NUMBERS)} ]', f"[[ -z ${name} || ${name} == 1* ]]", f"(({name} > 5))"])
    )
    if kind == 4:
        return f"if {test}; then {body}\nelse {other}\nfi"
    if kind == 5:
        return f'case "${name}" in 1*|2) {body} ;; *) {other} ;; esac'
    if kind == 6:
        return f"( {body}; {other} )" if draw(st.booleans()) else f"{{ {body}; }} | {{ {other}; }}"
    if kind == 7:
        local = draw(st.sampled_from(["local ", "declare ", ""]))
        return f"f() {{ {local}{name}=$1; {body}; if {test}; then return; fi; {other}; }}; f {draw(NUMBERS)}"
    if kind == 8:
        leaves = draw(st.sampled_from(["break", "continue"]))
        return f"for x in {draw(NUMBERS)} 7; do {body}; {test} && {leaves}; {other}; done"
    if kind == 9:
        feeds = draw(st.sampled_from([f"<<EOF\n{draw(NUMBERS)} ${name}\n7 8\nEOF\n", f"< <(seq {draw(NUMBERS) % 5})"]))
        return f"while read -r {name} B; do {body}; done {feeds}"
    if kind == 10:
        return f"IFS=, read -r {name} C <<< '{draw(NUMBERS)},4 5,6'"
    if kind == 11:
        return f"mapfile -t L < <(seq 1 {draw(NUMBERS) % 4})"
    if kind == 12:
        return f"cat > $D/f.sh <<EOF\n{name}=${{{name}}}{draw(NUMBERS)}\nEOF\nsource $D/f.sh"
    if kind == 13:
        return f"M[{draw(st.sampled_from('ab'))}]=${name}; printf -v {name} '%s-%d' x {draw(NUMBERS)}"
    return f"for x in {draw(NUMBERS)} 7; do {body}; done"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(statements(), max_size=5), st.lists(words(), min_size=1, max_size=4))
def test_a_known_word_is_the_one_that_bash_gives(lines: list[str], last: list[str]) -> None:
    setup = "A=1\nB=20\nC=\nL=(p 'q r')\nE=()\ndeclare -A M=([a]=3)\nshow() { [ $A = 1 ] && echo $B; echo $A; }\n"
    setup += "\n".join(lines) + "\n"
    script = f"{setup}run {' '.join(last)}\n"
    with TemporaryDirectory() as folder:
        said = subprocess.run(
            ["bash", "-c", PRINTS_ITS_WORDS + script],
            capture_output=True, timeout=60, check=False,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "D": folder},
        )  # fmt: skip
    read = [command for command in read_shell(script).commands if command.words[0] == "run"]
    assert len(read) == 1
    ours = list(read[0].words[1:])
    if not any(HOLE in word for word in ours) and not said.stderr:
        assert ours == said.stdout.decode().split("\0")[:-1]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"ab10 \n\t'\"`$(){}[]<>|&;#\\=-+*/:!~", "if ", "fi\n", "then ", "case ", "esac\n", "do "]),
        max_size=80,
    ).map("".join),
    st.sampled_from([".sh", ".yaml", ".toml", ".slurm"]),
)
def test_any_text_is_read_or_refused_in_one_sentence(text: str, ending: str) -> None:
    caught = None
    try:
        import_text(text, Path(f"script{ending}"))
    except UsageError as error:
        caught = error
    assert caught is None or (caught.exit_code == 2 and "\n" not in caught.message)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8), st.integers(1, 4))
def test_the_size_of_an_allocation_is_the_product_of_its_factors(d: int, p: int, t: int, c: int) -> None:
    plain = read_allocation(f"sglang:d{d}p{p}t{t}")
    mixed = read_allocation(f"megatron:(attn:d{d}p{p}t{t}c{c}|ffn:d{d}p{p}e{t})")
    assert (plain.gpus, plain.data, plain.tensor) == (d * p * t, d, t)
    assert mixed.gpus == d * p * t * c
