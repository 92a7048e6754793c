"""Where mcode keeps things, and how private they are.

Owns the rule for the data directory and the config file (docs/contract.md §1,
§2), the layout below the data directory, and the two ways in which private
directories and files are made.  Invariant: what is made here is 0700 or 0600
whatever the umask, and nothing is ever made below `/`, `~` or `None` because a
variable was missing.  It opens no database and reads no configuration.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

from mcode_exec.errors import ConfigError, InvocationError

DIR_MODE = 0o700
FILE_MODE = 0o600


def home(env: Mapping[str, str]) -> str | None:
    """The user's home directory: `$HOME`, else the passwd entry.

    None where there is none that may be used: no passwd entry (a container with
    a random user id), a relative `HOME`, or `/` (never a write to `/`).
    """
    value = env.get("HOME", "")
    if not value:
        import pwd

        try:
            value = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    if not value.startswith("/") or _is_root(value):
        return None
    return os.path.normpath(value)


def data_dir(flag: str | None, env: Mapping[str, str]) -> str:
    """The data directory, absolute; nothing is created.

    `--data-dir` > `$MCODE_HOME` > `$XDG_DATA_HOME/mcode` > `~/.local/share/mcode`.
    Raises: ConfigError where no directory can be told.
    """
    for name, value in (("--data-dir", flag), ("MCODE_HOME", env.get("MCODE_HOME"))):
        if value:
            path = user_path(value, env, name=name)
            if _is_root(path):
                raise ConfigError(f"{name} is {value!r}: data is not kept in /; name a directory below it.")
            return path
    xdg = env.get("XDG_DATA_HOME", "")
    if xdg.startswith("/"):
        return os.path.join(os.path.normpath(xdg), "mcode")
    base = home(env)
    if base is None:
        raise ConfigError(f"{_why_no_home(env)}: set MCODE_HOME or --data-dir to a directory for the data.")
    return os.path.join(base, ".local", "share", "mcode")


def find_data_dir(flag: str | None, env: Mapping[str, str]) -> str | None:
    """Likewise; None where no directory can be told."""
    try:
        return data_dir(flag, env)
    except (ConfigError, InvocationError):
        return None


def config_file(flag: str | None, env: Mapping[str, str]) -> str | None:
    """The user's config file, whether it exists or not; None where there is no home to look in.

    `--config` > `$MCODE_CONFIG` > `$XDG_CONFIG_HOME/mcode/config.toml` > `~/.config/mcode/config.toml`.
    """
    for name, value in (("--config", flag), ("MCODE_CONFIG", env.get("MCODE_CONFIG"))):
        if value:
            return user_path(value, env, name=name)
    xdg = env.get("XDG_CONFIG_HOME", "")
    if xdg.startswith("/"):
        return os.path.join(os.path.normpath(xdg), "mcode", "config.toml")
    base = home(env)
    return None if base is None else os.path.join(base, ".config", "mcode", "config.toml")


def own_directories(env: Mapping[str, str]) -> tuple[str, ...]:
    """Where mcode keeps data and configuration of this user, whatever a single run uses instead."""
    unnamed = {name: value for name, value in env.items() if name not in ("MCODE_HOME", "MCODE_CONFIG")}
    # a cron job has none of the variables that a shell sets
    plain = {name: value for name, value in unnamed.items() if not name.startswith("XDG_")}
    # nothing is kept where no directory can be told
    found = [path for names in (env, unnamed, plain) if (path := find_data_dir(None, names)) is not None]
    configs = [path for names in (unnamed, plain) if (path := config_file(None, names)) is not None]
    return tuple(dict.fromkeys((*found, *map(os.path.dirname, configs))))


def user_path(text: str, env: Mapping[str, str], *, name: str, base: str | None = None) -> str:
    """A path that a user wrote, made absolute from `base` (else the current directory); `~` is expanded.

    Raises: ConfigError for `~` without a home and for `~user`; InvocationError for a relative one
        where the current directory is gone.
    """
    if text == "~" or text.startswith("~/"):
        directory = home(env)
        if directory is None:
            raise ConfigError(f"{name} is {text!r}, but {_why_no_home(env)}: write the path out.")
        return _resolved_up(directory + text[1:])
    if text.startswith("~"):
        raise ConfigError(f"{name} is {text!r}: only ~ alone is expanded; write the path out.")
    if not text.startswith("/"):
        text = os.path.join(base or current_directory(name), text)
    return _resolved_up(text)


def _resolved_up(path: str) -> str:
    """The path without `.` and `..`; a `..` behind a link leads where the kernel goes, to the parent of its target."""
    before, up, rest = path.rpartition("/../")
    if not up and path.endswith("/.."):
        before, up, rest = path[:-3], "/..", ""
    return os.path.normpath(os.path.join(os.path.realpath(before + "/..") if up else before, rest))


def current_directory(needed_by: str | None = None) -> str:
    """The current directory; `needed_by` names what is relative to it.  Raises: InvocationError when it is gone."""
    try:
        return os.getcwd()
    except OSError:
        gone = "the current directory does not exist any more"
        raise InvocationError(
            f"{gone}; name one with --cwd"
            if needed_by is None
            else f"{needed_by} is relative, and {gone}; give an absolute path"
        ) from None


def database_file(data: str) -> str:
    return os.path.join(data, "mcode.db")


def search_file(data: str) -> str:
    """The index of full-text search; it can be removed, and is made anew."""
    return os.path.join(data, "search.db")


def run_dir(data: str) -> str:
    return os.path.join(data, "run")


def sessions_dir(data: str) -> str:
    return os.path.join(data, "sessions")


def worktrees_dir(data: str) -> str:
    """Where the worktrees are that `--worktree` makes, each below the id of its session."""
    return os.path.join(data, "worktrees")


def changes_dir(data: str) -> str:
    """What is known of workspaces from one tree snapshot to the next."""
    return os.path.join(data, "changes")


def is_kept(path: str, data: str) -> bool:
    """Whether `path` is one of mcode's own files in the data directory `data`; others may be there too."""
    databases = (os.path.realpath(database_file(data)), os.path.realpath(search_file(data)))
    files = [f"{database}{ending}" for database in databases for ending in ("", "-wal", "-shm")]
    return (
        os.path.realpath(path) in (*files, os.path.realpath(catalogue_file(data)))
        or is_inside(path, run_dir(data))
        or is_inside(path, sessions_dir(data))
        or is_inside(path, changes_dir(data))
    )


