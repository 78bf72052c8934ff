"""Checks that no function of core/, generation/ and nn/ is longer than 60 lines, and no source longer than 400.

    scripts/check_lengths.py        prints each that is, with its length, and fails
"""
import pathlib
import re
import subprocess
import sys

FUNCTION, FILE = 60, 400
root = pathlib.Path(__file__).resolve().parent.parent
# Tables, and a contract that is read as one; trainer.h (a template) and double.cpp (a list of functions) are a few lines above.
long_functions = {"core/profiler/elements.cpp: add_element_rules"}
long_files = {"sdk/include/gannet/abi.h", "trainer/include/gannet/trainer.h", "tests/comm/nccl_double/double.cpp",
              "tests/guest/mutations.py"}


def functions(lines):
    """The name, first and last line of each function at namespace scope: the sources are formatted, so that its last line is a
    brace without indentation, and its first one follows a line without code."""
    begin = None
    for number, line in enumerate(lines, 1):
        if begin is None and re.match(r"[A-Za-z_]", line) and not re.match(r"(namespace|class|struct|enum|union|using|extern|template)\b", line):
            begin = number
        if line == "}" and begin is not None:
            name = re.search(r"([~\w]+)\(", " ".join(lines[begin - 1:begin + 2]))
            yield (name.group(1) if name else "?"), begin, number
            begin = None
        elif begin is not None and (line.endswith("{}") or (not line.startswith(" ") and line.endswith((";", "}")))):
            begin = None  # a declaration, or a function of a line


wrong = []
sources = subprocess.run(["git", "-C", root, "ls-files", "*.cpp", "*.h", "*.hpp", "*.cuh", "*.cu", "*.py"], capture_output=True, text=True,
                         check=True).stdout.split()
for path in sources:
    if not (root / path).exists():
        continue
    lines = (root / path).read_text().splitlines()
    if len(lines) > FILE and path not in long_files:
        wrong.append(f"{path}: {len(lines)} lines, above {FILE}: cut it by its ideas")
    if path.startswith(("core/", "generation/", "nn/")) and path.endswith(".cpp"):
        wrong += [f"{path}:{begin}: {name}() has {end - begin + 1} lines, above {FUNCTION}: cut it along its joints"
                  for name, begin, end in functions(lines) if end - begin + 1 > FUNCTION and f"{path}: {name}" not in long_functions]
print("\n".join(wrong) if wrong else f"lengths: no function above {FUNCTION} lines, no file above {FILE}")
sys.exit(bool(wrong))
