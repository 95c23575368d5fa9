#!/usr/bin/env bash
# Installs every package that building, testing and the examples need, from
# Debian 12 (bookworm). The only place that names packages. Does nothing, and
# needs no rights and no network, when all of them are there.
set -euo pipefail

packages=(
  # Build.
  cmake ninja-build g++ ccache pkg-config git ca-certificates
  # RPC and its code generators.
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libabsl-dev
  # Collectives and dense linear algebra.
  libgloo-dev libopenblas-dev liblapacke-dev
  # Durable state, data files, checksums, JSON.
  libsqlite3-dev zlib1g-dev libxxhash-dev nlohmann-json3-dev
  # Tests, checks and scripts; etcd is started by the tests of its store.
  etcd-server libgtest-dev libgmock-dev clang clang-format clang-tidy python3
  # Data: Fashion-MNIST, and the digits that scikit-learn brings along.
  dataset-fashion-mnist python3-sklearn
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "set-up: all ${#packages[@]} packages are installed"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "set-up: apt-get is missing. Kronserve is set up on Debian 12; on" \
    "another system install what these packages hold: ${missing[*]}" >&2
  exit 1
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "set-up: needs root, or sudo, to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "set-up: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
echo "set-up: done"
