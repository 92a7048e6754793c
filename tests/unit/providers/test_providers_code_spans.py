"""Where a text is code: tags and markup in it stay text, wherever the stream cut them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.providers import reading
from mcode_exec.providers.leaked_calls import leaks_call
from mcode_exec.providers.think_tags import ThinkSplitter

#: `@` stands for what is in code
IN_CODE = [
    "use `@` here",
    "use `` @ `` here",
    "``@``",
    "``` @ ``` is a span too",
    "`` a ` @ ``",
    "`one` and `` two `@` ``, done",
    "a stray ` and then ``@`` there",
    "a span `over\n@ lines` ends",
    "a span `over\nmany\nlines @\nends` here",
    "> a quoted `span\n> with @` inside",
    "- an item with `a\n  @` span",
    "```\n@\n```\nDone.",
    "```html\n@\n```",
    "```@\nx\n```",
    "~~~\n@\n~~~\n",
    "````\n```\n@\n```\n````\n",
    "~~~\n```\n@\n~~~\n",
    "```\n``` not the end\n@\n```\n",
    "```\r\n@\r\n```\r\n",
    "- ```\n  @\n  ```\nDone.",
    "- Put this:\n\n  ```html\n  @\n  ```\n\nDone.",
    "1. a\n   ```\n   @\n   ```\nDone.",
    "1. ```html\n   @\n   ```",
    "10) ```\n@\n```",
    "* - ```\n    @\n    ```",
    "> ```\n> @\n> ```\nDone.",
    ">```\n>@\n>```\nDone.",
    "> > - ```\n> >   @\n> >   ```",
    "- > ~~~~\n  > @\n  > ~~~~",
    "Put it so: ```\n@\n``` and go on",
    "Put it so: ```html\na\n\n@\n```\nDone.",
    "an unclosed fence\n```\n\nfoo\n\n@\n",
]
#: and here for what is not
OUT_OF_CODE = [
    "@",
    "a @ b",
    "a stray ` here @ and no other",
    "a stray ` here\n\n@ and `another",
    "`code` @ `more`",
    "a ` b `` @ ```",
    "```\ncode\n```\n@",
    "```\ncode\n```\n\n@ `x`",
    "> ```\n> code\n> ```\n@",
    "- ```\n  code\n  ```\n- @",
    "- a ` tick\n- @ in `an` item",
    "a ` tick\n# @ in `a` heading",
    "a ` tick\n```\ncode\n```\n@",
    "Put it so: ```\ncode\n``` and @",
    "```\ncode\n~~~\n```\n@",
    "a ` tick " + "@" + " x" * 3000 + "`",
]


def split(text: str, cuts: list[int]) -> tuple[list[tuple[str, str]], bool]:
    """The pieces of one kind joined, and whether all of it was said."""
    splitter = ThinkSplitter()
    told: list[tuple[str, str]] = []
    for start, end in pairwise([0, *cuts, len(text)]):
        piece = text[start:end]
        told += [("text", piece)] if splitter.passes(piece) else splitter.feed(piece)
    told += splitter.finish()
    joined: list[tuple[str, str]] = []
    for kind, piece in told:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + piece)
        elif piece or kind == "recast":
            joined.append((kind, piece))
    return joined, joined == [("text", text)]


@pytest.mark.parametrize("tag", ["</think>", "<think>", "<think>x</think>", "<mm:think>"])
@pytest.mark.parametrize("form", IN_CODE)
def test_a_tag_in_code_is_text_wherever_it_is_cut(form: str, tag: str) -> None:
    text = form.replace("@", tag)
    for cuts in ([], *([at] for at in range(1, len(text))), list(range(1, len(text)))):
        assert split(text, cuts) == ([("text", text)], True), cuts[:5]


@pytest.mark.parametrize("form", OUT_OF_CODE)
def test_a_tag_outside_of_code_is_one_wherever_it_is_cut_if_its_line_begins_or_ends_with_it(
    form: str,
) -> None:
    text = form.replace("@", "</think>")
    whole, is_said = split(text, [])
    assert is_said is (re.search(r"(?m:^@)|@\n\s*\S", form) is None)
    size = len(text)
    for cuts in (*([at] for at in range(1, size, 1 if size < 1000 else 97)), list(range(1, size))):
        assert split(text, cuts)[0] == whole, cuts[:5]


CALL = '<tool_call>{"name": "bash", "arguments": {}}</tool_call>'


@pytest.mark.parametrize("form", IN_CODE)
def test_markup_of_a_call_in_code_is_talk_about_it(form: str) -> None:
    assert not leaks_call(form.replace("@", CALL))


@pytest.mark.parametrize("form", OUT_OF_CODE)
def test_markup_of_a_call_outside_of_code_leaks(form: str) -> None:
    assert leaks_call(form.replace("@", CALL))


@pytest.mark.parametrize(
    "between",
    [
        '{"name": "bash", "arguments": {}}',
        '\n[{"name": "bash"}]\n',
        "{name: bash}",
        "<invoke name='bash'></invoke>",
        "<name>bash</name>",
        "bash\n<arg_key>command</arg_key>",
        'bash(command="ls")',
        "bash\ncommand: ls",
        'bash {"command": "ls"}',
        'call: {"name": "bash"}',
        '```json\n{"name": "bash"}\n```',
        " bash ",
    ],
)
@pytest.mark.parametrize("tag", ["tool_call", "minimax:tool_call"])
def test_a_call_between_its_tags_leaks_however_it_is_written(tag: str, between: str) -> None:
    assert leaks_call(f"I look.\n<{tag}>{between}</{tag}>", {"bash", "read"})


@pytest.mark.parametrize(
    "between",
    [
        "",
        " ",
        "…",
        "...",
        "{…}",
        "{json}",
        "[…]",
        " and ",
        "NAME",
        "<your call>",
        '" and "',
        " (or none) ",
        "\n\n",
    ],
)
@pytest.mark.parametrize("tag", ["tool_call", "minimax:tool_call", "tool_calls"])
def test_tags_of_a_call_with_no_call_between_them_are_talk(tag: str, between: str) -> None:
    assert not leaks_call(f'A call lies in "<{tag}>{between}</{tag}>", as JSON.', {"bash", "read"})


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": ...}</tool_call>',
        '<tool_call>{"name": …, "arguments": …}</tool_call>',
        "<tool_call>[{name: ...}]</tool_call>",
        f"The log says:\n> I look.\n> {CALL}\n\nSo it leaked.",
        f"  >> {CALL}",
        f"> {CALL}",
    ],
)
def test_a_call_that_is_quoted_or_only_sketched_is_talk(text: str) -> None:
    assert not leaks_call(text, {"bash"})


@pytest.mark.parametrize(
    "text", [f"a > b\n{CALL}", f"> a quote\n\n{CALL}", '<tool_call>{"a": "..."}</tool_call>']
)
def test_a_call_beside_a_quote_or_with_dots_in_its_arguments_leaks(text: str) -> None:
    assert leaks_call(text, {"bash"})


@pytest.mark.parametrize(
    "text",
    [
        '{"pattern":"<think>.*</think>","ok":true}',
        "The tags <think> and </think> mark thoughts.",
        r"s/<think>[^<]*<\/think>//g and '</think>' too",
        "Say </think> to end.",
        "- open: <think>\n- close: </think>\n",
        "open: <think>\nclose: </think>\nBoth must match.",
        "Use <think>\nand </think>\n",
        "The final tag is </think>",
        "The final tag is </think>\n",
        '{\n  "open": "<think>",\n  "close": "</think>"\n}',
    ],
)
def test_a_text_that_speaks_of_tags_comes_out_as_it_was_said(text: str) -> None:
    for cuts in ([], *([at] for at in range(1, len(text))), list(range(1, len(text)))):
        assert split(text, cuts) == ([("text", text)], True), cuts[:5]


@pytest.mark.parametrize(
    ("thought", "tag", "answer"),
    [
        ("thoughts", "</think>", "answer"),
        ("thoughts", "</mm:think>", "answer"),
        ("They say 4.", "</think>", " The answer is 4."),
        ("They say 4. ", "</think>", "The answer is 4."),
        ("First.\nThen that, I don't know", "</think>", "answer\nand more"),
        ("It lies in `a.py`", "</think>", "`a.py` holds it."),
        ("use ``` here, and `</think>` there. Done.", "</think>", "answer"),
        ("The tag </think> is asked for.", "</think>", "answer"),
        ('She said "hi"', "</think>", '{"ok": true}'),
        ("the dogs' turn (all of them)", "</think>", "# Title"),
        ("**Plan**", "</think>", "**Answer**"),
        ("想好了。", "</think>", "答案"),
        ("他说“好”。", "</think>", "答案"),
        ("thoughts ", "</think>", "  \nanswer"),
        ("thoughts", "</think>", '<tool_call>{"name": "x"}</tool_call>'),
    ],
)
def test_a_thought_and_its_answer_on_one_line_are_parted_by_a_lone_closing_tag(
    thought: str, tag: str, answer: str
) -> None:
    text = thought + tag + answer
    blanks = answer[: len(answer) - len(answer.lstrip())]
    wanted = [("text", thought), ("recast", ""), ("close", tag + blanks), ("text", answer.lstrip())]
    for cuts in ([], *([at] for at in range(1, len(text))), list(range(1, len(text)))):
        assert split(text, cuts)[0] == wanted, cuts[:5]


@pytest.mark.parametrize(
    "text",
    [
        "the tag `</think>` closes it",
        "Say </think>, then go on.",
        "Say </think> to end. Then more.",
        'It ends with "thoughts</think>answer" there.',
        'A pair: "x", "thoughts</think>answer".',
        "x = 'don\\'t</think>go'",
        "It's 'thoughts</think>answer' here",
        "Say “thoughts</think>answer” here",
        "用「想好了。</think>答案」来写",
        '{"a": "thoughts</think>answer"}',
        '{"a": "say \\"thoughts</think>answer\\""}',
        '{\n  "open": 1,\n  "close": "thoughts.</think>answer"\n}',
        "<p>thoughts</think></p>",
        "<p></think>x",
        "(see</think>)",
        "tag=</think>x",
        "sed s/.*</think>//",
        "sed s/.*</think>x/",
        "标签是</think>结束",
        "It closes the span. </think> is its tag.",
        "a stray`</think>x",
        "thoughts</think>",
        "thoughts</think>  ",
        "thoughts.</think>\n\n",
        "The tag <think> opens.</think>answer",
    ],
)
def test_a_line_that_speaks_of_a_closing_tag_stays_as_it_was_said(text: str) -> None:
    for cuts in ([], *([at] for at in range(1, len(text))), list(range(1, len(text)))):
        assert split(text, cuts) == ([("text", text)], True), cuts[:5]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a<think>b</think>c", [("text", "a<think>b</think>c")]),
        ("a\n<think>b", [("text", "a\n<think>b")]),
        ("a\n<think>b</think>c", [("text", "a\n"), ("thinking", "b"), ("close", "</think>"), ("text", "c")]),
        (
            "<think>b</think>c<think>d</think>e",
            [("thinking", "b"), ("close", "</think>"), ("text", "c<think>d</think>e")],
        ),
        (
            "<think>b</think> <think>d</think>e",
            [
                ("thinking", "b"),
                ("close", "</think> "),
                ("thinking", "d"),
                ("close", "</think>"),
                ("text", "e"),
            ],
        ),
    ],
)
def test_an_opening_tag_amid_its_line_or_never_closed_behind_text_is_text(
    text: str, wanted: list[tuple[str, str]]
) -> None:
    for cuts in ([], *([at] for at in range(1, len(text))), list(range(1, len(text)))):
        assert split(text, cuts)[0] == wanted, cuts[:5]


@pytest.mark.parametrize("end", ["\n", "\n\n", " "])
def test_a_span_right_behind_a_lone_closing_tag_is_one(end: str) -> None:
    told, _ = split(f"thoughts.</think>{end}<think>more</think>answer", [])
    assert told == [
        ("text", "thoughts."),
        ("recast", ""),
        ("close", f"</think>{end}"),
        ("thinking", "more"),
        ("close", "</think>"),
        ("text", "answer"),
    ]


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_thinking_that_only_its_closing_tag_shows_is_thinking_though_nothing_follows(end: str) -> None:
    text = f"Let me see.\n</think>{end}"
    for cuts in ([], *([at] for at in range(1, len(text)))):
        told, is_said = split(text, cuts)
        assert not is_said
        assert ("recast", "") in told, cuts


@pytest.mark.parametrize(
    "text",
    [
        '<xai:function_call name="bash"><parameter name="command">ls</parameter></xai:function_call>',
        '<function_call>{"name": "bash"}</function_call>',
        '<TOOLCALL>[{"name": "bash"}]</TOOLCALL>',
        '<|FunctionCallBegin|>[{"name": "bash"}]<|FunctionCallEnd|>',
        'functools[{"name": "bash"}]',
        '<longcat_tool_call>{"name": "bash"}</longcat_tool_call>',
        "<|tool_call>call:bash{command:ls}<tool_call|>",
        '<tool_code>bash(command="ls")</tool_code>',
        "<tool_use><name>bash</name><arguments>{}</arguments></tool_use>",
    ],
)
def test_markup_of_the_rarer_families_leaks_and_talk_about_it_does_not(text: str) -> None:
    assert any(mark in text for mark in reading._CALL_MARKS)
    assert leaks_call(f"I look.\n{text}")
    assert not leaks_call(f"It writes `{text}` then.")
    tag = re.split(r"(?<=[>\[])", text)[0]
    assert not leaks_call(f"It writes {tag} before a call.")


PARTS = [
    "<think>",
    "</think>",
    "`",
    "``",
    "```",
    "~~~",
    "\n",
    "\n\n",
    "> ",
    "- ",
    "1. ",
    "# ",
    " ",
    "x",
    "py",
    "\r\n",
]


@given(st.lists(st.sampled_from(PARTS), max_size=25).map("".join), st.lists(st.integers(0, 80), max_size=12))
def test_where_a_text_is_cut_makes_no_difference_to_what_is_code(text: str, places: list[int]) -> None:
    whole, _ = split(text, [])
    assert split(text, sorted(min(at, len(text)) for at in places))[0] == whole
    assert split(text, list(range(1, len(text))))[0] == whole
