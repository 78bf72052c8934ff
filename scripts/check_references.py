#!/usr/bin/env python3
"""Checks that the files which comments and docs name are there, and that each plugin has a row in its room's README.

    scripts/check_references.py            exit code 1, with a line for each name that leads nowhere

A name with a folder is looked up from the root, from the file's own folder, and from where the sources' includes begin. A name
without one (`step.cpp`) is any file of the tree. Only names with an ending that sources and pages of ours have are looked at.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDES = ["", "core", "core/include", "tools", "sdk/include", "generation/include", "models/include", "nn/include", "exported", "exported/include",
            "trainer/include", "trial/include", "tests", "examples", "accelerators", "optimizers", "plugins", "common", "docs"]
NAME = re.compile(r"(?<![\w./<>*${}%-])((?:[\w.-]+/)*[\w-]+\.(?:h|hpp|cpp|cu|cuh|py|sh|md|cmake))(?![\w/*])")
# Of LibTorch, of the system, of other projects.
FOREIGN = ("caffe2::", "ATen/", "c10/", "torch/", "linux/", "tensorflow/", "tests/unit/runtime/", "code/__torch__", "sysexits.h", "version.py",
           "run_translation.py", "launch.py", "zero_to_fp32.py", "make_model.py", "gpt2_peer.py")
# Files of a user's own, as examples name them, and places to be filled in.
EXAMPLES = {"train.cpp", "main.cpp", "my.cpp", "model.cpp", "model.py", "train.py", "plugin.cpp", "train_gpt.py", "my_module.py", "run.py", "net.h",
            "net.cpp", "run.sh", "mine.cpp", "mine.cu", "mine/README.md", "mine/mine.cpp", "sign.cpp", "kept/README.md"}
PLACEHOLDER = re.compile(r"NAME|SUBJECT|KIND")
# Its recipes name files that are to be written (tests/docs/how_to_add_test.py compiles them).
UNWRITTEN = {"docs/how_to_add.md"}
COMMENT = {".h": "//", ".hpp": "//", ".cpp": "//", ".cu": "//", ".cuh": "//", ".py": "#", ".sh": "#", ".cmake": "#"}


def texts(path):
    """(line, text) of the comments of a source, or of all lines of a page."""
    mark = COMMENT.get(path.suffix, "#" if path.name == "CMakeLists.txt" else None)
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if path.suffix == ".md":
            yield number, line
        elif mark and mark in line and "#include" not in line:
            yield number, line.split(mark, 1)[1]


def words_of(files):
    """Every word of the sources: a page may name a function or class of them."""
    words = set()
    for name in files:
        if not name.endswith(".md"):
            words.update(re.findall(r"\w+", (ROOT / name).read_text(errors="replace")))
    return words


def main():
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\n")
    files = {name for name in listed if name and (ROOT / name).is_file()}
    basenames = {pathlib.PurePosixPath(name).name for name in files}
    words = words_of(files)
    wrong = []
    for name in sorted(files):
        path = ROOT / name
        if path.suffix not in (".md", *COMMENT) and path.name != "CMakeLists.txt":
            continue
        if name in UNWRITTEN:
            continue
        for number, text in texts(path):
            if "://" in text:
                text = re.sub(r"\S+://\S+", "", text)
            if path.suffix == ".md":
                for call in re.findall(r"`((?:\w+::)*\w+\(\)|(?:\w+::)+\w+)`", text):
                    if not call.startswith(FOREIGN) and re.split(r"::|\(", call.rstrip("()"))[-1] not in words:
                        wrong.append(f"{name}:{number}: `{call}` is in no source")
            for found in NAME.findall(text):
                base = pathlib.PurePosixPath(found).name
                if found.startswith(FOREIGN) or found in EXAMPLES or base in EXAMPLES or PLACEHOLDER.search(found):
                    continue
                if found.startswith("transformer.h"):  # a parameter's name
                    continue
                if "/" not in found:
                    there = base in basenames
                else:
                    places = [pathlib.PurePosixPath(folder, found) for folder in INCLUDES]
                    there = any(str(place) in files for place in places) or (path.parent / found).exists()
                if not there:
                    wrong.append(f"{name}:{number}: {found} is named and is not there")
    for room, kinds in (("optimizers", ""), ("schedulers", ""), ("accelerators", ""), ("plugins", "comm/"), ("plugins", "offload/")):
        rows = (ROOT / room / "README.md").read_text()
        for listing in sorted((ROOT / room / kinds).glob("*/CMakeLists.txt")):
            if f"| `{kinds}{listing.parent.name}/` |" not in rows:
                wrong.append(f"{room}/README.md: no row for `{kinds}{listing.parent.name}/`")
    print("\n".join(wrong) if wrong else "references: every file that is named is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
