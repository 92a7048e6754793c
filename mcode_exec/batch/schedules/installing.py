"""`schedule install` and `uninstall`: who calls `run-due` every minute, cron or a timer of systemd.

Either may be done again at any time: what is there already stays, what has
changed is written anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcode_exec import paths
from mcode_exec.batch.schedules import crontab, systemd
from mcode_exec.batch.schedules.calling import Call
from mcode_exec.errors import ConfigError


def install_cron(call: Call, env: Mapping[str, str]) -> str:
    """Have cron call it; what is to be said.  Raises: ConfigError, InvocationError."""
    block = crontab.block_of(call)
    table = crontab.Crontab(env)
    before = table.read()
    after = crontab.with_block(before, call.data, block)
    if after == before:
        return "the crontab has the line already; nothing was changed"
    table.write(after, call.data)
    return (
        "the crontab has a line that runs what is due every minute; `mcode schedule uninstall` takes it out"
    )


def install_systemd(call: Call, env: Mapping[str, str]) -> str:
    """Have a timer call it; what is to be said.

    Raises: ConfigError, also where the units are written and the timer could not be started.
    """
    directory, name = systemd.unit_directory(env), systemd.unit_name(call.data)
    has_changed = systemd.write_units(directory, systemd.units_of(call))
    starts = ("enable", "--now", f"{name}.timer")
    trouble = systemd.call_systemctl(env, ("daemon-reload",), starts)
    if trouble is not None:
        raise ConfigError(
            f"the units are in {directory}, but the timer does not run: {trouble}; where your user's systemd runs: "
            f"systemctl --user daemon-reload && systemctl --user {' '.join(starts)}"
        )
    if not has_changed:
        return f"{name}.timer is there already; nothing was changed"
    return (
        f"{name}.timer runs what is due every minute, while you are logged in (`loginctl enable-linger`: always); "
        "`mcode schedule uninstall` removes it"
    )


def uninstall_cron(data_dir: str | None, env: Mapping[str, str]) -> str | None:
    """Take the block out of the crontab; what is to be said, None where there is none.  Raises: ConfigError."""
    data = paths.data_dir(data_dir, env)
    table = crontab.Crontab(env)
    before = table.read()
    if not crontab.has_block(before, data):
        return None
    table.write(crontab.with_block(before, data, b""), data)
    return "the line is out of the crontab"


def uninstall_systemd(data_dir: str | None, env: Mapping[str, str]) -> str | None:
    """Stop the timer and remove the units; what is to be said, None where there are none.  Raises: ConfigError."""
    directory, name = systemd.unit_directory(env), systemd.unit_name(paths.data_dir(data_dir, env))
    if not os.path.exists(os.path.join(directory, f"{name}.timer")):
        return None
    trouble = systemd.call_systemctl(env, ("disable", "--now", f"{name}.timer"))
    if not systemd.remove_units(directory, name):
        return None
    trouble = trouble or systemd.call_systemctl(env, ("daemon-reload",))
    return f"{name}.timer is removed" + (
        "" if trouble is None else f"; whether it still runs is not known: {trouble}"
    )


def uninstall_all(data_dir: str | None, env: Mapping[str, str]) -> list[str]:
    """Whatever calls it, as above, does so no more."""
    said = [uninstall_systemd(data_dir, env)]
    try:
        said.append(uninstall_cron(data_dir, env))
    except ConfigError:
        # without a crontab program there is no block either
        if crontab_is_there(env):
            raise
    return [one for one in said if one is not None]


def crontab_is_there(env: Mapping[str, str]) -> bool:
    import shutil

    return shutil.which("crontab", path=env.get("PATH")) is not None
