"""Paths of a directory that was moved: by whole names."""

from __future__ import annotations

import pytest

from mcode_exec.sessions.relocating import moved_path


@pytest.mark.parametrize(
    ("path", "old", "new", "moved"),
    [
        ("/a/b", "/a/b", "/c", "/c"),
        ("/a/b/x/y", "/a/b", "/c", "/c/x/y"),
        ("/a/bc", "/a/b", "/c", None),
        ("/a/b.old", "/a/b", "/c", None),
        ("/a/b0", "/a/b", "/c", None),
        ("/a", "/a/b", "/c", None),
        ("/a/b/b", "/a/b", "/a", "/a/b"),
        ("/x", "/", "/c", "/c/x"),
        ("/a/x", "/a", "/", "/x"),
        ("/a", "/a", "/", "/"),
    ],
)
def test_what_lies_in_the_old_place_lies_in_the_new_one(
    path: str, old: str, new: str, moved: str | None
) -> None:
    assert moved_path(path, old, new) == moved
