"""Recordings of runs: made by `--record`, played back by a provider whose api is `replay`."""
