"""On which file systems the store may live, read from samples of mountinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.errors import StoreFailedError
from mcode_exec.store.filesystem import check_directory, file_system_of, is_wal_safe

_SAMPLE = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /home rw,relatime shared:2 master:1 propagate_from:3 - nfs4 nas:/home rw,vers=4.2
31 30 0:41 / /home/u/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/with\\040space rw - 9p host rw
33 22 0:43 / /mnt/over rw - ext4 /dev/vdc rw
34 22 0:44 / /mnt/over rw - fuse.sshfs host:/ rw
35 22 0:45 / /mnt/empty-options rw - tmpfs tmpfs rw
broken line
36 22
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/mcode", "ext4"),
        ("/home/u/.local/share/mcode", "nfs4"),
        ("/home", "nfs4"),
        ("/homework/x", "ext4"),
        ("/home/u/local/mcode", "xfs"),
        ("/home/u/localish", "nfs4"),
        ("/mnt/with space/mcode", "9p"),
        ("/mnt/over/x", "fuse.sshfs"),
        ("/mnt/empty-options", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_and_newest_mount(
    tmp_path: Path, path: str, expected: str
) -> None:
    sample = tmp_path / "mountinfo"
    sample.write_text(_SAMPLE)
    assert file_system_of(path, str(sample)) == expected


def test_without_mountinfo_nothing_is_known_and_nothing_refused(tmp_path: Path) -> None:
    assert file_system_of("/x", str(tmp_path / "none")) is None
    assert is_wal_safe(None)


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse", "fuse.sshfs", "ceph"]
)
def test_network_and_virtual_file_systems_are_unsafe(name: str) -> None:
    assert not is_wal_safe(name)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "fuseblk"])
def test_local_file_systems_are_safe(name: str) -> None:
    assert is_wal_safe(name)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreFailedError, match="is not a directory"):
        check_directory(str(tmp_path / "data"))
