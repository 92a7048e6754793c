"""Two user units of systemd, a service and its timer, and the words that start and stop them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping

from mcode_exec import paths
from mcode_exec.batch.schedules.calling import Call
from mcode_exec.errors import ConfigError

_LIMIT_S = 60.0
#: the first line of a unit of ours
_MARK = "# Written by `mcode schedule install --systemd`, which writes it anew; `uninstall` removes it."


def units_of(call: Call) -> dict[str, str]:
    """name -> text of the units that call `run-due` every minute."""
    name = unit_name(call.data)
    service = f"""\
{_MARK}
[Unit]
Description=mcode schedules of {_literal(call.data)}

[Service]
Type=oneshot
Environment={_quoted("PATH=" + call.path)}
ExecStart={" ".join(_argument(word) for word in call.command)}
KillMode=mixed
"""
    timer = f"""\
{_MARK}
[Unit]
Description=mcode schedules of {_literal(call.data)}, every minute

[Timer]
OnCalendar=*-*-* *:*:00
AccuracySec=1s
Unit={name}.service

[Install]
WantedBy=timers.target
"""
    return {f"{name}.service": service, f"{name}.timer": timer}


def unit_name(data: str) -> str:
    """What the units of a data directory are called, without their ending."""
    return "mcode-schedule-" + hashlib.sha256(os.fsencode(data)).hexdigest()[:8]


def _literal(text: str) -> str:
    """Text in which `%` stands for itself."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_literal(escaped)}"'


def _argument(word: str) -> str:
    """A word of a command line, in which `$` stands for itself too."""
    return _quoted(word).replace("$", "$$")


def unit_directory(env: Mapping[str, str]) -> str:
    """Where units of the user are.  Raises: ConfigError where no home is known."""
    config = paths.config_file(None, {name: value for name, value in env.items() if name != "MCODE_CONFIG"})
    if config is None:
        raise ConfigError("no home directory is known, so that there is no place for units; set HOME")
    return os.path.join(os.path.dirname(os.path.dirname(config)), "systemd", "user")


def write_units(directory: str, units: Mapping[str, str]) -> bool:
    """Write the units that are not there as they should be; whether there was one.

    Raises: ConfigError for a directory that cannot be written, and for a file of somebody else.
    """
    stale = {}
    for name, text in units.items():
        path = os.path.join(directory, name)
        found = _read(path)
        if found is not None and not found.startswith(_MARK):
            raise ConfigError(f"{path} was not written by mcode; move it away first")
        if found != text:
            stale[path] = text
    try:
        os.makedirs(directory, exist_ok=True)
        for path, text in stale.items():
            with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            os.replace(f"{path}.new", path)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error.strerror or error}") from error
    return bool(stale)


def remove_units(directory: str, name: str) -> bool:
    """Remove the units of that name; False if there are none of ours."""
    found = [
        path
        for ending in (".timer", ".service")
        if (_read(path := os.path.join(directory, name + ending)) or "").startswith(_MARK)
    ]
    for path in found:
        os.unlink(path)
    return bool(found)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def call_systemctl(env: Mapping[str, str], *commands: tuple[str, ...]) -> str | None:
    """Run `systemctl --user` with each of the commands; what is to be said where one fails, None where all did."""
    program = shutil.which("systemctl", path=env.get("PATH"))
    if program is None:
        return "there is no systemctl on PATH"
    for command in commands:
        try:
            done = subprocess.run(
                [program, "--user", *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                env=dict(env),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"`systemctl --user {' '.join(command)}` did not end within {_LIMIT_S:g} s"
        except OSError as error:
            return f"{program} cannot be started: {error.strerror or error}"
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
            return f"`systemctl --user {' '.join(command)}` failed: {said or done.returncode}"
    return None
