"""Several judges over the same call: the strictest word counts.

For a turn that somebody else's process runs: neither the one who queued it nor
the one who runs it widens what the other allows.  And for one of a session that
was made under another: what its parents forbid is forbidden to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcode_exec.permissions.judge import Judge, strictest
from mcode_exec.permissions.places import Scope
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records.permission import Decision, Need


class StricterJudge(Judge):
    """Judges under several sets of rules."""

    def __init__(self, rules: RuleSet, others: Sequence[RuleSet], scope: Scope) -> None:
        super().__init__(rules, scope)
        self._others = tuple(Judge(other, scope) for other in others)

    def judge(self, needs: Sequence[Need]) -> Decision:
        return strictest((super().judge(needs), *(other.judge(needs) for other in self._others)))

    def hides(self, tool_permission: str) -> bool:
        return super().hides(tool_permission) or any(other.hides(tool_permission) for other in self._others)
