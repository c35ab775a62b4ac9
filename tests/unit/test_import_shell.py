"""Following shell scripts without running them: words, branches, arrays, and what stays unknown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rltui.importers.arguments import from_flags, from_overrides
from rltui.importers.shell_lexer import ScriptError
from rltui.importers.shell_run import read_shell
from rltui.importers.slurm_lines import read_slurm
from rltui.importers.values import HOLE, HOLES


def words(script: str, program: str = "run") -> list[str]:
    """Words of the only command ``program`` that ``script`` starts, without the program."""
    started = [command.words for command in read_shell(script).commands if command.words[0] == program]
    assert len(started) == 1, started
    return list(started[0][1:])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=4\nrun $A ${A} \"$A\" '$A'", ["4", "4", "4", "$A"]),
        ("run ${A:-x} ${A-y} ${A:+z} ${A:=w} $A", ["x", "y", "w", "w"]),
        ('A=\nrun ${A:-x} "${A-y}"', ["x", ""]),
        ("A='a b'\nrun $A \"$A\"", ["a", "b", "a b"]),
        ("run ${1:-first} $@ last", ["first", "last"]),
        ('A=()\nrun "$@" "${A[@]}" "" "x$@"', ["", "x"]),
        ("set -- 3 4\nrun ${1} $# $2", ["3", "2", "4"]),
        ("A=(x 'y z' # no\n  # nor this\n  w)\nrun ${#A[@]} \"${A[@]}\" ${A[1]}", ["3", "x", "y z", "w", "y", "z"]),
        ("A=(1)\nA+=(2 3)\nrun ${A[*]}", ["1", "2", "3"]),
        ("A=2 B=3\nrun $((A * B + 1)) $(( (A<B) ? 10 : 20 )) $((7 / A))", ["7", "10", "3"]),
        ("N=run.sh.txt\nrun ${N%.*} ${N%%.*} ${N#*.} ${N##*.}", ["run.sh", "run", "sh.txt", "txt"]),
        ("A=B\nB=5\nrun ${!A}", ["5"]),
        (': "${A:="$((2 + 2))"}"\nrun $A', ["4"]),
        ("N=2\n((N*=4))\n((N++))\n((--N)) || true\nlet N=N+1\nrun $N $((2**3**2))", ["9", "512"]),
        ("(echo one; exit 0)\nrun two", ["two"]),
        ('M=a-7B-it\nif [[ $M == *"7B"* ]]; then run yes; else run no; fi', ["yes"]),
        ("M=a-7B\nif [[ $M == ?-[67]B ]]; then run yes; else run no; fi", ["yes"]),
        ("M=a-7B\nif [[ $M == *'*'B ]]; then run yes; else run no; fi", ["no"]),
        ("run a \\\n  b \\\n  # not this\n  --c", ["a", "b", "--c"]),
        ("run a b 2>&1 >log | tee x &", ["a", "b"]),
        ("cat <<EOF > file\nrun not this\nEOF\nrun this", ["this"]),
        ("f() { run $1 $2; }\nf a b", ["a", "b"]),
        ('if [ 1 -eq 2 ]; then A=1; elif [ -n "x" ]; then A=2; else A=3; fi\nrun $A', ["2"]),
        ('if [ -z "$1" ]; then A=2; else A=$1; fi\n[[ -n ${2} ]] && A=3\nrun $A', ["2"]),
        ("W=(a $B)\nif [ ${#W[@]} -gt 0 ]; then A=2; else A=1; fi\nrun $A", ["2"]),
        ("case gpu in cpu) A=1 ;; g*|npu) A=2 ;; esac\nrun $A", ["2"]),
        ('[ -z "$1" ] || exit 1\nA=x && run $A', ["x"]),
        ("[[ a == a && ! 1 -gt 2 ]] && A=1\n((A == 1)) && B=2\nrun $A $B", ["1", "2"]),
        ("for x in 5; do run $x; done", ["5"]),
        ("N=2\nwhile [[ $# -gt 0 ]]; do case $1 in --n) N=$2; shift 2 ;; esac; done\nrun $N", ["2"]),
        (
            'f() { local n=1; while getopts "n:m:v" o; do case $o in n) n=$OPTARG ;; m) M=$OPTARG ;; esac; done; '
            'shift $((OPTIND-1)); run $n $M "$@"; }\nf -v -n 4 -mx --beta 0',
            ["4", "x", "--beta", "0"],
        ),
        ('f() { while getopts "ab:" o; do :; done; shift $((OPTIND-1)); run "$@"; }\nf -ab 3 -- x y', ["x", "y"]),
        ('f() { shift 0; run "$@"; }\nf x y', ["x", "y"]),
        ('N=2\nwhile getopts n: o; do N=$OPTARG; done\nfor a in "$@"; do N=$a; done\nrun $N', ["2"]),
        (
            "f() { while (($#)); do case $1 in --n) N=$2; shift 2 ;; --) shift; W=($@); break ;; *) shift; esac\n"
            "done; }\nf --n 4 x -- a b\nrun $N ${W[@]}",
            ["4", "a", "b"],
        ),
        ("f() { local -n to=$1; to=(a $2); g in; }\ng() { local -n to=$1; to=(b); }\nf W 1\nrun ${W[@]}", ["a", "1"]),
        ('srun bash -c "cd x && run 1 \\\n 2" &>> log', ["1", "2"]),
        ('eval "run 1"', ["1"]),
        ('script -q -c "run 1" log', ["1"]),
        ('script -qefc "run 1 2" /dev/null', ["1", "2"]),
        ("flock -n lock -c 'run 1'", ["1"]),
        ("export A=1 B=2\nlocal C=3\nrun $A$B$C", ["123"]),
        ('run --json=\'{"a": "b"}\' "{\\"a\\": 1}"', ['--json={"a": "b"}', '{"a": 1}']),
    ],
)
def test_words_are_those_that_bash_would_give(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=$'a\\tb\\n'\nrun \"$A\" $'it\\'s' x", ["a\tb\n", "it's", "x"]),
        ("run \"${F:-['a','b']}\" \"${F:-\"x y\"}\" ${F:-'q'} \"${F:-${G:-'z'}}\"", ["['a','b']", "x y", "q", "'z'"]),
        ('A=(1 "2 3")\nrun "${A[*]}" ${A[*]} "x${A[*]}"', ["1 2 3", "1", "2", "3", "x1 2 3"]),
        ('set -- a "b c"\nrun "$*"', ["a b c"]),
        ('A=(x --y 2)\nbash -c "run ${A[*]}"', ["x", "--y", "2"]),
        ('L=a,b,\nIFS=,\nA=($L)\nrun ${#A[@]} "${A[*]}"', ["2", "a,b"]),
        ("L=$'a b\\nc'\nIFS=$'\\n'\nrun $L", ["a b", "c"]),
        (
            "run {1..3} a{x,y}b {a:1} '{1,2}' \"{1,2}\" ${A:-{1}} {01..2} {3..1..2}",
            ["1", "2", "3", "axb", "ayb", "{a:1}", "{1,2}", "{1,2}", "{1}", "01", "02", "3", "1"],
        ),
        ("for i in {0..2} $(seq 3 4); do L+=$i; done\nrun $L", ["01234"]),
        ("D=$(seq -s, 0 3)\nrun $D $(seq -s : 2) $(seq 3 -1 2) $(seq -s)", ["0,1,2,3", "1:2", "3", "2", HOLE]),
        ("A=(1 2)\nA[1]=x\nA[${#A[@]}]=y\nrun ${A[@]}", ["1", "x", "y"]),
        ("A=1\nB=$((A++)) C=$((D = 3))\nrun $A $D", ["2", "3"]),
    ],
)
def test_values_that_were_once_read_otherwise_than_in_bash(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=1\n(A=2; export B=3)\nrun $A ${B:-no}", ["1", "no"]),
        ("A=1\necho x | while read l; do A=2; done\n{ A=3; } 2>&1 | tee log\nA=4 &\nrun $A", ["1"]),
        ("f() (A=2)\nA=1\nf\nrun $A", ["1"]),
        ("f() { local A=$1 B; B=3; C=$A; }\nA=0\nf 9\nrun $A ${B:-no} $C", ["0", "no", "9"]),
        ("f() { local A=2; g; }\ng() { B=$A; }\nA=1\nf\nrun $A $B", ["1", "2"]),
        ("for x in a b c; do [ $x = b ] && continue; L+=$x; done\nrun $L", ["ac"]),
        ("for x in a b c; do if [ $x = b ]; then break; fi; L+=$x; done\nrun $L", ["a"]),
        ("for p in 1 2; do if [ -e $p ]; then P=$p; break; fi; done\nrun ${P:-x}", [HOLE]),
        ("f() { if [ -e x ]; then A=1; return; fi; A=2; }\nf\nrun $A", [HOLE]),
        ("f() { for i in 1 2 3; do if [ $i = 2 ]; then return; fi; A=$i; done; }\nf\nrun $A", ["1"]),
        ("f() { run 1; exit; }\nf\nrun 2", ["1"]),
        ('die() { exit 1; }\nA=${A:-}\n[ -n "$A" ] || die no\nrun 1', ["1"]),
        ("exec > log\nrun 1\nexec b\nrun 2", ["1"]),
        ("E=1 bash -c 'run ${E:-no} ${A:-no} $1' _ x", ["1", "no", "x"]),
        ("A=1\nbash -c 'A=2; exit'\nrun $A", ["1"]),
        ("case ab in 'a*') A=1 ;; *) A=2 ;; esac\nrun $A", ["2"]),
        ('P="a*"\ncase ab in "$P") A=1 ;; $P) A=2 ;; esac\nrun $A', ["2"]),
        ("K=false\nif $K; then A=1; else A=2; fi\n$K || B=3\nrun $A $B", ["2", "3"]),
        ("if ! run 1; then exit 1; fi", ["1"]),
        ("[ ] || run 1", ["1"]),
        ("A=1\ncommand -v x && A=2\n! [ -e x ] && B=1 || B=2\nrun $A $B", [HOLE, HOLE]),
    ],
)
def test_what_a_script_leaves_and_where_it_goes_on(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "environ"),
    [
        ("set -a\nA=1\nset +a\nB=2\nrun", {"A": "1"}),
        ("set -o allexport\nA=1\nset +o allexport\nB=2\nrun", {"A": "1"}),
        ("declare A=1\ndeclare -x B=2\ntypeset -i C=3\nrun", {"B": "2"}),
        ("(export A=1)\nrun", {}),
        ("A=1 bash -c 'bash -c run'", {"A": "1"}),
    ],
)
def test_what_a_command_sees_is_what_is_exported(script: str, environ: dict[str, str]) -> None:
    (command,) = read_shell(script).commands
    assert command.environ == environ


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run $(cat x) `cat y` $HOME", [HOLE, HOLE, HOLE]),
        ("A=${A:-$(nproc)}\nrun $A $((A * 2))", [HOLE, HOLE]),
        ("if [ -f x ]; then A=1; B=2; else A=1; B=3; fi\nrun $A $B", ["1", HOLE]),
        ('if [ "$MODE" = x ]; then A=1; else exit 1; fi\nrun $A', ["1"]),
        ("A=1\nwhile true; do A=2; done\nrun $A", [HOLE]),
        ("case $1 in a) A=1 ;; b) A=1 ;; *) exit 1 ;; esac\nrun $A", ["1"]),
        ("case $1 in a) A=1 ;; b) A=2 ;; esac\nrun $A", [HOLE]),
        ("case $DEVICE in gpu) A=1 ;; npu) A=2 ;; esac\nrun $A", ["1"]),
        ('if [ "$DEVICE" = npu ]; then A=2; else A=1; fi\nrun $A', ["1"]),
        ("if [[ $DEVICE != cuda ]]; then A=2; else A=1; fi\nrun $A", ["1"]),
        ('if [ "$MODE" = quick ]; then A=2; else A=1; fi\nrun $A', [HOLE]),
        ("read A\nrun $A", [HOLE]),
        ("declare -A M=([gpu]=8 [cpu]=1)\nrun ${M[gpu]} ${M[$X]} ${A//x/y}", ["8", HOLE, HOLE]),
        ("N=1\nfor i in $(ls); do N=$((N * 2)); done\nrun $N", [HOLE]),
        ("N=0\nfor ((N=0; N<4; N++)); do :; done\nM=3\nrun $N $((M++))", [HOLE, HOLE]),
        ("A=(1 2)\nA[x]=3\nB=(1 2)\nunset 'B[0]'\nrun ${#A[@]} ${#B[@]}", [HOLE, HOLE]),
        ("A=$((1 / 0)) B=$((010))\nrun $A $B", [HOLE, HOLE]),
        ("A=(--x 1)\nif [ -f y ]; then A+=(--y 2 z=3); fi\nrun ${A[@]}", ["--x", "1", f"--y={HOLE}", f"z={HOLE}"]),
    ],
)
def test_what_only_a_run_would_show_is_a_hole(script: str, expected: list[str]) -> None:
    assert words(script) == expected


def test_nothing_is_ever_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    touch = f"touch {mark}"
    script = f"A=$({touch})\n`{touch}`\nsource {mark}.sh\n{touch}\nrun <({touch}) ${{B:-$({touch})}}\neval '{touch}'"
    (tmp_path / "mark.sh").write_text(f"touch {mark}\n")
    read_shell(script)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("A='open", "a quote (') is opened"),
        ('run "a', 'a quote (") is opened'),
        ("run ${A", "a bracket ({) is opened"),
        ("A=(1 2", "an array is opened"),
        ("f() { f; }\nf", "call each other without end"),
        ("f() { g; }\ng() { f; }\nf", "call each other without end"),
        ("A=0123456789\n" + "A=$A$A$A$A$A$A$A$A$A$A\n" * 6, "grows without end"),
        ("run " + "${A:-" * 60 + "x" + "}" * 60, "without end"),
        ("{ " * 60 + "run", "nested deeper"),
    ],
)
def test_a_script_that_cannot_be_read_says_where_and_why(script: str, message: str) -> None:
    with pytest.raises(ScriptError, match=r"^line \d+: ") as caught:
        read_shell(script)
    assert message in str(caught.value)


def test_eight_loops_in_each_other_are_not_walked_to_the_end() -> None:
    loop = "for x in 1 2 3 4 5 6 7 8; do " * 8 + "run; " + "done; " * 8
    with pytest.raises(ScriptError, match="steps"):
        read_shell(loop)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("P=$(cat <<'EOF'\nYou're (see a) \"x\nEOF\n)\nrun 1", ["1"]),
        ("P=$(\n  # don't :)\n  echo 1\n)\nrun a$(echo '#b') ${#P} c#d", ["a#b", "1", "c#d"]),
        ('run "$(echo ")")" $(echo ")") "${B:-}}" $((1 + (2)))', [")", ")", "}", "3"]),
        ("cat <<EOT\n  EOT\nrun no\nEOT\ncat <<-'E O'\n\trun no\n\tE O\nrun 1", ["1"]),
        ("A=$((1<<3))\nrun <<< x 1", ["1"]),
    ],
)
def test_a_text_inside_a_script_is_none_of_its_words(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    "script",
    [
        'bash <<EOF\nA=x\nrun $N \\$A "q r" \'it"s\'\nEOF',
        "srun sh -s <<'EOF' > log 2>&1 &\nA=x\nrun 2 $A \"q r\" 'it\"s'\nEOF",
        'sbatch -N 2 <<EOF\n#!/bin/bash\n#SBATCH --gres=gpu:8\nrun $N x "q r" \'it"s\'\nEOF',
    ],
)
def test_a_here_document_that_a_shell_or_sbatch_reads_is_followed(script: str) -> None:
    reading = read_shell(f"N=2\n{script}\n")
    assert [list(command.words) for command in reading.commands] == [["run", "2", "x", "q r", 'it"s']]
    assert not reading.jobs or read_slurm(reading.jobs[0]).gpus == 16


def test_a_word_of_many_braces_is_left_as_it_stands() -> None:
    started = time.process_time()
    for word in ("{" * 50_000, "{a,b}" * 5_000, "{" * 90 + "a,b" + "}" * 90):
        assert len(words(f"run {word}")) < 2_000
    assert time.process_time() - started < 20


def test_flags_take_the_last_and_know_missing_from_unknown() -> None:
    flags = from_flags(
        ["--num-nodes", "1", "--a.b=2", "--list", "8", "8", "--on", "--num_nodes", "3", "--n", "-1", "--h", HOLE]
    )
    assert flags.integer("num_nodes") == 3
    assert flags.integer("a.b") == 2
    assert flags.integers("list") == (8, 8)
    assert flags.flag("on") is True
    assert flags.integer("n") == -1
    assert flags.integer("h", default=5) is None
    assert flags.integer("missing", default=5) == 5
    assert flags.flag("h") is None


def test_overrides_of_hydra() -> None:
    settings = from_overrides(["a.b=1", "+c=2", "++d='x'", "~e", "--config-path=config", "a.b=4", "f=[8,8]"])
    assert settings.integer("a.b") == 4
    assert settings.integer("c") == 2
    assert settings.text("d") == "x"
    assert not settings.has("config-path", "e")
    assert settings.integers("f") == (8, 8)


@pytest.mark.parametrize(
    ("lines", "nodes", "per_node", "card"),
    [
        ("#SBATCH -N 2  # two\n#SBATCH --gres=gpu:h100:4", 2, 4, "h100"),
        ("#SBATCH --nodes=2 --gpus-per-node 8", 2, 8, ""),
        ("#SBATCH -N4\n#SBATCH -G 16", 4, 4, ""),
        ("#SBATCH --gres=tmp:10G,gpu:2(S:0-1)", 1, 2, ""),
        ("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1", 3, 4, ""),
        ("#SBATCH -N 2 -n 8 --gpus-per-task=h100:1", 2, 4, "h100"),
        ("#SBATCH -N 2 --gpus-per-task=1", 2, None, ""),
        ("#SBATCH --nodes=2 --gpus=a100:16", 2, 8, "a100"),
        ("#SBATCH -N 2 --gpus-per-socket=a100:2 --sockets-per-node=2", 2, 4, "a100"),
        ("#SBATCH -N 2 --gpus-per-socket=2 -B 2:32", 2, 4, ""),
        ("#SBATCH -N 2 --gpus-per-socket=2", 2, None, ""),
        ("#SBATCH -N 2 --tres-per-node=gres/gpu:h100:4", 2, 4, "h100"),
        ("#SBATCH -N 2 --tres-per-node=gres:gpu:4", 2, 4, ""),
        ("#SBATCH -N 2 --tres-per-job=gres/gpu:16", 2, 8, ""),
        ("#SBATCH -N 2 --ntasks-per-node=8 --tres-per-task=cpu=4,gres/gpu:l40s=1", 2, 8, "l40s"),
        ("#SBATCH --nodes=1\n#SBATCH --nodes=5\n##SBATCH --nodes=9\n#SBATCH --gpus=7", 5, None, ""),
        ("#SBATCH\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8", 2, 8, ""),
        ("#SBATCH --ntasks=15\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus=16", 2, 8, ""),
        ("#SBATCH --ntasks=8 --gpus-per-node=8", 1, 8, ""),
        ("#SBATCH --nodes={N}\n#SBATCH --exclusive", None, None, ""),
    ],
)
def test_sbatch_lines(lines: str, nodes: int | None, per_node: int | None, card: str) -> None:
    job = read_slurm(lines)
    assert (job.nodes, job.gpus_per_node, job.gpu) == (nodes, per_node, card)


@pytest.mark.parametrize(
    "guard",
    [
        'if [ -z "${BASE:-}" ]; then\n  echo no\n  exit 1\nfi',
        '[ -z "$BASE" ] && exit 1',
        '[ -n "${BASE:-}" ] || { echo no; exit 1; }',
        'BASE=${BASE:-}\nif [[ -z "${BASE}" ]]; then exit 1; fi',
    ],
)
def test_a_variable_that_a_script_demands_is_taken_to_be_set(guard: str) -> None:
    reading = read_shell(f'{guard}\npython train.py --path "$BASE/x" --n 2\n')
    assert [command.words[-2:] for command in reading.commands if "train.py" in command.words] == [("--n", "2")]
    assert HOLE in reading.commands[-1].words[3]


def test_an_array_that_is_read_stands_for_words_that_are_not_known() -> None:
    *_, command = read_shell('read -ra ARGS <<< "$(tool)"\npython train.py --colocate ${ARGS[@]}\n').commands
    assert command.words[-1].startswith(HOLES)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("read -r -d '' V <<EOF", ["a", "--n", "2"]),
        ("read -r V <<EOF", ["a", "--n", "2"]),
        ("cat <<EOF >/dev/null", [HOLE]),
    ],
)
def test_a_here_document_that_is_read_whole_is_the_variables_text(command: str, words: list[str]) -> None:
    script = f"N=2\n{command}\na \\\n  --n $N\nEOF\nrun $V\n"
    started = [one for one in read_shell(script).commands if one.words[0] == "run"]
    assert [list(one.words[1:]) for one in started] == [words]
