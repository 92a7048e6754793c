"""Frozen records: what is true, apart from where it is kept or shown.  No I/O in this room."""
