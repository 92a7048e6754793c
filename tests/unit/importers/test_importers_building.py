"""Whatever a source says, in whatever order: every call has one result, and ids are those of the last time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.losses import Losses
from mcode_exec.records.history import HistoryRecord, StepMeta, ToolCallBlock, ToolResultBlock
from mcode_exec.records.usage import Usage
from mcode_exec.sessions.transcript import missing_results

Step = tuple[str, str]


def made() -> Transcript:
    return Transcript("mvs_" + "0" * 32, lambda data, name: None, Losses())


def records(items: Iterable[Item]) -> list[HistoryRecord]:
    return [item for item in items if isinstance(item, HistoryRecord)]


def said(transcript: Transcript, steps: Iterable[Step]) -> Iterator[Item]:
    for number, (kind, key) in enumerate(steps):
        if kind == "user":
            yield from transcript.user(f"u{number}", number, (transcript.text(f"prompt {number}"),))
        elif kind == "text":
            yield from transcript.answer(key, number, transcript.text(f"text {number}"))
        elif kind == "call":
            yield from transcript.call(key, number, key, "bash", {"n": number})
        else:
            transcript.result(key, "done")
    yield from transcript.flush()


STEPS = st.lists(
    st.tuples(st.sampled_from(("user", "text", "call", "result")), st.sampled_from("abc")), max_size=30
)


@given(STEPS)
def test_every_call_has_exactly_one_result_right_behind_its_message(steps: list[Step]) -> None:
    found = records(said(made(), steps))
    calls = [block.id for one in found for block in one.message.content if isinstance(block, ToolCallBlock)]
    results = [
        block.call_id for one in found for block in one.message.content if isinstance(block, ToolResultBlock)
    ]
    assert calls == results
    assert len(set(calls)) == len(calls)
    for at, one in enumerate(found):
        own = [block.id for block in one.message.content if isinstance(block, ToolCallBlock)]
        behind = found[at + 1 : at + 1 + len(own)]
        answers = [getattr(record.message.content[0], "call_id", None) for record in behind]
        assert answers == own
    assert missing_results(found, 0) == []


@given(STEPS)
def test_the_same_words_make_the_same_records(steps: list[Step]) -> None:
    assert records(said(made(), steps)) == records(said(made(), steps))


def test_an_answer_that_goes_on_behind_its_results_is_billed_once() -> None:
    transcript = made()
    meta = StepMeta(provider_id="p", model_id="m", usage=Usage(input_tokens=1, output_tokens=1))
    items = [
        *transcript.call("a", 0, "c", "bash", {}, meta),
    ]
    transcript.result("c", "done")
    items += transcript.answer("a", 1, transcript.text("behind"), meta)
    items += transcript.flush()
    billed = [one.meta.usage for one in records(items) if one.meta is not None]
    assert billed == [meta.usage, None]


def test_synthetic_words_begin_no_turn_and_have_no_id_to_rewind_to() -> None:
    transcript = made()
    items = records(transcript.user("u", 0, (transcript.text("mine"),)))
    items += records(transcript.user("v", 1, (transcript.text("a reminder", synthetic=True),)))
    assert [one.id.startswith("msg-user-v1-") for one in items] == [True, False]
    assert items[0].turn_id == items[1].turn_id
    assert transcript.first_words == "mine"
