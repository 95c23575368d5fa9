#!/usr/bin/env bash
# Builds the simulation and runs seeds of it: tests/simulation/README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/simulate.sh [--seeds A..B] [--jobs N] [--trace] [--lines N]
                           [--all] [--preset NAME]

Runs whole clusters on a simulated clock and network, one for each seed, and
prints the seeds that broke a promise with their last events.

  --seeds A..B   these seeds; one number runs one [1..20000]
  --jobs N       so many at a time [one for each core]
  --trace        print every event; for one seed
  --lines N      events to print of a seed that fails [60]
  --all          go on after the tenth failure, and print no events
  --preset NAME  a preset of CMakePresets.json [cpu-release]
TEXT
}

preset=cpu-release
seeds=1..20000
jobs="$(nproc)"
rest=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --preset) preset="${2:?--preset needs a name}"; shift ;;
    --seeds) seeds="${2:?--seeds needs A..B}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a number}"; shift ;;
    --lines) rest+=(--lines "${2:?--lines needs a number}"); shift ;;
    --trace | --all) rest+=("$1") ;;
    --help | -h) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

cmake --preset "$preset" --log-level=WARNING >&2
cmake --build "build/$preset" -j "$(nproc)" --target kronserve-simulate >&2
exec "build/$preset/bin/kronserve-simulate" --seeds "$seeds" --jobs "$jobs" \
  ${rest[@]+"${rest[@]}"}
