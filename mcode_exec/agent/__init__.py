"""The agent loop: from a transcript to an answer, step after step.

It knows no disk, no lock and no session row: what it does is made permanent
and shown through the ports it is given.
"""
