"""Two judges over the same call: the stricter word counts.

For a turn that somebody else's process runs: neither the one who queued it nor
the one who runs it widens what the other allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcode_exec.permissions.judge import Judge, strictest
from mcode_exec.permissions.places import Scope
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records.permission import Decision, Need


class StricterJudge(Judge):
    """Judges under two sets of rules."""

    def __init__(self, rules: RuleSet, others: RuleSet, scope: Scope) -> None:
        super().__init__(rules, scope)
        self._other = Judge(others, scope)

    def judge(self, needs: Sequence[Need]) -> Decision:
        return strictest((super().judge(needs), self._other.judge(needs)))

    def hides(self, tool_permission: str) -> bool:
        return super().hides(tool_permission) or self._other.hides(tool_permission)