def own_files(data: str, *, but: str) -> tuple[str, ...]:
    """What mcode keeps in a data directory, real paths; not what `but`, a directory, is in: worktrees are there too."""
    database = database_file(data)
    places = (
        *(database + suffix for suffix in ("", "-wal", "-shm", "-journal", ".lock")),
        catalogue_file(data),
        run_dir(data),
        sessions_dir(data),
        changes_dir(data),
        worktrees_dir(data),
    )
    return tuple(real for place in places if not is_inside(but, real := os.path.realpath(place)))


def catalogue_file(data: str) -> str:
    """What `mcode models --refresh` has fetched."""
    return os.path.join(data, "catalogue.json.gz")


def make_private_dir(path: str) -> None:
    """Make `path` and its missing parents, 0700 whatever the umask.

    What exists keeps its mode: it may be a directory that others share.
    Raises: OSError, NotADirectoryError included.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    for directory in reversed(missing):
        try:
            os.mkdir(directory, DIR_MODE)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", directory) from None
            continue
        if stat.S_IMODE(os.stat(directory).st_mode) & 0o777 != DIR_MODE:  # umask took bits of the owner
            os.chmod(directory, DIR_MODE)


def private_open(path: str, flags: int = os.O_RDWR | os.O_CREAT, *, dir_fd: int | None = None) -> int:
    """Open a file of ours, 0600 whatever the umask; an older, wider mode is narrowed.

    Raises: OSError.
    """
    fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE, dir_fd=dir_fd)
    try:
        info = os.fstat(fd)
        is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        if is_ours and stat.S_IMODE(info.st_mode) != FILE_MODE:
            os.fchmod(fd, FILE_MODE)
    except OSError:
        os.close(fd)
        raise
    return fd


def temp_base(env: Mapping[str, str]) -> str:
    """Where temporary directories are made: `$TMPDIR`, else /tmp, else /var/tmp; what cannot be used is passed over."""
    standard = ("/tmp", "/var/tmp")  # noqa: S108  made 0700 under random names
    for directory in (env.get("TMPDIR", ""), *standard):
        if directory.startswith("/") and os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK):
            return os.path.realpath(directory)
    return standard[0]


def open_regular(path: str, flags: int = 0) -> int:
    """Open a file for reading that must be a regular one; never waits for a FIFO's writer or a device.

    Raises: OSError, for what is no regular file too.
    """
    try:
        fd = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, "no such path can exist", path) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return fd


def is_inside(path: str, root: str) -> bool:
    """Whether the real path of `path` is `root`'s real path or below it."""
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    return real == real_root or real.startswith(real_root.rstrip("/") + "/")


def _is_root(path: str) -> bool:
    return os.path.normpath(path) in ("/", "//")


def _why_no_home(env: Mapping[str, str]) -> str:
    value = env.get("HOME", "")
    if not value:
        return "no home directory is known (HOME is not set, and this user id has none in passwd)"
    return f"HOME is {value!r}, which is no {'place for data' if value.startswith('/') else 'absolute path'}"
