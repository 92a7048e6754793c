"""What people and CI read of a job run: everything is made from summaries that come one by one."""
