"""Tasks: the same prompt for the same number, whatever was asked before; every row once an epoch; the model's form."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rltui.layout.load import load_text
from trainers.data.codec import Codec
from trainers.data.tasks import make_task
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.rewards.code import trials_of

if TYPE_CHECKING:
    from trainers.data.prompts import Prompt, Task

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/fixtures/data"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bos>{% endif %}"
)


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    """One token a character, with a chat template."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = new_tokenizer(VOCABULARY, 512)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    return Codec(str(folder))


def task(codec: Codec, train: object, *words: str, prompt: int = 100) -> Task:
    text = (ROOT / "layouts/local/grpo-tiny.yaml").read_text()
    layout = load_text(text, "tiny.yaml", [f"data.train={train}", f"lengths.prompt={prompt}", *words]).layout
    return make_task(layout, codec)


def texts(prompts: list[Prompt]) -> list[str]:
    return [prompt.text for prompt in prompts]


def test_every_row_once_an_epoch_and_each_epoch_in_another_order(codec: Codec) -> None:
    sums = task(codec, DATA / "sums.jsonl")
    epochs = [texts(sums.prompts(6 * epoch, 6)) for epoch in range(3)]
    assert len({*epochs[0]}) == 6
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("cursor", [0, 1, 5, 6, 7, 1000])
def test_a_resumed_run_sees_what_it_would_have_seen(codec: Codec, cursor: int) -> None:
    whole = task(codec, DATA / "sums.jsonl").prompts(0, cursor + 8)
    assert task(codec, DATA / "sums.jsonl").prompts(cursor, 8) == whole[cursor:]
    other = task(codec, DATA / "sums.jsonl", "train.seed=99").prompts(0, 12)
    assert texts(other) != texts(task(codec, DATA / "sums.jsonl").prompts(0, 12))


def test_prompts_that_are_too_long_are_left_out_and_counted(codec: Codec) -> None:
    sums = task(codec, DATA / "sums.jsonl", prompt=10)
    assert sums.left_out == 1
    assert all(len(prompt.token_ids) == 4 for prompt in sums.prompts(0, 10))
    with pytest.raises(ValueError, match="all 6 prompts are longer"):
        task(codec, DATA / "sums.jsonl", prompt=3)


def test_answers_and_tests_come_with_the_prompt(codec: Codec) -> None:
    (prompt,) = [found for found in task(codec, DATA / "sums.jsonl").prompts(0, 6) if found.text == "2+3="]
    assert prompt.answer == "5"
    assert codec.decode(prompt.token_ids) == "2+3="
    functions = task(codec, DATA / "functions.jsonl").prompts(0, 2)
    counts = {prompt.text[:5]: len(trials_of(prompt.row)) for prompt in functions}
    assert counts == {"Write": 3, "Read ": 2}


def test_messages_and_chats_take_the_model_s_template(codec: Codec, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "1+1"}]
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": said, "answer": 2}) + "\n")
    (prompt,) = task(codec, file).prompts(0, 1)
    assert prompt.text == "<user>1+1<bos>"
    assert prompt.answer == "2"
    assert prompt.token_ids[-1] == 1  # the template's <bos> is the token, not five characters
    (prompt,) = task(codec, file, "data.system=be brief").prompts(0, 1)
    assert prompt.text == "<system>be brief<user>1+1<bos>"
    plain = task(codec, DATA / "sums.jsonl", "data.chat=true").prompts(0, 1)[0]
    assert plain.text.startswith("<user>")


def test_a_model_without_a_template_is_named(tmp_path: Path) -> None:
    new_tokenizer(VOCABULARY, 512).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    with pytest.raises(ValueError, match="no chat template"):
        task(Codec(str(tmp_path)), DATA / "sums.jsonl", "data.chat=true")


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("", [], "has no rows"),
        ('{"prompt": "a"}\n{oops\n', [], "line 2 of .* is not JSON"),
        ("[1]\n", [], "line 1 of .* is not an object"),
        ('{"q": "a"}\n', [], r"data\.prompt_key"),
        ('{"q": "a"}\n', ["data.prompt_key=p"], "no key 'p'"),
        ('{"prompt": "a"}\n{"q": "b"}\n', [], "row 2 of .* has no key 'prompt'"),
        ('{"prompt": 5}\n', [], "neither a text nor a list of messages"),
    ],
)
def test_bad_files_are_named(codec: Codec, tmp_path: Path, content: str, words: list[str], message: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        task(codec, file, *words)


def test_unknown_tasks_and_missing_files_are_named(codec: Codec, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no builtin task"):
        task(codec, "builtin/sort-letters")
    with pytest.raises(ValueError, match="is not there"):
        task(codec, tmp_path / "rows.jsonl")


def test_json_and_parquet(codec: Codec, tmp_path: Path) -> None:
    rows = [{"prompt": "1+1=", "answer": "2"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    assert texts(task(codec, tmp_path / "rows.json").prompts(0, 1)) == ["1+1="]
    file = tmp_path / "rows.parquet"
    if importlib.util.find_spec("pyarrow") is None:
        file.touch()
        with pytest.raises(ValueError, match="pip install pyarrow"):
            task(codec, file)
        return
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(rows), file)
    assert texts(task(codec, file).prompts(0, 1)) == ["1+1="]


def test_the_hub_out_of_reach_is_said(codec: Codec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    missing = importlib.util.find_spec("datasets") is None
    with pytest.raises(ValueError, match="pip install datasets" if missing else "not in reach"):
        task(codec, "nobody/no-such-dataset")


def test_reasoning_gym_makes_the_same_problems_again_and_grades_them(codec: Codec) -> None:
    if importlib.util.find_spec("reasoning_gym") is None:
        with pytest.raises(ValueError, match="pip install reasoning-gym"):
            task(codec, "reasoning-gym/chain_sum")
        return
    words = ("data.options=[max_digits=2, max_terms=3]",)
    sums = task(codec, "reasoning-gym/chain_sum", *words)
    whole = sums.prompts(0, 20)
    again = task(codec, "reasoning-gym/chain_sum", *words).prompts(7, 13)
    assert [(p.token_ids, p.answer) for p in again] == [(p.token_ids, p.answer) for p in whole[7:]]
    assert len({p.text for p in whole}) > 15
    neighbour = task(codec, "reasoning-gym/chain_sum", *words, "train.seed=1").prompts(0, 20)
    assert not {p.text for p in neighbour} & {p.text for p in whole[:20]}
    first = whole[0]
    assert first.grade is not None
    assert first.grade(f"thinking <answer>{first.answer}</answer>") == 1.0
    assert first.grade("<answer>nonsense</answer>") < 1.0
    assert first.grade("") < 1.0
    short = task(codec, "reasoning-gym/chain_sum", *words, prompt=len(first.token_ids))
    assert all(len(p.token_ids) <= len(first.token_ids) for p in short.prompts(0, 50))
    with pytest.raises(ValueError, match="cannot make 'no_such'"):
        task(codec, "reasoning-gym/no_such")
    with pytest.raises(ValueError, match="cannot make 'chain_sum'"):
        task(codec, "reasoning-gym/chain_sum", "data.options=[no_such=1]")
