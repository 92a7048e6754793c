"""What dead processes left of work on sessions that takes several steps: each is brought to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import McodeError
from mcode_exec.turns import operations

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime


class Finished(Struct, frozen=True, kw_only=True):
    """Ids of sessions by what became of the work on them."""

    #: whole now
    made: tuple[str, ...] = ()
    #: taken away again
    undone: tuple[str, ...] = ()
    #: rewound, or brought back from that
    rewound: tuple[str, ...] = ()


async def finish_operations(runtime: Runtime, session_ids: Sequence[str]) -> Finished:
    """Finish or undo them; what cannot be ended now is left to the next start."""
    made: list[str] = []
    undone: list[str] = []
    rewound: list[str] = []
    for session_id in session_ids:
        operation = await operations.take_over(runtime.store, runtime.owner, runtime.clock, session_id)
        if operation is None:
            continue
        try:
            if operation.manifest.rewind is not None:
                from mcode_exec.executor import rewinding

                if await rewinding.finish(runtime, operation):
                    rewound.append(session_id)
                continue
            from mcode_exec.executor import forking

            is_whole = await forking.finish(runtime, operation)
        except McodeError:
            continue
        (made if is_whole else undone).append(session_id)
    return Finished(made=tuple(made), undone=tuple(undone), rewound=tuple(rewound))
