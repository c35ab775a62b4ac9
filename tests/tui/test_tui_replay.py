"""A recorded run in the real cockpit: its clock, its keys, and that nothing of it can act."""

from __future__ import annotations

import asyncio
import json

from pictures import enter, notices, press, replay, screen_text, until_text

from rltui.service.recording import Manifest, Recording


def test_the_clock_is_set_by_keys_and_the_screen_follows() -> None:
    async def drive() -> None:
        async with replay(at="60%") as pilot:
            await until_text(pilot, "82/240")
            assert "‖ paused ×1  0:00:23 of 0:00:39" in screen_text(pilot)
            await press(pilot, ".", ".")
            await until_text(pilot, "95/240")
            await press(pilot, ",", ",")
            await until_text(pilot, "82/240")
            await press(pilot, "}")
            await until_text(pilot, "119/240")
            await press(pilot, "{", "=")
            await until_text(pilot, "paused ×2")
            await enter(pilot, "tend\n")
            await until_text(pilot, "240/240")
            await until_text(pilot, "end of recording")
            await enter(pilot, "tsoon\n")
            assert "'soon' is no time of a recording." in notices(pilot)
            await press(pilot, "escape", "ctrl+c")
            assert "ctrl+c again within 2 s quits" in notices(pilot)
            await press(pilot, "escape", "space")
            await until_text(pilot, "▶ replay ×2  0:00:0")

    asyncio.run(drive())


def test_all_tabs_show_what_was_and_actions_say_why_not() -> None:
    async def drive() -> None:
        async with replay(at="60%", size=(120, 40)) as pilot:
            for key, words in {
                "3": "EngineActor", "4": "inference results", "6": "step 76/240", "7": "checkpoint", "9": "REWARD",
                "0": "roles.learner.zero_stage", "8": "goodput",
            }.items():  # fmt: skip
                await press(pilot, key)
                await until_text(pilot, words)
            for key in "crmfHs":
                await press(pilot, key)
            assert "this is a recording: it shows what was, and changes nothing" in notices(pilot)
            await press(pilot, "@")
            await enter(pilot, ":launch local/grpo-tiny\n")
            assert "nothing of it can be asked or changed" in notices(pilot)
            await press(pilot, "!")
            await until_text(pilot, "engines wait for 71 % of each step")
            await press(pilot, "q")
            await until_text(pilot, "goodput")

    asyncio.run(drive())


def test_hostile_words_of_a_recording_are_only_text() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[red]bold[/red]\u202e"
    events = json.dumps({"time": 1100.0, "kind": "error", "text": evil}).encode() + b"\n"
    run = {"name": evil, "algorithm": evil, "cluster": evil, "created_at": 1000.0, "nodes": 10**9, "gpu": evil}
    stage = {"stage": "training", "detail": evil, "history": [{"stage": "training", "at": 1050.0}]}
    files = {
        "run.json": json.dumps(run).encode(),
        "attempts/01/events.jsonl": events,
        "attempts/01/stage.json": json.dumps(stage).encode(),
        "attempts/01/out.log": f"00:17:00 {evil}\n".encode(),
        "attempts/01/actors.json": json.dumps({"at": 1100.0, "problem": evil}).encode(),
    }
    manifest = Manifest(schema=1, run_id="evil", recorded_at=1200.0)
    recording = Recording(
        manifest, {name: (data, 1100.0) for name, data in files.items()}, ({"t": evil, "path": evil},)
    )

    async def drive() -> None:
        async with replay(recording, at="end") as pilot:
            await until_text(pilot, "[red]bold[/red]")
            for key in "123456780":
                await press(pilot, key)
                assert not {"\x1b", "\x07", "\u202e"} & set(screen_text(pilot))

    asyncio.run(drive())


def test_what_is_of_the_list_of_runs_says_so() -> None:
    async def drive() -> None:
        async with replay(at="60%") as pilot:
            await enter(pilot, ":filter mine\n")
            assert "filter is for the list of runs" in notices(pilot)

    asyncio.run(drive())
