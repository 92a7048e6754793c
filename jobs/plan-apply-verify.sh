#!/bin/sh
# Three turns of one session: each goes on with what the one before has said and done.
# The session is read-only by birth; the turns that may act say so.
set -eu
task=${1:?say what to do}
id=$(mktemp)
trap 'rm -f "$id"' EXIT
mcode exec "Plan this, change nothing yet: $task" --permission read-only --session-id-file "$id" -q
session=$(cat "$id")
mcode exec --session "$session" "Now do it, step by step." --permission smart -q
mcode exec --session "$session" "Run the project's tests and say truthfully how they ended." --permission smart -q
