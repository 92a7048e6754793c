"""`python -m mcode_exec` is `mcode`."""

from mcode_exec.cli.main import main

main()
