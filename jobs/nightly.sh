#!/bin/sh
# For cron: one session kept by KEY, at most one answered turn a day.  Started again on the same day it
# prints the stored answer; after a crash or a failure it runs again.
set -eu
key=${1:?a key for the session}
prompt=${2:?what to do every night}
exec mcode exec "$prompt" --session-key "$key" --request-id "$key-$(date -u +%F)" --timeout 30m -q
