"""What agents are answered over HTTP, and what is trained of it: the very tokens that were sampled."""

from __future__ import annotations

import json
import threading
from http.client import HTTPConnection
from typing import Any

import pytest
from agent_support import TOOL, Table, post, user

from trainers import chat_endpoint
from trainers.data.batch import sampled
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.episodes import Episode
from trainers.groups import Drawn
from trainers.grpo import owners_of
from trainers.lookahead import StalenessCounter
from trainers.metrics import sample_metrics
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.sampling import SamplingSettings
from waiting import eventually

pytestmark = pytest.mark.trainers


def test_what_is_trained_are_the_very_tokens_that_were_sampled(table: Table) -> None:
    """The policy spells an answer in tokens that its text would not give: they stay as they are in all later turns."""
    episode, policy = table.episode()
    odd = table.codec.encode("4")[0]
    special = table.codec.encode("<bos>")[0]
    answers = [(odd, special, odd, 2), (odd, 2)]

    def sample(token_ids: list[int], settings: SamplingSettings) -> Completion:
        table.asked.append((token_ids, settings))
        ids = answers[len(table.asked) - 1]
        return Completion(0, ids, tuple(-0.5 - n for n in range(len(ids))), "stop", len(table.asked), len(table.asked))

    episode._sample = sample
    chat = [user("1>")]
    said = policy.chat(chat)
    chat += [{**said, "refusal": None, "tool_calls": None}, user("2>")]  # as OpenAI's client writes it back
    policy.chat(chat)
    first, second = table.asked
    heard = table.codec.encode("2>")
    assert second[0] == [*first[0], *answers[0], *heard]
    assert [one[1].seed for one in table.asked] == [derive_seed(5, 3, turn) for turn in (1, 2)]
    assert [one[1].max_tokens for one in table.asked] == [40, 40 - 4 - len(heard)]
    found = episode.over(7, 0.5, failed=False)
    assert found.sequences == (found,)
    assert found.token_ids == (*answers[0], *heard, *answers[1])
    assert found.response_mask == (True,) * 4 + (False,) * len(heard) + (True,) * 2
    chosen = [value for value, own in zip(found.log_probs, found.response_mask, strict=True) if own]
    assert chosen == [-0.5, -1.5, -2.5, -3.5, -0.5, -1.5]
    assert (found.prompt_index, found.weight_version, found.newest_version) == (7, 1, 2)
    row = sampled(Prompt((9, 9), ""), found)
    assert (row.prompt_ids, row.response_ids) == (tuple(first[0]), found.token_ids)


def test_a_chat_that_was_rewritten_begins_a_new_sequence(table: Table) -> None:
    episode, policy = table.episode()
    table.texts = ["11<eos>", "22<eos>", "33<eos>"]
    chat = [user("1>")]
    chat.append(policy.chat(chat))
    chat.append(user("2>"))
    chat.append(policy.chat(chat))
    table.version = 1
    policy.chat([user("12>"), chat[1], user("3>")])
    found = episode.over(0, 1.0, failed=False)
    texts = [(table.codec.transcript(one.prompt_ids), table.codec.transcript(one.token_ids)) for one in found.sequences]
    assert texts == [("1>", "11<eos>2>22<eos>"), ("12>113>", "33<eos>")]
    assert found.sampled_tokens == 9
    other = Completion(0, (4, 2), (-1.0, -1.0), "stop", 1, 1, outcome=found.outcome)
    [[aged, _]] = StalenessCounter(1).note([[found, other]], 1)
    assert [one.staleness for one in aged.sequences] == [1, 0]
    drawn = Drawn([Prompt((1,), "")], [[other, aged]])
    assert owners_of(drawn, [0]) == [0, 1, 1]
    metrics = sample_metrics([[aged, other]], [[1.0, 0.0]])
    assert (metrics["sequences"], metrics["turns"], metrics["environment_length"]) == (1.5, 3.0, 1.0)


