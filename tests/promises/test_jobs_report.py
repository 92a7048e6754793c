"""`mcode jobs run --report`: one file without script that shows what a run came to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.browser import Browser, needs_browser
from tests.support.jobs import Tasks, spec
from tests.support.markup import Tags
from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import say, status

HOSTILE = "</pre></main><script>document.title='owned'</script> \u202e <svg onload=x> & \"'"


def run_all(mcode: Mcode, peer: Peer, *flags: str, code: int = 9) -> Run:
    """Four tasks: one succeeds, one fails, one is skipped, one has nothing to say."""
    mcode.configure(retry="max_retries = 0", cost="cost = { input = 1.0, output = 2.0 }")
    peer.script(Tasks(good=say(HOSTILE), bad=status(400, {"error": {"message": HOSTILE}}), empty=say("")))
    path = spec(
        mcode,
        "good",
        {"id": "bad", "title": HOSTILE},
        {"id": "<b>after", "needs": ["bad"]},
        "empty",
        job={"name": "all <of> it"},
    )
    return mcode.run("jobs", "run", path, "--run-id", "r1", *flags).check(code)


@pytest.fixture
def page(mcode: Mcode, peer: Peer) -> Path:
    target = mcode.root / "report.html"
    run_all(mcode, peer, "--report", str(target))
    return target


def test_it_says_what_every_task_came_to(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert '<h1 dir="auto">all &lt;of&gt; it</h1>' in text
    assert "failed, exit 9" in text
    assert "4: 1 succeeded, 2 did not, 1 skipped" in text
    rows = re.findall(
        r"<tr><td><bdi>(.*?)</bdi>.*?<td class=\"(\w+)\">(.*?)</td>", text.partition("<tbody>")[2]
    )
    assert rows[-4:] == [
        ("good", "succeeded", "succeeded"),
        ("bad", "failed", "failed"),
        ("&lt;b&gt;after", "other", "skipped"),
        ("empty", "failed", "failed"),
    ]
    assert "bad, which it needs, is failed" in text
    assert text.count('<rect class="succeeded"') == 1
    assert text.count('<rect class="failed"') == 2
    assert text.count('<rect class="cost"') >= 1


def test_nothing_that_a_task_or_a_model_says_becomes_markup(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = Tags(text).tags
    assert {tag for tag, _ in found} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "dl", "dt", "dd", "code", "bdi", "time",
        "main", "svg", "line", "text", "rect", "div", "table", "thead", "tbody", "tr", "th", "td", "details",
        "summary", "pre", "footer",
    }  # fmt: skip
    assert not [
        name for _, attributes in found for name in attributes if name.startswith("on") or name == "href"
    ]
    policy = next(str(a["content"]) for _, a in found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "\u202e" not in text


def test_the_same_run_again_writes_it_again(mcode: Mcode, peer: Peer) -> None:
    peer.script(Tasks(bad=status(400)))
    path, page = spec(mcode, "good", "bad"), mcode.root / "page.html"
    again = ("jobs", "run", path, "--run-id", "r1", "--report", page)
    mcode.run(*again).check(4)
    before = page.read_text(encoding="utf-8")
    page.unlink()
    asked = len(peer.calls)
    mcode.run(*again).check(4)
    assert len(peer.calls) == asked, "nothing was run again"
    now = page.read_text(encoding="utf-8")
    assert re.findall("<rect.*", now) == re.findall("<rect.*", before) != []


def test_a_page_that_cannot_be_written_is_said_before_anything_runs(mcode: Mcode, peer: Peer) -> None:
    run = mcode.run("jobs", "run", spec(mcode, "a"), "--report", mcode.root / "none" / "page.html").check(74)
    assert "--report" in run.err
    assert peer.calls == []


@needs_browser
def test_a_browser_shows_bars_and_runs_nothing(page: Path, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    document = browser.document(page)
    assert "owned" not in re.search("<title>(.*?)</title>", document)[1]  # type: ignore[index]
    light = browser.screenshot(page, width=900, height=1200)
    assert {(26, 127, 55), (179, 38, 30), (7, 87, 186)} <= light.colours(), "bars of each kind"
    # nothing is wider than a phone's screen
    narrow = browser.screenshot(page, width=500, height=1200)
    assert narrow.column(498) == {(255, 255, 255)}
