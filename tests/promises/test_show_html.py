"""The page of a session: one file without script that only shows, seen in a real browser where there is one."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from tests.support.browser import Browser, needs_browser
from tests.support.markup import Tags
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, say

JSON = ("--output-format", "json")
HOSTILE = """\
# Done </main><script>document.title='owned'</script>

See [docs](https://docs.example/a?x=1&y=2), https://example.org/p. Not [this](javascript:alert(1)), nor
[that](data:text/html,<b>x</b>) or <a href="javascript:alert(2)">me</a> or https://user:pass@evil.example/.
<img src=x onerror="document.title='owned'"> <style>body{display:none}</style> <iframe src="//evil.example">
\u202eover\u2066ridden\x1b[31m\x07 and `inline <b>` and **strong**

```html
<script>document.title='owned'</script>
```
"""
LONG = "W" * 700


@pytest.fixture
def page(mcode: Mcode, peer: Peer) -> Path:
    peer.script(
        answer(say("I look."), call("bash", {"command": f"printf '<u>tool</u>\\n{LONG}\\n' # \"'<>&"})),
        say(HOSTILE + "\n" + LONG),
    )
    session = mcode.exec("fix <script>document.title='owned'</script>", *JSON).check().result["sessionId"]
    target = mcode.root / "page.html"
    mcode.run("sessions", "show", session, "--html", target).check()
    return target


ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "dl",
    "dt",
    "dd",
    "main",
    "section",
    "article",
    "header",
    "b",
    "bdi",
    "time",
    "p",
    "pre",
    "code",
    "strong",
    "details",
    "summary",
    "span",
    "small",
    "a",
    "ul",
    "li",
    "footer",
}


def test_nothing_of_a_session_becomes_markup(page: Path) -> None:
    found = Tags(page.read_text(encoding="utf-8")).tags
    assert {tag for tag, _ in found} <= ALLOWED
    names = {name for _, attributes in found for name in attributes}
    assert names <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "dir",
        "class",
        "id",
        "datetime",
        "tabindex",
        "href",
        "rel",
    }


def test_links_lead_to_http_and_https_only(page: Path) -> None:
    found = [attributes for tag, attributes in Tags(page.read_text(encoding="utf-8")).tags if tag == "a"]
    assert [one["href"] for one in found] == ["https://docs.example/a?x=1&y=2", "https://example.org/p"]
    assert all("noreferrer" in str(one["rel"]) for one in found)


def test_what_acts_on_a_reader_is_shown_as_its_escape(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (
        re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text) is None
    )
    assert "\\u202eover\\u2066ridden\\e[31m\\a" in text


def test_the_page_forbids_everything_but_its_own_style_and_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    policy = next(
        str(attributes["content"])
        for _, attributes in Tags(text).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "script" not in policy
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_is_its_owners_alone_and_replaced_as_a_whole(mcode: Mcode, page: Path) -> None:
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    page.chmod(0o644)
    page.write_text("what stood there")
    missing = mcode.run("sessions", "show", "mvs_" + "0" * 32, "--html", page).check(4)
    assert "there is no session" in missing.err
    assert page.read_text() == "what stood there"
    session = json.loads(mcode.run("sessions", "list", *JSON).out)["sessions"][0]["id"]
    mcode.run("sessions", "show", session, "--html", page).check()
    assert page.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert mcode.run("sessions", "show", session, "--html", "-").check().out.endswith("</html>\n")
    refused = mcode.run("sessions", "show", session, "--html", mcode.root / "no" / "x").check(74)
    assert "--html: cannot write" in refused.err
    assert not list(page.parent.glob(".page.html*")), "no temporary file is left"


def test_a_page_of_one_turn_or_of_the_newest_messages(mcode: Mcode, peer: Peer, page: Path) -> None:
    session = json.loads(mcode.run("sessions", "list", *JSON).out)["sessions"][0]["id"]
    peer.script(say("second answer"))
    mcode.exec("second question", "--session", session).check()
    one = mcode.run("sessions", "show", session, "--html", "-", "--turn", "last").check().out
    assert "second question" in one
    assert "I look." not in one
    newest = mcode.run("sessions", "show", session, "--html", "-", "--limit", "1").check().out
    assert "Earlier messages are not on this page." in newest
    whole = mcode.run("sessions", "show", session, "--html", "-").check().out
    assert "second answer" in whole
    assert "I look." in whole
    assert "Earlier messages" not in whole


@needs_browser
def test_a_browser_shows_it_light_dark_and_on_a_phone(page: Path, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    light = browser.screenshot(page, width=1000, height=900)
    dark = browser.screenshot(page, width=1000, height=900, dark=True)
    phone = browser.screenshot(page, width=500, height=900)
    assert light.rows[2][2] == (255, 255, 255)
    assert max(dark.rows[2][2]) < 40
    for picture in (light, dark, phone):
        assert len(picture.colours()) > 30, "there is something to be read"
        for x in (0, 5, picture.width - 1, picture.width - 6):
            assert len(picture.column(x)) == 1, "nothing runs out of the page at its sides"


@needs_browser
def test_in_a_browser_nothing_of_a_session_runs(page: Path, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    document = browser.document(page)
    assert "<script" not in document.lower()
    assert "<iframe" not in document
    assert "<img" not in document
    title = re.search("<title>(.*?)</title>", document)
    assert title is not None
    assert title[1].startswith("fix &lt;script&gt;")


@needs_browser
def test_even_a_script_that_got_into_the_page_would_not_run(page: Path, tmp_path: Path) -> None:
    script = "<script>document.title='owned'</script>"
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("<main>", f"<main>{script}"))
    assert "<title>owned" not in Browser(tmp_path).document(broken)
    open_page = tmp_path / "open.html"
    open_page.write_text(re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", broken.read_text()))
    assert "<title>owned" in Browser(tmp_path).document(open_page), "without the policy it does"
