#!/usr/bin/env bash
# A scheduler, a server and a worker on loopback. Argument: the folder with the
# programs [build/cpu-release/bin].
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${1:-$root/build/cpu-release/bin}
if [[ ! -x "$bin/kronserve-worker" ]]; then
  echo "$bin has no programs: run scripts/test.sh first, or name a folder" >&2
  exit 1
fi

folder=$(mktemp -d)
pids=()
stop() {
  if [[ ${#pids[@]} -gt 0 ]]; then
    kill -TERM "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" || true
  fi
  pids=()
}
trap 'stop; rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits until a program has written its address to the file $1.
address_in() {
  for _ in $(seq 200); do
    if [[ -s "$1" ]]; then
      cat "$1"
      return
    fi
    sleep 0.05
  done
  echo "no address in $1 after 10 s" >&2
  return 1
}

echo "== scheduler"
"$bin/kronserve-scheduler" --listen=127.0.0.1:0 --store=memory \
  --address-file="$folder/scheduler" &
pids+=($!)
scheduler=$(address_in "$folder/scheduler")

echo "== server"
"$bin/kronserve-server" --name=server0 --listen=127.0.0.1:0 \
  --scheduler="$scheduler" --address-file="$folder/server0" &
pids+=($!)
address_in "$folder/server0" >/dev/null

echo "== kronctl status"
"$bin/kronctl" status --scheduler="$scheduler"

echo "== worker"
"$bin/kronserve-worker" --scheduler="$scheduler" --job=digits --rank=0 \
  --world-size=1 --node=node0 --dataset=digits --model=mlp --hidden=64,32 \
  --batch=64 --optimizer=kfac --epochs=5 --eval-every=22

echo "== stopping"
stop
echo "done"
