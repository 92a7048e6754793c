"""One model call of any provider, as facts; knows nothing of sessions, turns or disks."""
