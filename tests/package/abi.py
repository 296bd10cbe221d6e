#!/usr/bin/env python3
# Usage: tests/package/abi.py --library LIBSTEMMA.SO [--tiers | --mover] [--update]
#
# Writes down the C ABI as text: every prototype, type, constant and initialiser of stemma.h and
# what it includes, the size of every struct with the place of each field (asked of the C compiler),
# and what the library exports. Compares it with tests/package/abi.txt, or with --update replaces
# that file. --tiers: the same of stemma_tiers.h, stemma_store.h, libstemma_tiers.so and
# abi_tiers.txt. --mover: of stemma_mover.h, libstemma_mover.so and abi_mover.txt.
import argparse
import difflib
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PARTS = {"stemma": (("stemma.h", "stemma_sequence.h", "stemma_whole_prompt.h"), "abi.txt"),
         "tiers": (("stemma_tiers.h", "stemma_store.h"), "abi_tiers.txt"),
         "mover": (("stemma_mover.h",), "abi_mover.txt")}


def one_line(text):
    text = re.sub(r"\s+", " ", text.replace("\\\n", " ")).strip()
    return re.sub(r"\s*([{}(),;*])\s*", r"\1", text).replace(",", ", ").replace("*", "* ")


def fields(body):
    """Each field of a struct: its name and its declaration."""
    for declaration in body.split(";"):
        declaration = one_line(declaration)
        if not declaration:
            continue
        pointer = re.search(r"\(\* ?(\w+)\)", declaration)
        name = pointer or re.search(r"(\w+)(?:\[\w+\])?$", declaration)
        yield name.group(1), declaration


def describe(library, headers):
    text = "\n".join((ROOT / "include" / "stemma" / name).read_text() for name in headers)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.S)
    enums = re.findall(r"enum (\w+) \{(.*?)\};", text, re.S)
    functions = sorted(one_line(f) for f in re.findall(r"STEMMA_API ([^;#]+);", text))
    scalars = sorted(one_line(t) for t in re.findall(r"(typedef (?!struct \w+ \{)[^;{]+);", text))
    defines = re.findall(r"#define (STEMMA_\w+) ((?:[^\n\\]|\\\n)+)", text)
    constants = [n for n, v in defines if not n.endswith("_INIT") and not v.startswith("__")]
    initial = sorted(f"{n} {one_line(v)}" for n, v in defines if n.endswith("_INIT"))

    includes = [f"#include <stemma/{name}>" for name in headers]
    program = ["#include <stdio.h>", *includes, "int main(void) {"]
    show = lambda form, *args: program.append(
        f'  printf("{form}\\n", {", ".join(f"(unsigned long long)({a})" for a in args)});')
    for name, body in structs:
        show(f"struct {name}: %llu bytes", f"sizeof({name})")
        for field, declaration in fields(body):
            show(f"  {declaration} at %llu, %llu bytes", f"offsetof({name}, {field})",
                 f"sizeof((({name}*)0)->{field})")
    for name, body in enums:
        program.append(f'  puts("enum {name}");')
        for item in re.findall(r"(STEMMA_\w+) =", body):
            show(f"  {item} = %llu", item)
    program.append('  puts("constants");')
    for name in constants:
        if name != "STEMMA_API" and not name.endswith("_H"):
            show(f"  {name} = %llu", name)
    program += ["  return 0;", "}", ""]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "abi.c"), pathlib.Path(folder, "abi")
        source.write_text("\n".join(program))
        subprocess.run(["cc", "-std=c99", f"-I{ROOT / 'include'}", source, "-o", binary], check=True)
        measured = subprocess.run([binary], check=True, capture_output=True, text=True).stdout

    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                            capture_output=True, text=True).stdout
    exported = sorted(line.split()[-1] for line in listed.splitlines())
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    soname = re.search(r"SONAME.*\[(.*)\]", dynamic.stdout).group(1)

    declared = {re.search(r"(stemma_\w+)\(", f).group(1) for f in functions}
    found = {e.split("@")[0] for e in exported} - {"STEMMA_0", "STEMMA_TIERS_0", "STEMMA_MOVER_0"}
    problems = [f"{n} is declared and not exported" for n in sorted(declared - found)]
    problems += [f"{n} is exported and not declared" for n in sorted(found - declared)]
    sections = [("functions", functions), ("types", scalars), ("initialisers", initial),
                ("exported by " + soname, exported)]
    parts = ["\n".join([title, *("  " + line for line in lines)]) for title, lines in sections]
    return "\n\n".join([*parts, measured]), problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    for part in ("tiers", "mover"):
        parser.add_argument(f"--{part}", dest="part", action="store_const", const=part,
                            default="stemma")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print("abi: the record is of x86-64; nothing to compare here")
        return 0
    headers, name = PARTS[options.part]
    record = ROOT / "tests" / "package" / name
    now, problems = describe(options.library, headers)
    for problem in problems:
        print(f"abi: {problem}")
    if options.update:
        record.write_text(now)
        print(f"abi: {record.relative_to(ROOT)} has {len(now.splitlines())} lines")
        return 1 if problems else 0
    recorded = record.read_text() if record.is_file() else ""
    if now == recorded:
        print(f"abi: {len(now.splitlines())} lines, as recorded")
        return 1 if problems else 0
    sys.stdout.writelines(difflib.unified_diff(recorded.splitlines(True), now.splitlines(True),
                                               "recorded", "now", n=1))
    print("abi: the C ABI has changed. If you meant it: is it an addition at the end (a new function,"
          " a new field at a struct's end together with its old size in Sized<>)? Anything else breaks"
          " programs that are already compiled and needs another SOVERSION. Then `make abi-update`"
          " records it.")
    return 1


sys.exit(main())
