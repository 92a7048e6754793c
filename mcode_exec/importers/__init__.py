"""Sessions of other programs, read as they lie on disk: facts of their formats, and nothing of ours but records.

Read-only on every source.  What is read is untrusted: sizes are bounded, paths
are never followed, credentials are never opened.
"""
