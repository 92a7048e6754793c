"""Makes `tests.support` importable from every test, whatever the working directory of pytest."""
