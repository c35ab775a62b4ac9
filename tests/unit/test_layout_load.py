"""Loading layouts: every problem with its place, and nothing that YAML could surprise with."""

from pathlib import Path

import pytest

from rltui.layout.document import MAX_BYTES, parse
from rltui.layout.errors import LayoutError
from rltui.layout.load import dump_layout, load_layout, load_text
from rltui.layout.presets import preset_files, resolve

TINY = resolve("local/grpo-tiny").read_text()


def problems_of(text: str, overrides: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(LayoutError) as caught:
        load_text(text, "my.yaml", overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(("name", "path"), list(preset_files()))
def test_every_preset_loads_and_survives_a_round_trip(name: str, path: Path) -> None:
    layout = load_layout(path).layout
    assert name.endswith(layout.name)
    assert load_text(dump_layout(layout), "dumped").layout == layout


@pytest.mark.parametrize(
    "word", ["1e5", "08", "-2E3", "24:00:00", "no", "0x1f", "1_000", "~", "2026-11-28", "=", "1.5e3"]
)
def test_a_text_that_looks_like_a_number_survives_a_round_trip(word: str) -> None:
    layout = load_text(TINY, "my.yaml", [f"tracking.project='{word}'"]).layout
    assert load_text(dump_layout(layout), "dumped").layout.tracking.project == word


def test_values_are_those_of_yaml_1_2() -> None:
    values = parse("{time: 24:00:00, rate: 1e-6, word: no, octal: 010, yes: 1, nothing: ~, flag: true}", "x").values
    assert values == {
        "time": "24:00:00", "rate": 1e-6, "word": "no", "octal": 10, "yes": 1, "nothing": None, "flag": True
    }  # fmt: skip


def test_lines_of_keys_are_known() -> None:
    loaded = load_text(TINY, "my.yaml")
    line = TINY.splitlines().index(next(line for line in TINY.splitlines() if line.startswith("train:"))) + 1
    assert loaded.line("train.steps") == line
    assert load_text(TINY, "my.yaml", ["train.steps=3"]).line("train.steps") == 0


def test_all_problems_are_told_at_once() -> None:
    text = TINY.replace("zero_stage: 2", "zero_stage: 7").replace("steps: 2000", "stepps: 2000")
    found = problems_of(text)
    assert any("roles.learner.zero_stage: must be one of 0, 1, 2, 3, not 7" in problem for problem in found)
    assert any("train.stepps" in problem and "did you mean 'steps'?" in problem for problem in found)
    assert any("train.steps: is missing" in problem for problem in found)
    assert all(problem.startswith("my.yaml:") for problem in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("- 1\n- 2\n", "no mapping at its top"),
        ("a: 1\na: 2\n", "is there twice; the first one is on line 1"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: &x 1\nb: *x\n", "alias"),
        ("a: !!python/object/apply:os.system ['true']\n", "a"),
        ("x: " + "[" * 100 + "]" * 100, "nested deeper"),
        ("x: [" + "1, " * 60_000 + "]", "more than 50000 values"),
        ("? [a, b]\n: 1\n", "key that is not a word"),
        ("layout: 1\n---\nlayout: 1\n", "not valid YAML"),
    ],
)
def test_bad_yaml_is_refused_in_words(text: str, words: str) -> None:
    assert words in "\n".join(problems_of(text))


def test_tags_are_never_obeyed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    problems_of(f"layout: !!python/object/apply:os.mkdir ['{target}']\n")
    assert not target.exists()


def _prepare(kind: str, path: Path) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "binary":
        path.write_bytes(b"a: \0\1\2")
    elif kind == "latin-1":
        path.write_bytes(b"layout: 1\nname: caf\xe9\n")
    elif kind == "huge":
        path.write_bytes(b"#" * (MAX_BYTES + 1))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "No such file"),
        ("directory", "is a directory"),
        ("loop", "cannot be read"),
        ("binary", "is binary"),
        ("latin-1", ":2: is not UTF-8"),
        ("huge", "larger than 1 MiB"),
    ],
)
def test_unreadable_files_are_one_clear_line(tmp_path: Path, kind: str, words: str) -> None:
    path = tmp_path / "layout.yaml"
    _prepare(kind, path)
    with pytest.raises(LayoutError) as caught:
        load_layout(path)
    assert len(caught.value.problems) == 1
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_enormous_counts_are_refused() -> None:
    found = problems_of(TINY, ("hardware.gpus_per_node=1000000000",))
    assert found == [
        "my.yaml: hardware.gpus_per_node: must be a whole number <= 1024, not 1000000000 "
        "(GPUs of each node, or CPU slots where gpu is 'cpu'.)"
    ]


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("train.steps=7", "train.steps", 7),
        ("train.learning_rate=1e-6", "train.learning_rate", 1e-6),
        ("roles.learner.gpus=[1,1]", "roles.learner.gpus", [1, 1]),
        ("roles.learner.gpus[0]=3", "roles.learner.gpus", [3]),
        ("tracking.project=a=b", "tracking.project", "a=b"),
        ("summary=", "summary", ""),
        ("data.reward=coin", "data.reward", "coin"),
        ("slurm.exclude=[n1, n2]", "slurm.exclude", ["n1", "n2"]),
    ],
)
def test_overrides_are_typed(word: str, key: str, value: object) -> None:
    found: object = load_text(TINY, "x", [word]).layout
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("train.stepz=7", "did you mean 'steps'?"),
        ("train.checkpoint_every=5", "did you mean 'checkpoint.every'?"),
        ("train.zero_stage=3", "or 'roles.learner.zero_stage' or"),
        ("train.zoom=3", "known: adam_beta1, "),
        ("grpo.advantage=rlo", "must be one of standard, centered, rloo, opo, gdpo, "),
        ("grpo.ratio=sapoo", "did you mean 'sapo'?"),
        ("grpo.filter=my:module:f", "or a function of your own as package.module:function"),
        ("grpo.importance=masks", "did you mean 'mask'?"),
        ("trian.steps=7", "did you mean 'train'?"),
        ("train.steps", "is not an override"),
        ("=3", "is not an override"),
        ("train..steps=3", "not a dotted key"),
        ("train.steps.more=3", "train.steps.more: is not a key of a layout"),
        ("train.steps=[", "not valid YAML"),
        ("roles.learner.gpus[9]=1", "not there to be overridden"),
        ("train.steps=!!python/name:os.system x", "tag"),
    ],
)
def test_bad_overrides_say_what_is_known(word: str, words: str) -> None:
    assert words in "\n".join(problems_of(TINY, (word,)))


def test_presets_are_found_by_either_name_and_typos_are_met() -> None:
    assert resolve("grpo-tiny") == resolve("local/grpo-tiny")
    from rltui.errors import UsageError

    with pytest.raises(UsageError, match="local/grpo-tiny"):
        resolve("grpo-tinny")


def test_what_stands_in_a_list_is_known_by_its_own_line() -> None:
    found = parse("layout: 1\nnames:\n  - one\n  - two\n  -\n    inner: three\n", "text")
    assert [found.lines["names", place] for place in range(3)] == [3, 4, 6]
    assert found.lines["names", 2, "inner"] == 6
