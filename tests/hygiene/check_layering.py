#!/usr/bin/env python3
"""Checks that includes go down only, and who may include which library.

The rules are those of docs/architecture.md, "Who may include whom".
"""

import re

import repository

LEVELS = {
    "common": 0, "proto": 0, "checkpoint": 1, "linalg": 1,
    "curvature": 2, "placement": 2,
    "server": 3, "scheduler": 3, "client": 3, "worker": 4,
    "tests": 5, "benchmarks": 5, "examples": 5,
}
TOP = 5

# A backend is a folder; outside of it only its factory.h is seen.
BACKENDS = (
    "linalg/reference", "linalg/cpu", "linalg/cuda",
    "worker/collective/loopback", "worker/collective/gloo",
    "worker/collective/nccl", "scheduler/memory", "scheduler/sqlite",
    "scheduler/etcd",
)

# Besides mains and tests, the only files that include a factory.h: each is the
# door to its backends.
DOORS = ("linalg/backend.cc", "worker/worker_run.cc")

# Library headers, and the only places that include them.
LIBRARIES = (
    ("gRPC", r"(grpc|grpcpp)/.*|.*\.grpc\.pb\.h",
     r"common/grpc_[^/]*|.*_service(_test)?\.(h|cc)|.*_main\.cc|client/.*"
     r"|server/(scheduler|transfer)_link(_test)?\.(h|cc)"
     r"|scheduler/server_link(_test)?\.(h|cc)|scheduler/etcd/.*"
     r"|tests/.*|.*/testing/.*"),
    ("generated protobuf", r"kronserve/v1/.*\.pb\.h",
     r"(?!common/|linalg/|curvature/).*"),
    ("Gloo", r"gloo/.*", r"worker/collective/gloo/.*"),
    ("BLAS and LAPACK", r"(cblas|lapacke|openblas.*)\.h|f77blas\.h",
     r"linalg/cpu/.*"),
    ("CUDA", r"(cuda|cublas|cusolver|cusparse).*", r"linalg/cuda/.*"),
    ("NCCL", r"nccl.*", r"worker/collective/nccl/.*"),
    ("SQLite", r"sqlite3.*", r"scheduler/sqlite/.*|scheduler/.*_test\.cc"),
    ("xxHash", r"xxhash.*", r"common/checksum\.cc"),
    ("Prometheus", r"prometheus/.*", r"common/metrics.*"),
)

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def level(path):
    """Level of a file; None outside of the layers."""
    if path.name.endswith("_main.cc"):
        return TOP
    return LEVELS.get(path.parts[0])


def target_folder(include):
    """Top folder that `include` lives in; None for a library header."""
    if re.match(r"kronserve/v1/", include):
        return "proto"
    if include.startswith("kronserve/"):  # client/include/kronserve/
        return "client"
    folder = include.split("/")[0]
    return folder if folder in LEVELS else None


def direction_fault(path, include):
    folder = target_folder(include)
    if folder is None or path.parts[0] == folder or level(path) is None:
        return None
    if level(path) > LEVELS[folder]:
        return None
    if (path.parts[0], folder) == ("proto", "common"):
        return None
    return (f"{path.parts[0]} (level {level(path)}) may not include {folder} "
            f"(level {LEVELS[folder]})")


def backend_fault(path, include):
    for backend in BACKENDS:
        if not include.startswith(backend + "/"):
            continue
        if str(path).startswith(backend + "/"):
            return None
        if include != backend + "/factory.h" and not repository.is_test(path):
            return f"only {backend}/factory.h may be included from outside"
        if (str(path) not in DOORS and level(path) != TOP
                and not repository.is_test(path)):
            return (f"{include} may be included by {', '.join(DOORS)}, a main "
                    "and tests only")
    return None


def library_fault(path, include):
    for name, headers, places in LIBRARIES:
        if not re.fullmatch(headers, include):
            continue
        if re.fullmatch(places, str(path)):
            return None
        return f"{name} headers do not belong into {path.parts[0]}/"
    return None


def testing_fault(path, include):
    if "testing/" in include and target_folder(include) is not None:
        if not repository.is_test(path):
            return "testing/ folders are included by tests only"
    return None


RULES = (direction_fault, backend_fault, library_fault, testing_fault)


def check(root):
    faults = []
    for path in repository.files(root):
        if path.suffix not in repository.CODE_SUFFIXES:
            continue
        lines = repository.read(root, path).splitlines()
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            include = match.group(1) or match.group(2)
            reasons = [rule(path, include) for rule in RULES]
            if ".." in include.split("/"):
                reasons.append("includes are written from the root")
            faults += [f"{path}:{number}: {include}: {reason}"
                       for reason in reasons if reason]
    return faults


def self_test():
    def expect(path, include, *needles):
        repository.expect(check, {path: f"#include {include}\n"}, *needles)

    expect("linalg/a.cc", '"common/log.h"')
    expect("linalg/a.cc", '"curvature/a.h"', "may not include curvature")
    expect("curvature/a.h", '"placement/a.h"', "may not include placement")
    expect("server/a.cc", '"scheduler/a.h"', "may not include scheduler")
    expect("server/a.cc", '"kronserve/client.h"', "may not include client")
    expect("server/a.cc", '"checkpoint/store.h"')
    expect("client/cli/a.cc", '"checkpoint/verify.h"')
    expect("checkpoint/a.cc", '"server/a.h"', "may not include server")
    expect("checkpoint/a.cc", '"linalg/a.h"', "may not include linalg")
    expect("server/server_main.cc", '"worker/session.h"')
    expect("proto/a.cc", '"common/log.h"')
    expect("common/a.cc", '"proto/tensor_chunks.h"', "may not include proto")
    expect("common/a.cc", '"kronserve/v1/job.pb.h"', "may not include proto",
           "generated protobuf")
    expect("linalg/a.cc", '"kronserve/v1/job.pb.h"', "generated protobuf")
    expect("server/a.cc", '"kronserve/v1/job.pb.h"')
    expect("server/a.cc", '"kronserve/v1/job.grpc.pb.h"', "gRPC")
    expect("server/a_service.cc", "<grpcpp/grpcpp.h>")
    expect("server/layer.cc", "<grpcpp/grpcpp.h>", "gRPC")
    expect("server/scheduler_link.cc", "<grpcpp/grpcpp.h>")
    expect("worker/a.cc", "<gloo/context.h>", "Gloo")
    expect("worker/collective/gloo/a.cc", "<gloo/context.h>")
    expect("linalg/reference/a.cc", "<cblas.h>", "BLAS")
    expect("linalg/cpu/a.cc", "<lapacke.h>")
    expect("scheduler/a.cc", "<sqlite3.h>", "SQLite")
    expect("linalg/cpu/a.cc", "<cuda_runtime.h>", "CUDA")
    expect("linalg/backend.cc", '"linalg/cpu/factory.h"')
    expect("linalg/backend.cc", '"linalg/cpu/solver.h"', "only linalg/cpu")
    expect("server/a.cc", '"linalg/cpu/factory.h"', "a main and tests only")
    expect("server/a.cc", '"common/testing/fake_clock.h"', "tests only")
    expect("server/a_test.cc", '"common/testing/fake_clock.h"')
    expect("server/a.cc", '"../common/log.h"', "from the root")
    expect("tests/a.cc", '"server/a.h"')


if __name__ == "__main__":
    repository.main(check, self_test)
