#!/usr/bin/env bash
# capped.sh MB COMMAND…: run a command that may not have more than so much memory.
#
# Where systemd runs the user's session, the kernel holds the cap, children of the command included. Elsewhere the
# resident memory of the command is looked at twenty times a second, and past the cap it is killed. (A limit on address
# space, `ulimit -v`, is no limit on memory: Node reserves tens of gigabytes that it never uses.)
set -euo pipefail
limit=$1
shift
if systemd-run --user --scope --quiet true 2>/dev/null; then
  exec systemd-run --user --scope --quiet -p "MemoryMax=${limit}M" -p MemorySwapMax=0 "$@"
fi

"$@" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' INT TERM
# The most kilobytes it has had so far, or has now where the system does not tell; nothing once it has ended.
resident() {
  if [ -r "/proc/$pid/status" ]; then sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status"; else ps -o rss= -p "$pid"; fi
}
peak=0
while kilobytes=$(resident) && [ -n "$kilobytes" ]; do
  [ "$kilobytes" -le "$peak" ] || peak=$kilobytes
  if [ "$peak" -gt $((limit * 1024)) ]; then
    kill -9 "$pid"
    echo "The command has taken $((peak / 1024)) MB, and the cap is $limit MB: it was killed." >&2
    exit 137
  fi
  sleep 0.05
done
code=0
wait "$pid" || code=$?
echo "The command had at most $((peak / 1024)) MB of memory, and the cap is $limit MB." >&2
exit $code
