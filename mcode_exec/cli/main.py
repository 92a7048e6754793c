"""`mcode`: the entry and the way out.

Invariant: signals of a run are noted before anything else is imported, nothing
heavier than click is imported before a command runs, and every way out passes
`_leave`: what was printed is flushed, threads that hang in a read do not hold
the process, and the interpreter's own exit noise stays unsaid.
"""

from __future__ import annotations

import gc

# A tenth of the start-up is the collector looking at modules that stay anyway; `collect_again` turns it on.
gc.disable()

import os  # noqa: E402
import sys  # noqa: E402


def _import_nothing_of_the_workspace() -> None:
    """PYTHONPATH, or `-m`, may name the workspace: its modules would run in this process, with the keys."""
    try:
        here = os.getcwd()
    except OSError:  # it is gone
        here = ""
    named = os.environ.get("PYTHONPATH", "")
    if not named and sys.path[0] not in ("", here):
        return
    others = {os.path.normpath(os.path.join(here, entry)) for entry in ("", *named.split(os.pathsep))}
    others.discard(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    sys.path[:] = [entry for entry in sys.path if os.path.normpath(os.path.join(here, entry)) not in others]


_import_nothing_of_the_workspace()

import time  # noqa: E402

from mcode_exec.cli.noted_signals import NotedSignals, default_interrupt  # noqa: E402

#: commands that run a turn, and so settle it when a signal comes
RUNNING = (
    ("exec",),
    ("retry",),
    ("steer",),
    ("queue", "drain"),
    ("queue", "steer"),
    ("sessions", "btw"),
    ("sessions", "edit-last"),
    ("jobs", "run"),
    ("schedule", "run-due"),
)


def main() -> None:
    """Run `mcode` with the process's arguments and end the process."""
    started_s = time.monotonic()
    noted = NotedSignals()
    argv = sys.argv[1:]
    if tuple(argv[:1]) in RUNNING or tuple(argv[:2]) in RUNNING:
        noted.begin()
    else:
        default_interrupt()
    if sys.getfilesystemencoding() != "utf-8" and noted.signum is None:  # what is noted would be forgotten
        from mcode_exec.cli import utf8_mode

        utf8_mode.start_again()
    from mcode_exec.cli import descriptors

    closed = descriptors.ensure_open()
    descriptors.wait_for_readers()
    try:
        code = _run(argv, started_s, closed, noted)
    except BaseException as error:  # the last door: whatever it is, it gets its sentence and its code
        from mcode_exec.cli.argv_scan import scan
        from mcode_exec.cli.errors_door import answer

        code = answer(error, scan(argv), argv)
    _leave(code)


def _run(argv: list[str], started_s: float, closed: frozenset[int], noted: NotedSignals) -> int:
    from click import UsageError

    from mcode_exec.cli.group import context_of, group
    from mcode_exec.cli.signals import SignalDoor

    if "_MCODE_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "mcode", "_MCODE_COMPLETE", os.environ["_MCODE_COMPLETE"])
    try:
        with group.make_context("mcode", argv, obj=(started_s, closed, SignalDoor(noted))) as ctx:
            code = group.invoke(ctx)
    except UsageError as error:
        error.ctx = error.ctx or context_of(argv)
        raise
    return code if isinstance(code, int) else 0


def _leave(code: int) -> None:
    from mcode_exec.cli import descriptors

    failed = descriptors.flush_standard()
    if failed is not None and code == 0:
        code = 141 if isinstance(failed, BrokenPipeError) else 74
    os._exit(code)
