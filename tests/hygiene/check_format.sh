#!/usr/bin/env bash
# Checks that clang-format would change nothing (fix: the command it prints).
# With --self-test: checks that a badly formatted sample is caught.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v clang-format >/dev/null; then
  echo "clang-format is missing; scripts/setup.sh installs it" >&2
  exit 1
fi

if [[ "${1:-}" == "--self-test" ]]; then
  if echo 'int  main( ){return 0 ;}' |
    clang-format --dry-run --Werror --style=file 2>/dev/null; then
    echo "self-test: a badly formatted sample passed" >&2
    exit 1
  fi
  echo 'int main() { return 0; }' |
    clang-format --dry-run --Werror --style=file
  echo "self-test passed"
  exit 0
fi

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  list=(git ls-files -z --cached --others --exclude-standard '*.h' '*.cc')
else
  list=(find . -path './build*' -prune -o '(' -name '*.h' -o -name '*.cc' ')'
    -print0)
fi
mapfile -d '' -t files < <("${list[@]}" | xargs -0 -r ls -d 2>/dev/null |
  tr '\n' '\0')
if ! clang-format --dry-run --Werror "${files[@]}"; then
  echo "format them with: clang-format -i FILE..." >&2
  exit 1
fi
echo "${#files[@]} files, clean"