def test_tools_go_through_the_template_and_calls_come_back_read(table: Table) -> None:
    episode, policy = table.episode(is_chat=True, room=120)
    call = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    table.texts = [f"so{call}<eos>", "2<eos>"]
    chat = [user("1+1?")]
    status, body = post(policy, {"model": "any", "messages": chat, "tools": [TOOL], "logprobs": True})
    [choice] = json.loads(body)["choices"]
    assert (status, choice["finish_reason"], choice["message"]["content"]) == (200, "tool_calls", "so")
    [asked] = choice["message"]["tool_calls"]
    assert (asked["function"]["name"], json.loads(asked["function"]["arguments"])) == ("add", {"a": 1})
    tokens = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in tokens) == f"so{call}<eos>"
    assert [one["logprob"] for one in tokens] == [-0.1 - n for n in range(len(tokens))]
    asked["function"]["arguments"] = '{ "a" : 1 }'  # clients write arguments in their own way
    chat += [choice["message"]]
    chat += [{"role": "tool", "tool_call_id": asked["id"], "content": [{"type": "text", "text": "2"}]}]
    _, body = post(
        policy, {"messages": chat, "tools": [TOOL], "stream": True, "stream_options": {"include_usage": True}}
    )
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    events = [json.loads(line) for line in lines[:-1]]
    assert lines[-1] == b"[DONE]"
    assert [event["choices"][0]["delta"].get("content") for event in events[:2]] == ["2", None]
    assert events[1]["choices"][0]["finish_reason"] == "stop"
    assert events[2]["usage"]["completion_tokens"] == 2
    found = episode.over(0, 1.0, failed=False)
    assert found.sequences == (found,)
    assert table.codec.transcript(found.prompt_ids) == "[add]<user>1+1?<eos><assistant>"
    assert table.codec.transcript(found.token_ids) == f"so{call}<eos><tool>2<eos><assistant>2<eos>"


def test_what_cannot_be_answered_is_refused_and_costs_nothing(table: Table) -> None:
    episode, policy = table.episode()
    chat = [user("1>")]
    assert post(policy, {"messages": chat}, key="wrong")[0] == 401
    assert post(policy, {"messages": chat}, key="")[0] == 401
    assert post(policy, None, key="wrong", path="/models")[0] == 401
    assert json.loads(post(policy, None, path="/models")[1])["data"][0]["id"] == "policy"
    assert post(policy, {"messages": chat}, path="/completions")[0] == 404
    for body in (
        [],
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": chat, "n": 2},
        {"messages": chat, "stop": "x"},
    ):
        assert post(policy, body)[0] == 400
    assert post(policy, {"messages": chat, "max_tokens": "many"})[0] == 400
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    assert post(policy, {"messages": picture})[0] == 400
    assert post(policy, {"messages": [user("1" * 41)]})[1]["code"] == "context_length_exceeded"
    assert table.asked == []
    chat.append(policy.chat(chat, max_tokens=1))
    assert table.asked[0][1].max_tokens == 1
    assert post(policy, {"messages": [*chat, user("1" * 39)]})[1]["code"] == "context_length_exceeded"
    assert len(table.asked) == 1
    for _ in range(3):
        policy.chat([user("1>")])
    assert post(policy, {"messages": [user("1>")]})[1]["code"] == "episode_over"
    found = episode.over(0, 1.0, failed=False)
    assert len(found.sequences) == 4
    assert found.outcome is not None
    assert found.outcome.turns == 4
    table.turns._place._endpoint.end(policy)
    assert post(policy, {"messages": [user("1>")]})[0] == 401


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": [user("\ud800")]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": "add"}]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [None]}]},
        {"messages": [user("1>")], "tools": 5},
        {"messages": [user("1>")], "tools": ["add"]},
        {"messages": [user("1>")], "stream": True, "stream_options": 5},
        {"messages": [user("1>")], "n": 8},
        {"messages": [user("1>")], "max_completion_tokens": -1},
    ],
)
def test_a_request_that_makes_no_sense_is_its_agents_fault_and_the_chat_goes_on(table: Table, odd: Any) -> None:
    episode, policy = table.episode(is_chat=True, room=60)
    chat = [user("1>")]
    chat.append(policy.chat(chat))
    status, error = post(policy, odd)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert len(table.asked) == 1
    chat.append(user("2>"))
    assert policy.chat(chat)["content"] == "7"
    assert len(episode.over(0, 1.0, failed=False).sequences) == 1


def test_calls_whose_arguments_are_no_json_stay_as_the_agent_wrote_them(table: Table) -> None:
    episode, policy = table.episode(is_chat=True, room=80)
    chat = [user("1>")]
    said = policy.chat(chat, tools=[TOOL], max_tokens=10**30)
    broken = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": é'}}
    begun_anew = [{**said, "tool_calls": [broken]}, user("2>")]  # the policy never made that call
    assert policy.chat(begun_anew, tools=[TOOL])["content"] == "7"
    assert [settings.max_tokens for _, settings in table.asked] == [80, 80]
    assert len(episode.over(0, 1.0, failed=False).sequences) == 2


