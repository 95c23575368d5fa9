#!/usr/bin/env bash
# Every check there is, one after the other, with a table at the end.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat <<'TEXT'
Usage: scripts/check_all.sh [--only NAME[,NAME...]] [--tidy-all] [--no-setup]

  --only      run these checks only: format, hygiene, release, asan, tsan, gcc,
              tidy, quickstart
  --tidy-all  clang-tidy over all files; without it, over those that differ
              from the branch's upstream or, without one, from the last commit
              but one

Takes about an hour on two cores; a quarter of it are faults and chaos on the
real programs (label slow). Exit status: 0 when all passed.
TEXT
}

only=''
tidy_all=no
setup=yes
while [[ $# -gt 0 ]]; do
  case "$1" in
    --only) only="${2:?--only needs names}"; shift ;;
    --only=*) only="${1#*=}" ;;
    --tidy-all) tidy_all=yes ;;
    --no-setup) setup=no ;;
    --help | -h) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

# The tests whose subject has threads; the others would only take time. The
# real programs are too slow so for the deadlines of their tests.
threaded='task_pool|mutex|log|grpc|loopback|gloo|communicator|session|server'
threaded+='|scheduler|client|cluster|driver|heartbeat|refresh'

build() {
  cmake --preset "$1" >/dev/null && cmake --build "build/$1" -j "$(nproc)"
}

check_format() { tests/hygiene/check_format.sh; }

check_hygiene() {
  local status=0 script
  for script in tests/hygiene/check_*.py; do
    python3 "$script" --self-test && python3 "$script" || status=1
  done
  return $status
}

check_release() { scripts/test.sh --no-setup --preset cpu-release --all; }

check_asan() { scripts/test.sh --no-setup --preset cpu-asan; }

check_tsan() {
  build cpu-tsan && ctest --test-dir build/cpu-tsan -j "$(nproc)" \
    -R "$threaded" -E '^check_' -LE 'multiprocess|slow' --no-tests=error \
    --output-on-failure
}

check_gcc() { build cpu-gcc; }

changed_sources() {
  local base
  if [[ "$tidy_all" == yes ]]; then
    git ls-files '*.cc'
    return
  fi
  base=$(git rev-parse -q --verify '@{upstream}' ||
    git rev-parse -q --verify 'HEAD~1' || git rev-parse HEAD)
  git diff --name-only --diff-filter=d "$base" -- '*.cc'
}

# Needs the compile commands and generated headers of check_gcc.
check_tidy() {
  build cpu-gcc || return 1
  changed_sources | xargs -r -P "$(nproc)" -n 1 \
    clang-tidy -p build/cpu-gcc --quiet
}

check_quickstart() {
  scripts/quickstart.sh --dataset digits --quick
}

names=(format hygiene release asan tsan gcc tidy quickstart)
for name in ${only//,/ }; do
  if [[ " ${names[*]} " != *" $name "* ]]; then
    echo "unknown check '$name': choose from ${names[*]}" >&2
    exit 2
  fi
done

if [[ "$setup" == yes ]]; then
  scripts/setup.sh || exit 1
fi
mkdir -p build/check_all
table=''
failed=0
for name in "${names[@]}"; do
  if [[ -n "$only" && ",$only," != *",$name,"* ]]; then
    continue
  fi
  log="build/check_all/$name.log"
  echo "== $name (log: $log)"
  start=$SECONDS
  if "check_$name" >"$log" 2>&1; then
    result=passed
  else
    result=FAILED
    failed=$((failed + 1))
    tail -n 30 "$log"
  fi
  table+=$(printf '%-12s %-8s %5d s' "$name" "$result" $((SECONDS - start)))
  table+=$'\n'
done
printf '\n%-12s %-8s %7s\n%s' check result time "$table"
[[ $failed -eq 0 ]]
