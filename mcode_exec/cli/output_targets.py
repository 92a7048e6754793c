"""Which files a command line names for output, and when they may be touched.

Invariant: a refused command line touches a file only where every word has its
flag, a prompt is there (no flag took it for its file), and no two flags claim one
target, the directory of a recording included; else it may be a file that nobody meant.
What is written to them is output's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcode_exec import paths
from mcode_exec.errors import ConfigError, InvocationError

if TYPE_CHECKING:
    from mcode_exec.output.output_files import FileNames

#: by the names of Invocation's fields
FLAGS = {
    "events_file": "--events",
    "result_file": "--result",
    "output_file": "-o",
    "session_id_file": "--session-id-file",
}
_READ = ("input_source", "system_prompt_file", "config_file")


def check_targets(values: Mapping[str, Any], output_format: str) -> None:
    """Each file, whatever its spelling, takes one kind of content; so does the stdout of a program's format.

    Raises: InvocationError.
    """
    from mcode_exec.output.files import descriptor_of

    seen: dict[int | str, str] = {}
    for name, flag in FLAGS.items():
        path = values[name]
        if path is None:
            continue
        if not path:
            raise InvocationError(f"{flag} is empty.")
        if descriptor_of(path) == 1 and output_format != "text":
            raise InvocationError(
                f"{flag} {path} and --output-format {output_format} cannot be combined: both write to stdout."
            )
        target = _target_of(path, flag)
        if target != os.devnull and seen.setdefault(target, flag) != flag:
            raise InvocationError(f"{seen[target]} and {flag} cannot be combined on the same file {path!r}.")
    if (found := _flag_in_recording(values)) is not None:
        raise InvocationError(
            f"{found} and --record cannot be combined on one target: nothing else is kept in {values['record']!r}."
        )


def _target_of(path: str, flag: str) -> int | str:
    from mcode_exec.output.files import descriptor_of

    number = descriptor_of(path)
    return os.path.realpath(_from_here(path, flag)) if number is None else number


def _flag_in_recording(values: Mapping[str, Any]) -> str | None:
    """The flag that names something in the directory of `--record`, or a file where that directory would be made."""
    if values["record"] in (None, "", "-"):
        return None
    try:
        directory = os.path.realpath(paths.user_path(values["record"], os.environ, name="--record"))
    except ConfigError:
        return None  # said by whoever makes the directory
    for name, flag in FLAGS.items():
        target = _target_of(values[name], flag) if values[name] else None
        if isinstance(target, str) and (
            f"{target}/".startswith(f"{directory}/") or (name in FLAGS and directory.startswith(f"{target}/"))
        ):
            return flag
    return None


def _from_here(path: str, flag: str) -> str:
    return path if path.startswith("/") else os.path.join(paths.current_directory(flag), path)


def names_of(values: Mapping[str, Any]) -> FileNames:
    """The files that flags name, and what the run reads."""
    from mcode_exec.output.output_files import FileNames

    read = [values[name] for name in _READ if values[name]]
    return FileNames(
        events=values["events_file"],
        answer=values["output_file"],
        result=values["result_file"],
        session_id=values["session_id_file"],
        read=tuple(path for path in (*read, *values["files"]) if path != "-"),
        data=None if values["ephemeral"] else paths.find_data_dir(values["data_dir"], os.environ),
    )


def find_names(argv: Sequence[str]) -> FileNames | None:
    """The files of a command line that was refused; None where it names none or cannot be told which it means.

    None of them where one is in a recording, which is not to be damaged.
    """
    import click

    from mcode_exec.cli.exec_command import command
    from mcode_exec.cli.exec_flags import FORMATS

    if argv[:1] != ["exec"]:
        return None
    parser = command.make_parser(click.Context(command, info_name="exec"))
    try:
        values, rest, _ = parser.parse_args(list(argv[1:]))
        has_prompt = (
            isinstance(values.get("prompt"), str) or values.get("input_source") or values.get("files")
        )
        if rest or not has_prompt or values.get("dry_run"):
            return None
        named = {
            name: values.get(name) or None
            for name in (*FLAGS, *_READ, "files", "data_dir", "ephemeral", "record")
        }
        if all(named[name] is None for name in FLAGS):
            return None
        if _flag_in_recording(named) is not None:
            return names_of({**dict.fromkeys(named), "files": ()})
        check_targets(named, FORMATS.get(values.get("output_format") or "", "text"))
    except (click.UsageError, InvocationError):
        return None
    return names_of({**named, "files": named["files"] or ()})
