#!/bin/sh
# One turn: the answer on stdout, everything else on stderr, a truthful exit code.
exec mcode exec "${1:-Say hello in one short sentence.}"
