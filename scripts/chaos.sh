#!/usr/bin/env bash
# A training run on this machine in which something breaks every ten steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/chaos.sh [--seed N] [--steps N] [--preset NAME]

Trains the digits twice, on 3 servers and 4 ranks: calmly, then with a fault
every ten steps (a server or the scheduler is killed, stopped, frozen, cut off
or loses packets, and comes back). Compares the two and says what is wrong.

  --seed    what breaks when; drawn and printed without it
  --steps   of each run [500]
  --preset  a build of CMakePresets.json [cpu-release]
TEXT
}

preset=cpu-release
words=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --seed | --steps) words+=("$1" "${2:?$1 needs a number}"); shift ;;
    --seed=* | --steps=*) words+=("$1") ;;
    --preset) preset="${2:?--preset needs a name}"; shift ;;
    --preset=*) preset="${1#*=}" ;;
    --help | -h) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

cmake --preset "$preset" >/dev/null
cmake --build "build/$preset" -j "$(nproc)" --target \
  kronserve-scheduler kronserve-server kronserve-worker kronctl
exec python3 -B tests/multiprocess/chaos.py --bin-dir "build/$preset/bin" \
  "${words[@]}"
