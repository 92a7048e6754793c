"""The version, alone, so that `mcode --version` imports nothing else."""

VERSION = "0.1.0"
