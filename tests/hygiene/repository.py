"""What the hygiene checks share: the files of the tree and how to report."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_SUFFIXES = {".h", ".cc", ".cu"}


def files(root):
    """Paths relative to `root` of everything that belongs to the project."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
         "--exclude-standard"],
        capture_output=True, check=False)
    if listed.returncode == 0 and (root / ".git").exists():
        names = listed.stdout.decode().split("\0")
        paths = {pathlib.PurePosixPath(name) for name in names if name}
    else:  # An unpacked archive.
        paths = {pathlib.PurePosixPath(path.relative_to(root).as_posix())
                 for path in root.rglob("*") if path.is_file()}
        paths = {path for path in paths
                 if not path.parts[0].startswith(("build", ".git"))
                 and "__pycache__" not in path.parts}
    return sorted(path for path in paths if (root / path).is_file())


def is_test(path):
    """True for files that only tests are built from."""
    return (path.stem.endswith("_test") or path.parts[0] == "tests"
            or "testing" in path.parts[:-1])


def read(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


def caught(check, samples):
    """Runs `check` over a tree made of `samples` {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in samples.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check(root)


def expect(check, samples, *needles):
    """Fails unless `check` reports one line per needle, and no other."""
    faults = caught(check, samples)
    fits = len(faults) == len(needles) and all(
        any(needle in fault for fault in faults) for needle in needles)
    if not fits:
        sys.exit(f"self-test: for {samples}\n  expected {list(needles)}\n"
                 f"  got {faults}")


def main(check, self_test):
    """Entry point of a check: 0 when clean, 1 with one line per fault."""
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        print("self-test passed")
        return
    if sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} [--self-test]")
    faults = check(ROOT)
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"{len(faults)} faults")
    print("clean")
