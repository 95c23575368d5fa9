#!/usr/bin/env python3
"""Checks that files and functions stay small enough to be read.

A file that must be longer says why in its file comment, on a line that starts
with "Size:".
"""

import re

import repository

MAX_FUNCTION_LINES = 80
# The reason has to stand in the first lines of the file.
REASON_LINES = 40
REASON = re.compile(r'^\s*(//|#|"""|)\s*Size: \S', re.MULTILINE)


def limit(path):
    """Most lines a file may have; None when there is no limit."""
    if path.name == "CMakeLists.txt":
        return 120
    if path.suffix in repository.CODE_SUFFIXES and repository.is_test(path):
        return 600
    return {".h": 300, ".cc": 500, ".cu": 500, ".proto": 250,
            ".py": 350, ".sh": 250}.get(path.suffix)


def long_functions(lines):
    """(first line, length) of functions that are too long.

    Relies on the formatting: a body ends with a brace in the column in which
    its signature starts; 0 for functions, 2 for members inside a class.
    """
    for end, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip() != "}" or indent not in (0, 2):
            continue
        start = end - 1
        while start > 0 and not begins_block(lines[start], indent):
            start -= 1
        if not lines[start].lstrip().startswith("namespace"):
            if end - start + 1 > MAX_FUNCTION_LINES:
                yield start + 1, end - start + 1


def begins_block(line, indent):
    depth = len(line) - len(line.lstrip())
    return (depth <= indent and line.strip() != ""
            and not re.match(r"\s*(//|#|\}|public:|private:|protected:)", line))


def check(root):
    faults = []
    for path in repository.files(root):
        text = repository.read(root, path) if limit(path) else ""
        lines = text.splitlines()
        if REASON.search("\n".join(lines[:REASON_LINES])):
            continue
        if limit(path) and len(lines) > limit(path):
            faults.append(f"{path}: {len(lines)} lines, at most {limit(path)}")
        if path.suffix in repository.CODE_SUFFIXES:
            faults += [f"{path}:{first}: function of {length} lines, at most "
                       f"{MAX_FUNCTION_LINES}"
                       for first, length in long_functions(lines)]
    return faults


def self_test():
    def expect(path, text, *needles):
        repository.expect(check, {path: text}, *needles)

    expect("a/b.h", "x\n" * 300)
    expect("a/b.h", "x\n" * 301, "301 lines, at most 300")
    expect("a/b.h", "// Size: one table.\n" + "x\n" * 301)
    expect("a/b.h", "x\n" * 301 + "// Size: too late.\n", "at most 300")
    expect("a/b.cc", "x\n" * 501, "at most 500")
    expect("a/b_test.cc", "x\n" * 600)
    expect("tests/b.cc", "x\n" * 601, "at most 600")
    expect("a/CMakeLists.txt", "x\n" * 121, "at most 120")
    expect("a/b.proto", "x\n" * 251, "at most 250")
    expect("a/b.py", "x\n" * 351, "at most 350")
    expect("a/data.json", "x\n" * 9000)
    body = "  x();\n"
    expect("a/b.cc", "void F(\n    int a) {\n" + body * 77 + "}\n")
    expect("a/b.cc", "void F(\n    int a) {\n" + body * 78 + "}\n",
           "b.cc:1: function of 81 lines")
    expect("a/b.cc", "class A {\n  void F() {\n" + ("  " + body) * 80 +
           "  }\n};\n", "b.cc:2: function of 82 lines")
    expect("a/b.cc", "namespace a {\n" + "int x;\n" * 90 + "}\n")


if __name__ == "__main__":
    repository.main(check, self_test)