def test_what_is_far_too_long_is_refused_before_it_is_made_into_tokens(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    encode = Codec.encode
    monkeypatch.setattr(Codec, "encode", lambda self, text: lengths.append(len(text)) or encode(self, text))
    episode, policy = table.episode()
    chat = [user("1>")]
    assert post(policy, {"messages": [user("1" * 5_000_000)]})[1]["code"] == "context_length_exceeded"
    assert episode.is_cut
    chat.append(policy.chat(chat))
    assert not episode.is_cut
    assert post(policy, {"messages": [*chat, user("1" * 5_000_000)]})[1]["code"] == "context_length_exceeded"
    assert episode.is_cut
    assert max(lengths) <= 40 * table.codec.longest_token


def test_a_client_that_sends_more_than_may_be_hears_so(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_endpoint, "MOST_BYTES", 1000)
    _, policy = table.episode()
    big = {"messages": [user("1" * 8_000_000)]}
    assert post(policy, big)[0] == 413
    assert post(policy, big, key="wrong")[0] == 401
    assert table.asked == []


def test_connections_that_an_agent_forgets_are_nobodys(table: Table) -> None:
    """A client for each request, of which none is closed; and one that is gone when its answer comes."""
    episode, policy = table.episode()
    place = policy.base_url.removeprefix("http://").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {policy.api_key}"}
    body = json.dumps({"messages": [user("1>")], "stream": True})
    forgotten = []
    for _ in range(3):
        client = HTTPConnection(place)
        client.request("POST", "/v1/chat/completions", body, headers)
        answer = client.getresponse()
        assert answer.getheader("Connection") == "close"
        assert answer.read().endswith(b"[DONE]\n\n")
        forgotten.append(client)
    begun, gone = held_up(table, episode)
    leaving = HTTPConnection(place)
    leaving.request("POST", "/v1/chat/completions", body, headers)
    assert begun.wait(120)
    leaving.close()
    gone.set()
    server = table.turns._place._endpoint._server
    eventually(lambda: not handlers(server), "the end of its threads")
    assert len(episode.over(0, 1.0, failed=False).sequences) == 4  # what was sampled for it is trained


def held_up(table: Table, episode: Episode) -> tuple[threading.Event, threading.Event]:
    """Two moments of the next answer: that it is asked for, and, set by the test, that it may come."""
    begun, let_go = threading.Event(), threading.Event()

    def late(token_ids: list[int], settings: SamplingSettings) -> Completion:
        begun.set()
        assert let_go.wait(120)
        return table.sample(token_ids, settings)

    episode._sample = late
    return begun, let_go


def handlers(server: Any) -> list[threading.Thread]:
    """The threads that answer requests of ``server``."""
    return [one for one in threading.enumerate() if getattr(one, "_target", None) == server.process_request_thread]


def test_a_chat_that_ran_into_its_limit_is_cut_unless_it_was_begun_anew(table: Table) -> None:
    for is_begun_anew, reason in ((False, "length"), (True, "stop")):
        episode, policy = table.episode()
        chat = [user("1>")]
        chat.append(policy.chat(chat))
        assert post(policy, {"messages": [*chat, user("1" * 39)]})[0] == 400
        if is_begun_anew:
            policy.chat([user("2>")])
        found = episode.over(0, 1.0, failed=False)
        assert found.finish_reason == reason
        assert all(one.response_mask == () for one in found.sequences)


def test_two_chats_of_one_episode_at_once_are_kept_apart(table: Table) -> None:
    episode, policy = table.episode()
    both, answer = threading.Barrier(2, timeout=120), table.sample

    def together(token_ids: list[int], settings: SamplingSettings) -> Completion:
        both.wait()  # both requests are with the engine now
        return answer(token_ids, settings)

    episode._sample = together
    threads = [threading.Thread(target=policy.chat, args=([user("1>")],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    found = episode.over(0, 1.0, failed=False)
    assert [table.codec.transcript(one.prompt_ids) for one in found.sequences] == ["1>", "1>"]
    assert len({settings.seed for _, settings in table.asked}) == 2


def test_an_answer_that_comes_after_the_end_is_not_trained(table: Table) -> None:
    episode, policy = table.episode()
    chat = [user("1>")]
    chat.append(policy.chat(chat))
    begun, ended = held_up(table, episode)
    thread = threading.Thread(target=post, args=(policy, {"messages": [*chat, user("2>")]}))
    thread.start()
    assert begun.wait(120)
    found = episode.over(0, 1.0, failed=False)
    ended.set()
    thread.join(120)
    assert table.codec.transcript(found.token_ids) == "7<eos>"
    assert (found.response_mask, len(found.log_probs)) == ((), 2)
