#!/usr/bin/env python3
"""Checks what no file may hold: loose ends, paths of a machine, odd blanks."""

import re

import repository

# Written apart, so that this file passes its own check.
LOOSE_ENDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE_PATHS = re.compile(
    r"(?<![\w./-])(/work|/ro" r"ot|/ho" r"me)/\w|\.\./sha" r"red\b")
CONFLICT = re.compile(r"^(<{7}|>{7}|={7})( |$)")

# Copied or generated; only machine paths are looked for.
DATA = re.compile(r"tests/data/.*|LICENSE|.*\.svg")
BINARY = {".png", ".gz", ".ico"}


def line_faults(line):
    if LOOSE_ENDS.search(line):
        yield "loose end: finish it, or say what holds today"
    if CONFLICT.match(line):
        yield "conflict marker"
    if "\t" in line:
        yield "tab"
    if "\r" in line:
        yield "carriage return"
    if line != line.rstrip(" "):
        yield "blank at the end of the line"


def check(root):
    faults = []
    for path in repository.files(root):
        if path.suffix in BINARY:
            continue
        text = (root / path).read_bytes().decode("utf-8", errors="replace")
        is_data = re.fullmatch(DATA, str(path)) is not None
        for number, line in enumerate(text.split("\n"), 1):
            reasons = [] if is_data else list(line_faults(line))
            if MACHINE_PATHS.search(line):
                reasons.append("path of one machine")
            faults += [f"{path}:{number}: {reason}" for reason in reasons]
        if text and not text.endswith("\n") and not is_data:
            faults.append(f"{path}: no newline at the end")
    return faults


def self_test():
    def expect(text, *needles, path="a/b.cc"):
        repository.expect(check, {path: text}, *needles)

    expect("int x;\n")
    expect("")
    expect("// TO" "DO: later\n", "b.cc:1: loose end")
    expect("x\n// FIX" "ME\n", "b.cc:2: loose end")
    expect("todos\n")
    expect('x = "/ro' 'ot/data";\n', "path of one machine")
    expect('x = "/ho' 'me/someone";\n', "path of one machine")
    expect("see ../sha" "red/DESIGN.md\n", "path of one machine")
    expect("a/root/b and http://x/home/\n")
    expect("<<<<" "<<< ours\n", "conflict marker")
    expect("\tx\n", "tab")
    expect("x\r\n", "carriage return")
    expect("x \n", "blank at the end")
    expect("x", "no newline")
    expect("1, 2 ", path="tests/data/golden/x.json")
    expect('{"p": "/wo' 'rk/x"}', "path of one machine",
           path="tests/data/x.json")


if __name__ == "__main__":
    repository.main(check, self_test)
