"""A job run as one HTML file: what it came to, when its tasks ran, what they cost, and each of them.

Needs nothing else, runs no script, and is made piece by piece: what grows with
the number of tasks is written as it is read.  Bars stand in an inline SVG in
shares of its width, so that they fit any screen and a policy without inline
styles.  Every word of a task or a model goes through output/html_text.py.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from decimal import Decimal

from mcode_exec.batch.reports.lines import money, of_counts, status_word, why_of
from mcode_exec.batch.reports.timeline import Bar, Timeline, lay_out
from mcode_exec.durations import format_duration
from mcode_exec.output.html_text import block, line
from mcode_exec.output.page_style import STYLE, policy
from mcode_exec.records.job import UNRUN, JobResult, TaskSummary
from mcode_exec.version import VERSION

MAX_BARS = 5000
_MAX_COSTS = 12
_LANE_PX = 18
_NARROW_LANE_PX = 7
_MANY_LANES = 40
_AXIS_PX = 22
_LABEL_SHARE = 0.09  # of the width, which a label of the axis takes
_LEAST_SHARE = 0.0015  # of the width, so that a short task can be seen

_STYLE = (
    STYLE
    + """
body{max-width:76rem}
h2{font-size:1.1rem;margin:1.4rem 0 .4rem}
p.state{font-weight:600}
svg{display:block;width:100%;background:var(--box);border:1px solid var(--line);border-radius:.4rem}
svg text{fill:var(--soft);font:11px system-ui,"DejaVu Sans",sans-serif}
svg line{stroke:var(--line)}svg line.cut{stroke:var(--soft);stroke-dasharray:3 3}
rect{fill:var(--soft);stroke:var(--box)}rect.succeeded{fill:var(--good)}rect.failed{fill:var(--bad)}
rect.cost{fill:var(--link);stroke:none}
.succeeded{color:var(--good)}.failed{color:var(--bad)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-top:1px solid var(--line)}
th{color:var(--soft);font-weight:400}
td.number,th.number{text-align:right;white-space:nowrap}
"""
)


class Collected:
    """What the page shows of all tasks at once; fed with every task before the page is begun."""

    def __init__(self) -> None:
        self._bars: list[Bar] = []
        self._with_turn = 0
        self._costs: list[tuple[Decimal, int, str]] = []

    def add(self, summary: TaskSummary) -> None:
        if summary.status in UNRUN:
            return
        self._with_turn += 1
        if summary.cost_usd:
            # of equal costs the first tasks stay
            heapq.heappush(self._costs, (summary.cost_usd, -self._with_turn, summary.task_id))
            if len(self._costs) > _MAX_COSTS:
                heapq.heappop(self._costs)
        start_ms, duration_ms = summary.started_at_ms, summary.duration_ms
        if start_ms is not None and duration_ms is not None and len(self._bars) < MAX_BARS:
            self._bars.append(
                Bar(
                    task_id=summary.task_id,
                    state=summary.status,
                    start_ms=start_ms,
                    end_ms=start_ms + duration_ms,
                )
            )

    @property
    def timeline(self) -> Timeline:
        return lay_out(self._bars)

    @property
    def left_out(self) -> int:
        """Tasks that had a turn and no bar."""
        return self._with_turn - len(self._bars)

    @property
    def costs(self) -> list[tuple[str, Decimal]]:
        """The tasks that cost most."""
        return [(task_id, cost) for cost, _, task_id in sorted(self._costs, reverse=True)]


def head(result: JobResult, collected: Collected) -> Iterator[str]:
    """The page up to the table of its tasks."""
    facts = {
        "Run": f"<code>{line(result.run_id)}</code>",
        "Began": _time(result.started_at_ms),
        "Took": format_duration(result.duration_ms / 1000),
        "Tasks": f"{result.counts.total}: {of_counts(result.counts)}",
        "Cost": money(result.cost_usd),
    }
    if result.stopped_by is not None:
        facts["Stopped"] = f"<bdi>{line(result.stopped_by)}</bdi>"
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(_STYLE)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f'<meta name="generator" content="mcode {line(VERSION)}">\n'
        f"<title>{line(result.job_name)}: {line(result.status)}</title>\n<style>{_STYLE}</style>\n"
        f'</head>\n<body>\n<h1 dir="auto">{line(result.job_name)}</h1>\n'
        f'<p class="state {_class(result.status)}">{line(result.status)}, exit {result.exit_code}</p>\n'
        f"<dl>{rows}</dl>\n<main>\n"
    )
    yield from _timeline(collected.timeline, collected.left_out)
    yield from _costs(collected.costs)
    if result.counts.total:
        yield (
            '<h2>Tasks</h2>\n<div class="scroll"><table>\n<thead><tr><th>Task</th><th>Status</th>'
            '<th class="number">Attempt</th><th class="number">Began</th><th class="number">Took</th>'
            '<th class="number">Cost</th><th>Session</th></tr></thead>\n<tbody>\n'
        )


def row(result: JobResult, summary: TaskSummary) -> str:
    """One task."""
    is_unrun = summary.status in UNRUN
    duration_ms, start_ms = summary.duration_ms, summary.started_at_ms
    after_ms = None if start_ms is None or is_unrun else start_ms - result.started_at_ms
    numbers = (
        "" if is_unrun else str(summary.attempt),
        "" if after_ms is None else _offset(after_ms),
        "" if duration_ms is None else format_duration(duration_ms / 1000),
        "" if is_unrun else money(summary.cost_usd),
    )
    said = ""
    if why := why_of(summary):
        said += f'<p class="note" dir="auto">{line(why)}</p>'
    if summary.branch:
        said += f'<p class="note">branch <bdi>{line(summary.branch)}</bdi></p>'
    if summary.output:
        said += f'<details><summary>answer</summary><pre tabindex="0">{block(summary.output)}</pre></details>'
    session = f"<code>{line(summary.session_id)}</code>" if summary.session_id else ""
    return (
        f"<tr><td><bdi>{line(summary.task_id)}</bdi>{said}</td>"
        f'<td class="{_class(summary.status)}">{line(status_word(summary))}</td>'
        + "".join(f'<td class="number">{line(one)}</td>' for one in numbers)
        + f"<td>{session}</td></tr>\n"
    )


def tail(result: JobResult, written_ms: int) -> str:
    """What closes the page."""
    table = "</tbody></table></div>\n" if result.counts.total else ""
    return f"{table}</main>\n<footer>written {_time(written_ms)} by mcode {line(VERSION)}</footer>\n</body>\n</html>\n"


def _timeline(timeline: Timeline, left_out: int) -> Iterator[str]:
    if not timeline.bars:
        return
    lane_px = _LANE_PX if timeline.lanes <= _MANY_LANES else _NARROW_LANE_PX
    height = timeline.lanes * lane_px + _AXIS_PX + 4
    yield (
        f'<h2>Timeline</h2>\n<svg role="img" aria-label="When the tasks ran, {timeline.lanes} beside each other '
        f'at most" height="{height}">\n'
    )
    free_from = 0.0
    for tick in timeline.ticks:
        x = _share(tick.left)
        yield f'<line x1="{x}" x2="{x}" y1="{_AXIS_PX}" y2="100%"/>'
        if free_from <= tick.left <= 1 - _LABEL_SHARE / 2:
            label = (
                tick.label
                if tick.at_ms is None
                else time.strftime("%H:%M:%S", time.gmtime(tick.at_ms / 1000))
            )
            yield f'<text x="{x}" dx="4" y="15">{line(label)}</text>'
            free_from = tick.left + _LABEL_SHARE
    for cut in timeline.cuts:
        x = _share(cut)
        yield f'<line class="cut" x1="{x}" x2="{x}" y1="0" y2="100%"><title>nothing ran here</title></line>'
    for placed in timeline.bars:
        bar = placed.bar
        took = format_duration((bar.end_ms - bar.start_ms) / 1000)
        yield (
            f'\n<rect class="{_class(bar.state)}" x="{_share(placed.left)}" '
            f'width="{_share(max(placed.width, _LEAST_SHARE))}" y="{_AXIS_PX + 2 + placed.lane * lane_px}" '
            f'height="{lane_px - 2}"><title>{line(bar.task_id)}: {line(bar.state.replace("_", " "))} in {took}'
            "</title></rect>"
        )
    yield "\n</svg>\n"
    if left_out:
        yield f'<p class="note">{left_out} more tasks are not in this picture.</p>\n'


def _costs(costs: list[tuple[str, Decimal]]) -> Iterator[str]:
    if not costs:
        return
    most = costs[0][1]
    yield '<h2>Cost</h2>\n<div class="scroll"><table><tbody>\n'
    for task_id, cost in costs:
        width = _share(max(float(cost / most), _LEAST_SHARE))
        yield (
            f'<tr><td><bdi>{line(task_id)}</bdi></td><td class="number">{money(cost)}</td>'
            f'<td><svg role="img" aria-label="{money(cost)}" height="14"><rect class="cost" x="0" y="0" '
            f'width="{width}" height="14"/></svg></td></tr>\n'
        )
    yield "</tbody></table></div>\n"


def _class(state: str) -> str:
    if state in UNRUN or state in ("cancelled", "skipped"):
        return "other"
    return "succeeded" if state == "succeeded" else "failed"


def _share(part: float) -> str:
    return f"{min(max(part, 0.0), 1.0) * 100:.3f}%"


def _offset(after_ms: int) -> str:
    """When it began, since the run did; before it where the run was taken up again."""
    return ("+" if after_ms >= 0 else "-") + format_duration(abs(after_ms) / 1000)


def _time(at_ms: int) -> str:
    moment = time.gmtime(at_ms / 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    return f'<time datetime="{stamp}">{time.strftime("%Y-%m-%d %H:%M:%S", moment)} UTC</time>'
