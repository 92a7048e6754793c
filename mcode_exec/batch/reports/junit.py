"""JUnit XML, as GitHub, GitLab and Jenkins read it: a test case for each task.

A task that did not succeed is a failure, one that broke off in mcode or at its
provider an error, one without a turn skipped.  Whatever tasks and models say is
escaped, and what XML 1.0 cannot hold at all is shown as U+FFFD.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from mcode_exec.batch.reports.lines import why_of
from mcode_exec.records.job import UNRUN, JobResult, TaskSummary

#: what may not stand in a document; source: XML 1.0 §2.2
_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
#: categories of errors that are nothing the task itself has come to
_ERRORS = frozenset(("provider", "config", "admission", "storage", "internal", "invocation"))


def head(result: JobResult, errors: int) -> bytes:
    """The beginning of the document; `errors`: how many of the unsuccessful tasks are errors."""
    counts = result.counts
    numbers = (
        f'tests="{counts.total}" failures="{counts.unsuccessful - errors}" errors="{errors}" '
        f'skipped="{counts.skipped + counts.not_run}" time="{result.duration_ms / 1000:.3f}"'
    )
    name = _attribute(result.job_name)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={name} {numbers}>\n'
        f"<testsuite name={name} {numbers}>\n"
    ).encode()


def is_error(summary: TaskSummary) -> bool:
    """Whether a task that did not succeed broke off rather than failed."""
    return summary.error is not None and summary.error.category in _ERRORS


def case(job_name: str, summary: TaskSummary) -> bytes:
    """One task."""
    seconds = 0.0 if summary.duration_ms is None else summary.duration_ms / 1000
    begin = (
        f'<testcase classname={_attribute(job_name)} name={_attribute(summary.task_id)} time="{seconds:.3f}"'
    )
    if summary.status == "succeeded":
        body = ""
    elif summary.status in UNRUN:
        body = f"<skipped message={_attribute(why_of(summary))}/>"
    else:
        kind = "error" if is_error(summary) else "failure"
        code = summary.error.code if summary.error is not None else summary.status
        why = why_of(summary) or summary.status.replace("_", " ")
        body = f"<{kind} type={_attribute(code)} message={_attribute(why)}>{_text(why)}</{kind}>"
    if summary.output:
        body += f"<system-out>{_text(summary.output)}</system-out>"
    return f"{begin}>{body}</testcase>\n".encode()


TAIL = b"</testsuite>\n</testsuites>\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _text(text: str) -> str:
    return escape(_clean(text))


def _attribute(text: str) -> str:
    return quoteattr(_clean(text), {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})
