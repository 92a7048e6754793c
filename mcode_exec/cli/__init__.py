"""The command line: parse, call one function, render.  Owns signals and exit codes; decides nothing."""
