"""Words become text of a page and nothing else, whatever they are."""

from __future__ import annotations

import html.parser
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.output import html_text, markdown

_MARKUP = ["<", ">", "&", '"', "'", "`", "``", "```", "~~~", "\n", "# ", "**", "[", "](", ")", " "]
_WORDS = ["http://a.b/", "https://c", "javascript:x", "<script>", "</pre>", "onx=", "a", "é"]
_ACTING = ["\u202e", "\x1b", "\x00", "\ud800"]
PIECES = st.sampled_from([*_MARKUP, *_WORDS, *_ACTING])
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join)


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXTS)
def test_no_words_make_a_tag_or_an_attribute_of_their_own(text: str) -> None:
    made = html_text.prose(text)
    page = Page(made)
    assert {tag for tag, _ in page.tags} <= {"p", "pre", "code", "strong", "a", "small"}
    for _, attributes in page.tags:
        assert attributes.keys() <= {"dir", "class", "tabindex", "href", "rel"}
        assert re.match("https?://[^/]", str(attributes.get("href", "http://x")))
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", made) is None


@given(TEXTS)
def test_a_line_and_a_block_are_text_alone(text: str) -> None:
    for made in (html_text.line(text), html_text.block(text)):
        assert not Page(f"<p>{made}</p>").tags[1:]
        assert '"' not in made
        assert "<" not in made
    assert "\n" not in html_text.line(text)


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("https://example.org/a?b=c&d#e", True),
        ("http://localhost:8080/", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("HTTPS:\\\\evil", False),
        ("https://user:pw@evil.example/", False),
        ("https://user@evil.example/", False),
        ("https:///nohost", False),
        ("https://a\\b", False),
        ("https://[bad/", False),
        ("https://a\u202eb/", False),
        ("ftp://x/", False),
    ],
)
def test_a_page_links_to_the_web_alone(address: str, is_one: bool) -> None:
    assert html_text.is_web_address(address) is is_one


def test_where_a_named_link_leads_is_to_be_seen() -> None:
    made = html_text.prose("[my bank](https://evil.example/login) and [evil.example](https://evil.example/)")
    assert made.count("(evil.example)") == 1


@given(TEXTS)
def test_code_in_markdown_ends_where_it_ends(text: str) -> None:
    made = markdown.fenced(text)
    marks = re.match("`+", made)
    assert marks is not None
    inner = made.split("\n")[1:-1]
    assert not any(line.strip() == marks[0] for line in inner)
    one = markdown.code(text)
    runs = re.findall("`+", one)
    assert runs[0] == runs[-1]
    assert "\n" not in one
