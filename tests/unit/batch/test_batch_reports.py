"""Reports of job runs: nothing that a task or a model says is markup, or a command of a CI runner."""

from __future__ import annotations

import re
from decimal import Decimal
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.batch.reports import github, junit
from mcode_exec.records.job import JobResult, TaskCounts, TaskState, TaskSummary
from mcode_exec.records.result import ErrorInfo

RESULT = JobResult(
    run_id="job_1",
    job_name="a<b",
    status="failed",
    exit_code=4,
    counts=TaskCounts(total=3, succeeded=1, unsuccessful=1, skipped=1),
    duration_ms=1500,
    cost_usd=Decimal("0.5"),
)
ANY = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)


def task(name: str, said: str, status: TaskState = "failed", category: str = "runtime") -> TaskSummary:
    error = ErrorInfo(category=category, code="C", message=said, retryable=False)  # type: ignore[arg-type]
    return TaskSummary(
        task_id=name,
        status=status,
        attempt=1,
        exit_code=4,
        session_id=None,
        started_at_ms=0,
        duration_ms=1200,
        cost_usd=None,
        error=None if status == "succeeded" else error,
        output=said,
    )


@given(ANY, ANY)
def test_whatever_is_said_the_xml_can_be_read_and_says_it(name: str, said: str) -> None:
    document = (
        junit.head(RESULT, 1)
        + junit.case("job", task(name, said))
        + junit.case("j", task("x", said, "skipped"))
    )
    suite = ElementTree.fromstring(document + junit.TAIL)[0]
    assert suite.attrib["tests"] == "3"
    case = suite[0]
    assert set(case.attrib) == {"classname", "name", "time"}
    clean = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", name)
    assert case.attrib["name"] == clean
    assert [part.tag for part in case] == (["failure", "system-out"] if said else ["failure"])
    assert suite[1][0].tag == "skipped"


def test_what_broke_off_is_an_error_and_what_failed_a_failure() -> None:
    assert b"<failure type=" in junit.case("j", task("a", "x"))
    assert b"<error type=" in junit.case("j", task("a", "x", category="provider"))
    assert (
        junit.case("j", task("a", "", "succeeded"))
        == b'<testcase classname="j" name="a" time="1.200"></testcase>\n'
    )


@given(ANY, ANY)
def test_an_annotation_is_one_command_whatever_is_said(name: str, said: str) -> None:
    line = github.annotation("job", task(name, said)).decode()
    assert line.count("\n") == 1
    assert "\r" not in line
    command = re.fullmatch(r"::error title=([^:,]*)::(.*)\n", line, re.DOTALL)
    assert command is not None


@given(ANY)
def test_a_summary_holds_no_markup_of_anybodys(said: str) -> None:
    row = github.page(RESULT, [task("<img src=x>|[a](javascript:b)", said)]).decode().splitlines()
    assert len(row) == 7
    assert re.search(r"(?<!\\)[<>`\[]", row[-1].replace("&lt;", "").replace("&gt;", "")) is None
    assert len(re.findall(r"(?<!\\)\|", row[-1])) == 7


def test_a_summary_without_end_is_cut() -> None:
    page = github.page(RESULT, (task(f"t{number}", "x" * 400) for number in range(10_000)))
    assert len(page) < 600 * 1024
    assert b"is left out" in page
