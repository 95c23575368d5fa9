#!/usr/bin/env bash
# From a fresh clone to tested: set-up, configure, build, default tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/test.sh [--preset NAME] [--no-setup] [--all]

Installs what is missing (scripts/setup.sh), builds into build/NAME and runs
the default tests: unit, integration and multiprocess. The last lines are
ctest's.

  --preset NAME  a preset of CMakePresets.json [cpu-release]
  --no-setup     take the packages as they are
  --all          run the slow tests too
TEXT
}

preset=cpu-release
setup=yes
labels='^(unit|integration|multiprocess)$'
while [[ $# -gt 0 ]]; do
  case "$1" in
    --preset) preset="${2:?--preset needs a name}"; shift ;;
    --preset=*) preset="${1#*=}" ;;
    --no-setup) setup=no ;;
    --all) labels='.' ;;
    --help | -h) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

[[ "$setup" == no ]] || scripts/setup.sh
cmake --preset "$preset"
cmake --build "build/$preset" -j "$(nproc)"
ctest --test-dir "build/$preset" -j "$(nproc)" -L "$labels" \
  --no-tests=error --output-on-failure
