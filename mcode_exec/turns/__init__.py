"""What may run: admission, leases, execution, settlement, recovery.

One turn per session at a time, across all processes of a data directory.  The
agent loop is reached as a callable; nothing here knows prompts or providers.
"""
