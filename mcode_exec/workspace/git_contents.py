"""Contents that git keeps already, so that a snapshot of a checkout need not read and keep them again.

git's index says of each tracked file how it stood on disk when its content was
stored.  Where it stands so still, the stored blob is its content, unless git
converts between the two (line ends, filters, encodings, keywords): such a file is
left out here, and the snapshot reads it.  Only read: no index is refreshed, no
object is written or touched, no filter runs, nothing is fetched.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence

from mcode_exec.workspace.git import index_file, run_git
from mcode_exec.workspace.programs import Stop

#: one entry of `git ls-files --stage --debug -z`
_ENTRY = re.compile(
    rb"(?P<mode>\d{6}) (?P<blob>[0-9a-f]{40}) 0\t(?P<path>[^\0]+)\0"
    rb"  ctime: (?P<ctime_s>\d+):(?P<ctime_ns>\d+)\n"
    rb"  mtime: (?P<mtime_s>\d+):(?P<mtime_ns>\d+)\n"
    rb"  dev: \d+\tino: (?P<inode>\d+)\n"
    rb"  uid: \d+\tgid: \d+\n"
    rb"  size: (?P<size>\d+)\tflags: (?P<flags>[0-9a-f]+)\n"
)
#: attributes by which a blob may hold something else than the file, whatever their sizes are
_CONVERTING = ("filter", "ident", "working-tree-encoding")
_SECOND = 1_000_000_000
_LOW_32 = 0xFFFFFFFF  # the index holds 32 bits of sizes and inodes
_BATCH_LIMIT_S = 20.0
_HEAD = re.compile(rb"(?P<blob>[0-9a-f]{40}) (?P<kind>\w+)(?: (?P<size>\d+))?\n")


def unchanged_blobs(
    repository: str, files: Mapping[bytes, os.stat_result], *, deadline_s: float, stop: Stop
) -> dict[bytes, bytes]:
    """Of `files` (relative to `repository`) those whose content git has, byte for byte: path → id of the blob.

    Empty where that cannot be told: an index of another kind, objects named by
    another hash, no time left.
    """
    index = index_file(repository)
    try:
        index_ns = os.stat(index or "").st_mtime_ns
    except OSError:
        return {}
    listed = run_git(
        ["ls-files", "--stage", "--debug", "-z"],
        repository,
        limit_s=max(0.0, deadline_s - time.monotonic()),
        stop=stop,
    )
    if listed is None or listed.exit_code != 0:
        return {}
    clean: dict[bytes, bytes] = {}
    for entry in _ENTRY.finditer(listed.stdout):
        status = files.get(entry["path"])
        if status is not None and _is_clean(entry, status, index_ns):
            clean[entry["path"]] = bytes.fromhex(entry["blob"].decode())
    return _without_converted(repository, clean, files, deadline_s, stop) if clean else clean


def _is_clean(entry: re.Match[bytes], status: os.stat_result, index_ns: int) -> bool:
    mtime_ns = int(entry["mtime_s"]) * _SECOND + int(entry["mtime_ns"])
    ctime_ns = int(entry["ctime_s"]) * _SECOND + int(entry["ctime_ns"])
    # assume-unchanged, skip-worktree, added by intent only: the index says nothing of the file then
    flags = int(entry["flags"], 16) & 0x6000_8000
    return (
        stat.S_ISREG(status.st_mode)
        and entry["mode"] in (b"100644", b"100755")
        and not flags
        and mtime_ns == status.st_mtime_ns
        and ctime_ns == status.st_ctime_ns
        and int(entry["inode"]) == status.st_ino & _LOW_32
        and int(entry["size"]) == status.st_size & _LOW_32
        and mtime_ns < index_ns  # else it may have changed in the very moment in which it was stored
    )


def _without_converted(
    repository: str,
    clean: dict[bytes, bytes],
    files: Mapping[bytes, os.stat_result],
    deadline_s: float,
    stop: Stop,
) -> dict[bytes, bytes]:
    """Line ends change a size when they are converted; what else is converted has an attribute."""
    sizes = _sizes(repository, set(clean.values()), deadline_s, stop)
    clean = {path: blob for path, blob in clean.items() if sizes.get(blob) == files[path].st_size}
    if not clean:
        return clean
    answer = run_git(
        ["check-attr", "-z", "--stdin", *_CONVERTING],
        repository,
        limit_s=max(0.0, deadline_s - time.monotonic()),
        stop=stop,
        given=b"\0".join(clean) + b"\0",
    )
    if answer is None or answer.exit_code != 0:
        return {}
    fields = answer.stdout.split(b"\0")
    for path, _, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            clean.pop(path, None)
    return clean


def _sizes(repository: str, blobs: set[bytes], deadline_s: float, stop: Stop) -> dict[bytes, int]:
    answer = run_git(
        ["cat-file", "--batch-check", "--buffer"],
        repository,
        limit_s=max(0.0, deadline_s - time.monotonic()),
        stop=stop,
        given=b"".join(blob.hex().encode() + b"\n" for blob in blobs),
    )
    if answer is None or answer.exit_code != 0:
        return {}
    heads = (head for line in answer.stdout.splitlines(True) if (head := _HEAD.fullmatch(line)))
    return {
        bytes.fromhex(head["blob"].decode()): int(head["size"])
        for head in heads
        if head["kind"] == b"blob" and head["size"]
    }


def read_blobs(repository: str, blobs: Sequence[bytes]) -> dict[bytes, bytes]:
    """The contents of blobs; those that are not there any more are missing."""
    found: dict[bytes, bytes] = {}
    wanted = list(dict.fromkeys(blobs))
    if not wanted:
        return found
    answer = run_git(
        ["cat-file", "--batch", "--buffer"],
        repository,
        limit_s=_BATCH_LIMIT_S,
        given=b"".join(blob.hex().encode() + b"\n" for blob in wanted),
    )
    if answer is None:
        return found
    return dict(_contents(answer.stdout))


def _contents(output: bytes) -> Iterable[tuple[bytes, bytes]]:
    at = 0
    while at < len(output):
        head = _HEAD.match(output, at)
        if head is None:
            return
        at = head.end()
        if not head["size"]:
            continue  # `… missing`
        size = int(head["size"])
        if len(output) < at + size + 1:
            return
        if head["kind"] == b"blob":
            yield bytes.fromhex(head["blob"].decode()), output[at : at + size]
        at += size + 1


def blob_id(data: bytes) -> bytes:
    """The id that git gives a content."""
    import hashlib

    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()
