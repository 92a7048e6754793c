"""The command that cron or a timer calls: absolute paths, and nothing of a shell's environment but PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.errors import ConfigError, InvocationError


class Call(Struct, frozen=True, kw_only=True):
    """How `run-due` is called."""

    #: the data directory whose schedules it runs
    data: str
    #: PATH that it gets
    path: str
    command: tuple[str, ...]


def call_of(data_dir: str | None, config: str | None, path: str | None, env: Mapping[str, str]) -> Call:
    """The call for a data directory; `config` and `path`: what was named instead of what holds here.

    Raises: ConfigError, InvocationError for what neither cron nor a timer could be told.
    """
    data = paths.data_dir(data_dir, env)
    if not os.path.isabs(sys.executable or ""):
        raise ConfigError("the Python interpreter has no absolute path here, so that nothing can call it.")
    # -P: where cron is at that moment is no place to import from
    command = [sys.executable, "-P", "-m", "mcode_exec", "schedule", "run-due", "--data-dir", data]
    file = paths.config_file(config, env)
    if file is not None and (config is not None or (file != _plain_config() and os.path.exists(file))):
        command += ["--config", file]
    call = Call(
        data=data, path=_lasting_path(env.get("PATH", "") if path is None else path), command=tuple(command)
    )
    for value in (call.path, *call.command):
        if any(character in value for character in "\n\r\0"):
            raise InvocationError(f"{value[:200]!r} has a line break, which no crontab and no unit can hold.")
    return call


def _plain_config() -> str | None:
    """The configuration that is found where nothing is set, as under cron."""
    import pwd

    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
    return paths.config_file(None, {"HOME": home})


def _lasting_path(path: str) -> str:
    """PATH without entries that are relative, gone or doubled."""
    entries = dict.fromkeys(entry for entry in path.split(":") if entry.startswith("/"))
    found = ":".join(entry for entry in entries if os.path.isdir(entry))
    if not found:
        raise InvocationError("PATH names no directory that is there; name some with --path.")
    return found
