"""What of a session could not be taken along, counted under names that are the same for every source."""

from __future__ import annotations

from collections import Counter

#: a message without anything that could be sent to a model
EMPTY_MESSAGE = "empty-message"
#: a message of somebody who is neither the user nor the model
UNKNOWN_ROLE = "unknown-role"
#: a piece of a message of a kind that has no place here
UNSUPPORTED_PART = "unsupported-part"
#: a call that had no end
INTERRUPTED_TOOL = "interrupted-tool"
#: a result without its call
ORPHAN_RESULT = "orphan-result"
#: a line, row or file that is not what it should be
UNREADABLE = "unreadable"
#: reasoning that only its provider could read, and only there
REASONING = "reasoning"
#: an image or document that cannot be sent, or is not there
ATTACHMENT = "attachment"
#: text beyond what is kept of one piece
CUT = "cut"
#: an output that its program had cleared for the model
CLEARED_OUTPUT = "cleared-output"
#: an answer that ended as an error
FAILED_ANSWER = "failed-answer"
#: a message that was taken back
REVERTED = "reverted"
#: a message of another branch of the conversation
OTHER_BRANCH = "other-branch"
#: a message of a sub-agent
SIDECHAIN = "sidechain"
#: a session that delegated this one, and is not here
PARENT = "parent"


class Losses:
    """One session's."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, what: str, times: int = 1) -> None:
        if times:
            self._counts[what] += times

    def as_dict(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))
