"""Schedules: jobs and prompts that run when they are due, called by a crontab line or a timer every minute.

`times` knows cron and time zones · `catching_up` says which due times are run ·
`definitions` makes a job of a schedule · `ledger` is the store's side, where a
due time is claimed · `running` is `run-due` · `failing` tells of failures ·
`installing` writes the crontab line and the timer.  There is no daemon.
"""
