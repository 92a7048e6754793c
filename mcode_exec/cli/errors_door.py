"""The one place where exceptions become a sentence, an exit code and, for programs, a result.

Invariant: no traceback reaches the user; with `json` and `stream-json` stdout
ends with exactly one result object, whatever went wrong; exit code 1 is never
used.  The executor answers for a run that has begun; this door answers for
everything before, around and after it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mcode_exec.cli.signals import die_by
from mcode_exec.errors import (
    InternalError,
    InvocationError,
    McodeError,
    OutputWriteFailedError,
    StoreFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from mcode_exec.cli.argv_scan import Wanted
    from mcode_exec.output.output_files import FileNames
    from mcode_exec.records.invocation import OutputFormat
    from mcode_exec.records.result import Result

#: what is told of an unexpected error without -v
_BUG_CHARS = 300


def as_mcode_error(error: BaseException) -> McodeError:
    """`error` as one of the tree's classes; what is not foreseen is a bug."""
    import errno

    import click

    if isinstance(error, McodeError):
        return error
    if isinstance(error, click.UsageError):
        return _of_usage(error)
    if isinstance(error, click.ClickException):
        return InvocationError(error.format_message())
    if isinstance(error, OSError) and error.filename is None and _is_disk(error):
        return OutputWriteFailedError(f"stdout cannot be written: {error.strerror}.")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreFailedError("too many files are open; raise the limit (ulimit -n) and try again.")
    told = f"{type(error).__name__}: {error}".strip().rstrip(":")[:_BUG_CHARS]
    return InternalError(f"unexpected {told}; this is a bug in mcode (-v shows where)")


def _is_disk(error: OSError) -> bool:
    import errno

    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _of_usage(error: object) -> InvocationError:
    import click

    assert isinstance(error, click.UsageError)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        assert error.ctx is not None
        assert isinstance(error.ctx.command, click.Group)
        names = ", ".join(error.ctx.command.list_commands(error.ctx))
        return InvocationError(f"a command is needed: {names}. See: {error.ctx.command_path} --help")
    message = _message_of(error)
    if "unexpected extra argument" in message and error.ctx is not None and error.ctx.info_name == "exec":
        message += ". A prompt of several words is quoted"
    command = error.ctx.command_path if error.ctx is not None else "mcode"
    stop = "" if message.endswith("?") else "."
    return InvocationError(f"{message}{stop} See: {command} --help")


def _message_of(error: click.UsageError) -> str:
    import click

    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from mcode_exec.cli.near_names import suggestion

        params = [
            param
            for param in error.ctx.command.get_params(error.ctx)
            if isinstance(param, click.Option) and not param.hidden
        ]
        names = [name for param in params for name in (*param.opts, *param.secondary_opts)]
        return f"No such option {error.option_name!r}.{suggestion(error.option_name, names)}".rstrip(".")
    # click lists choices on lines of their own
    return " ".join(error.format_message().split()).rstrip(".")


def result_of_error(error: McodeError, *, run_id: str, duration_ms: int = 0) -> Result:
    """The result of a run that `error` ended before it had one of its own."""
    from mcode_exec.records.result import Result, error_info

    return Result(
        run_id=run_id,
        status="interaction_required" if error.exit_code == 5 else "failed",
        exit_code=error.exit_code,
        error=error_info(error),
        retryable=error.retryable,
        duration_ms=duration_ms,
    )


def answer(error: BaseException, wanted: Wanted, argv: Sequence[str]) -> int:
    """Say `error` where the command line asked for it; returns the exit code."""
    import click

    from mcode_exec.ids import new_run_id

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return 141
    if isinstance(error, KeyboardInterrupt):
        die_by(signal.SIGINT)
    known = as_mcode_error(error)
    is_said = False
    run_id = new_run_id()
    try:
        names = _file_names(known, wanted, argv)
        if wanted.output_format != "text" or names is not None:
            _emit_result(result_of_error(known, run_id=run_id), wanted.output_format, names)
            is_said = True
    except BrokenPipeError:
        return 141
    except (OSError, McodeError):
        pass  # the sentence below and the exit code still tell
    if not is_said:
        say_stderr(f"error: {known.message} ({known.code})")
    trace = traceback_of(error) if isinstance(known, InternalError) else None
    if trace is not None and wanted.verbose:
        say_stderr(trace)
    if wanted.diagnostics_dir is not None:
        _report(result_of_error(known, run_id=run_id), wanted.diagnostics_dir, trace)
    return known.exit_code


def _file_names(error: McodeError, wanted: Wanted, argv: Sequence[str]) -> FileNames | None:
    """The run's files, where the command line tells which they are; else `--result`, which hears of every outcome.

    None where nothing is to be written.
    """
    if isinstance(error, InvocationError):  # a run that has begun looks after its own
        from mcode_exec.cli.output_targets import find_names

        names = find_names(argv)
        if names is not None:
            return names
    if wanted.result_file is None:
        return None
    from mcode_exec.output.files import descriptor_of
    from mcode_exec.output.output_files import FileNames

    if wanted.output_format != "text" and descriptor_of(wanted.result_file) == 1:
        return None  # stdout has it already
    return FileNames(result=wanted.result_file)


def _emit_result(result: Result, output_format: OutputFormat, names: FileNames | None) -> None:
    """The result object on stdout in the wanted form, and in the files, without an event loop's help."""
    import asyncio

    from mcode_exec.output.output_files import FileNames
    from mcode_exec.output.sinks import SinkOptions, open_sink
    from mcode_exec.output.writer import Writer

    options = SinkOptions(run_id=result.run_id, output_format=output_format, files=names or FileNames())

    async def emit() -> None:
        writer = Writer(stdout_fd=1, stderr_fd=2)
        sink = open_sink(options, writer, os.environ)
        await sink.result(result)
        await sink.close()
        writer.stop()

    asyncio.run(emit())


def say_stderr(text: str) -> None:
    """`mcode: …` lines, written at once."""
    from mcode_exec.output.escape import prefixed
    from mcode_exec.output.writer import write_fully

    try:
        write_fully(2, prefixed(text).encode("utf-8", "replace"))
    except OSError:
        pass  # nobody reads stderr; the exit code still tells


def traceback_of(error: BaseException) -> str:
    """Where an unexpected error came from, masked."""
    import traceback

    from mcode_exec.redaction import Redactor, secret_values

    return Redactor(secret_values(os.environ)).text("".join(traceback.format_exception(error)))


def _report(result: Result, directory: str, trace: str | None) -> None:
    """`--diagnostics-dir` of a run that never began; what goes wrong here is only said."""
    from mcode_exec.executor.diagnostics import write_report
    from mcode_exec.redaction import Redactor, secret_values

    try:
        write_report(
            directory,
            invocation=None,
            result=result,
            redactor=Redactor(secret_values(os.environ)),
            env=os.environ,
            traceback=trace,
        )
    except McodeError as error:
        say_stderr(f"error: {error.message}")
