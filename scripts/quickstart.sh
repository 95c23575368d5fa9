#!/usr/bin/env bash
# Set-up, build of the programs, and the main job: a cluster on this machine
# that trains a network. Arguments go to scripts/quickstart.py; --help tells.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for argument in "$@"; do
  if [[ "$argument" == --help || "$argument" == -h ]]; then
    exec python3 scripts/quickstart.py --help
  fi
done

preset=cpu-release
scripts/setup.sh
cmake --preset "$preset" --log-level=WARNING
cmake --build "build/$preset" -j "$(nproc)" --target \
  kronserve-scheduler kronserve-server kronserve-worker kronctl
exec python3 scripts/quickstart.py --bin-dir "build/$preset/bin" "$@"
