"""What is kept: sessions, projects, canonical history, display messages, usage, the stream of frames.

Nothing here starts a turn or runs git.  Canonical history, display rows and
usage change only through one door, commit.py.
"""
