#!/usr/bin/env python3
"""Compiles sources by themselves, as a build without unity and precompiled headers does: a file that relies on another one's
includes fails.

    scripts/check_alone.py BUILD                 six of the files that the newest commit changed, or all if there are fewer
    scripts/check_alone.py BUILD FILE...         these
"""
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = {"core": "gannet_core", "tools": "gannet_tools", "trainer": "gannet_trainer", "models": "gannet_models",
           "exported": "gannet_exported", "generation": "gannet_generation", "nn": "gannet_nn"}
# Without LibTorch's folder of includes, or in programs with flags of their own.
ELSEWHERE = re.compile(r"core/base/(log|format|error|text|first_bytes|machine_memory|call_record|parallel)\.cpp|_kernels\.cpp|"
                       r"core/plugin/(open|search)\.cpp|"
                       r"tools/(launch|kit|cli/(front|kit))")
PROGRAMS = {"tools/cli/": "gannet-tools", "tools/train/": "gannet-train"}


def changed():
    """At most six of the files that the newest commit changed, by its hash."""
    def git(*arguments):
        return subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=ROOT, capture_output=True, text=True).stdout
    names = git("diff", "--name-only", "--diff-filter=d", "HEAD~1", "HEAD").split()
    files = {name for name in names if name.endswith(".cpp") and name.split("/")[0] in FOLDERS and (ROOT / name).is_file()
             and not ELSEWHERE.search(name)}
    return sorted(files, key=lambda name: hashlib.sha256((git("rev-parse", "HEAD") + name).encode()).digest())[:6]


def flags_of(build, target):
    """How the build compiles the target's C++, without what is about one file or a precompiled header."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"/{target}.dir/" not in entry["command"] or not entry["file"].endswith((".cpp", ".cxx")):
            continue
        words, kept, skip = shlex.split(entry["command"]), [], False
        begin = next(i for i, word in enumerate(words) if re.search(r"(\+\+|clang\+\+)(-\d+)?$", word))
        for word in words[begin:]:
            if skip or word in ("-o", "-include", "-c", "-MF", "-MT"):
                skip = not skip
            elif word not in ("-MD", "-Winvalid-pch"):
                kept.append(word)
        return kept
    sys.exit(f"alone: {target} is not among the commands of {build}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    failed = 0
    for name in sys.argv[2:] or changed():
        program = next((PROGRAMS[folder] for folder in PROGRAMS if name.startswith(folder)), None)
        flags = flags_of(build, program or FOLDERS[name.split("/")[0]])
        done = subprocess.run([*flags, "-fsyntax-only", str(ROOT / name)], cwd=build, capture_output=True, text=True)
        print(f"{name}: {'compiles by itself' if done.returncode == 0 else done.stderr[:2000]}", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
