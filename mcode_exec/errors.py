"""Every way in which mcode says no, in one tree.

    McodeError                      code, category, exit_code, retryable
    ├── InvocationError             bad flag, bad value, nothing to run            2
    ├── ConfigError                 configuration that cannot be used              3
    │   ├── ModelUnknownError       no such provider or model
    │   └── PriceUnknownError       --max-cost without a price
    ├── KeyMissingError             the provider has no key                       77
    ├── SessionError                the session or workspace does not fit          4
    │   └── SessionDeletingError    it is being deleted
    ├── BusyError                   admission was rejected, try later             75
    ├── ModelCallError              a model call failed, by class                 69, 77, 4, 3
    ├── TurnFailedError             the loop itself gave up (doom loop, …)         4
    ├── LimitReachedError           steps, cost or tokens                          7
    ├── StoreFailedError            disk full, damaged, unreadable                74
    │   ├── DiskFullError           there is no room for what has to be written
    │   └── HistoryCorruptError     a line of the canonical history is no record   4
    ├── StoreBusyError              locked by others for too long                 75
    ├── LeaseLostError              the session's lease is no longer ours         75
    ├── OutputWriteFailedError      a result could not be written                 74
    └── InternalError               a bug                                         70

A class's default message is its docstring.  Codes, categories and exit codes
are those of docs/contract.md §3 and §6.  An abort is no error: see abort.py.
"""

from __future__ import annotations

from typing import Any, ClassVar


class McodeError(Exception):
    """Something went wrong."""

    code: str = "INTERNAL"
    category: ClassVar[str] = "internal"
    exit_code: int = 70

    def __init__(self, message: str | None = None, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        if code is not None:
            self.code = code
        #: facts for programs, merged into the result's error object or into stderr's sentence
        self.details = details

    @property
    def message(self) -> str:
        return str(self.args[0])

    @property
    def retryable(self) -> bool:
        """True exactly for the exit codes that mean "the same command may work later"."""
        return self.exit_code in (69, 75)


class InvocationError(McodeError):
    """The command line cannot be used."""

    code = "turn_invalid_input"
    category = "invocation"
    exit_code = 2


class ConfigError(McodeError):
    """The configuration cannot be used."""

    code = "CONFIG_INVALID"
    category = "config"
    exit_code = 3


class ModelUnknownError(ConfigError):
    """There is no such provider or model."""

    code = "MODEL_UNKNOWN"


class PriceUnknownError(ConfigError):
    """--max-cost needs a price for the model, and none is known."""

    code = "PRICE_UNKNOWN"


class KeyMissingError(McodeError):
    """The provider has no key."""

    code = "KEY_MISSING"
    category = "provider"
    exit_code = 77


class SessionError(McodeError):
    """The session cannot be used here."""

    code = "session_not_found"
    category = "admission"
    exit_code = 4


class SessionDeletingError(SessionError):
    """The session is being deleted: no turn is admitted any more."""

    code = "session_deleting"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} is being deleted; `mcode doctor --locks` shows who began it and what it waits "
            "for, `mcode recover` goes on with what was cut short"
        )


class BusyError(McodeError):
    """The session is busy."""

    code = "session_busy"
    category = "admission"
    exit_code = 75


#: code -> (number of the reference product or None, exit code); docs/contract.md §6
MODEL_CALL_CODES: dict[str, tuple[int | None, int]] = {
    "LLM_RATE_LIMITED": (50111, 69),
    "LLM_TPM_RATE_LIMITED": (50150, 69),
    "LLM_CLUSTER_OVERLOADED": (50151, 69),
    "LLM_UPSTREAM_ERROR": (50113, 69),
    "LLM_STALLED": (50113, 69),
    "LLM_EMPTY_RESPONSE": (50113, 69),
    "LLM_AUTH_ERROR": (50112, 77),
    "LLM_CREDITS_EXHAUSTED": (50110, 77),
    "USAGE_LIMIT_EXCEEDED": (42212, 77),
    "LLM_BAD_REQUEST": (50113, 4),
    "LLM_CONTEXT_OVERFLOW": (None, 4),
    "LLM_CONTENT_REFUSED": (None, 4),
    "LLM_OUTPUT_TRUNCATED": (None, 4),
    "LLM_BAD_RESPONSE": (None, 3),
    "REPLAY_MISMATCH": (None, 4),
    "MODEL_UNKNOWN": (None, 3),
    "CONFIG_INVALID": (None, 3),
    "KEY_MISSING": (50112, 77),
}

#: codes whose call is tried again within the retry budget; exit code 69 for all of them
RETRIED_CODES = frozenset(code for code, (_, exit_code) in MODEL_CALL_CODES.items() if exit_code == 69)


class ModelCallError(McodeError):
    """A model call failed.

    `retry_after_ms` is the server's hint, already parsed; `details["failed_usage"]`
    is what the provider billed for the failed attempts, as far as it said so.
    """

    category = "provider"
    #: nothing can follow, whatever the code: a recording ends here
    is_final = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int | None = None,
        request_id: str | None = None,
        retry_after_ms: int | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, code=code, **details)
        self.number, self.exit_code = MODEL_CALL_CODES[code]
        self.http_status = http_status
        self.request_id = request_id
        self.retry_after_ms = retry_after_ms

    @property
    def is_retried(self) -> bool:
        """Whether another attempt of the same call may succeed."""
        return self.code in RETRIED_CODES and not self.is_final


class TurnFailedError(McodeError):
    """The turn cannot go on."""

    code = "LOOP_DETECTED"
    category = "runtime"
    exit_code = 4


class LimitReachedError(McodeError):
    """A limit of this run was reached."""

    code = "LIMIT_STEPS"
    category = "runtime"
    exit_code = 7


class StoreFailedError(McodeError):
    """The data directory cannot be used."""

    code = "STORE_FAILED"
    category = "storage"
    exit_code = 74


class DiskFullError(StoreFailedError):
    """The disk is full."""


class HistoryCorruptError(StoreFailedError):
    """A line of the canonical history is no record."""

    code = "HISTORY_CORRUPT"
    exit_code = 4


class StoreBusyError(McodeError):
    """The store was locked by other processes for too long."""

    code = "STORE_BUSY"
    category = "storage"
    exit_code = 75


class LeaseLostError(McodeError):
    """The session's lease is no longer ours; nothing more was written."""

    code = "LEASE_LOST"
    category = "storage"
    exit_code = 75


class OutputWriteFailedError(McodeError):
    """A result could not be written."""

    code = "OUTPUT_WRITE_FAILED"
    category = "storage"
    exit_code = 74


class InternalError(McodeError):
    """An unexpected error; this is a bug in mcode."""
