"""The programs of the first pages, as printed there: README.md's and docs/start.md's, each built against an installed Gannet
and trained with the config printed beside it.

    python3 first_pages.py CMAKE CXX SOURCE_FOLDER PREFIX WORK_FOLDER
"""
import pathlib
import re
import subprocess
import sys

CMAKE, CXX = sys.argv[1:3]
SOURCE, PREFIX, WORK = map(pathlib.Path, sys.argv[3:6])


def fail(message):
    sys.exit(f"FAILED: {message}")


def run(*command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=280)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def only(pattern, text, what):
    found = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    if len(found) != 1:
        fail(f"{what}: {len(found)} blocks of code, expected one")
    return found[0]


def write_start(folder):
    page = (SOURCE / "docs/start.md").read_text()
    for name in ("CMakeLists.txt", "ds_config.json", "main.cpp"):
        block = only(rf"^`{re.escape(name)}`\n\n```\w+\n(.*?)^```$", page, f"docs/start.md, {name}")
        (folder / name).write_text(block)


def write_readme(folder, cmake_lists):
    page = (SOURCE / "README.md").read_text()
    (folder / "main.cpp").write_text(only(r"^```cpp\n(.*?)^```$", page, "README.md, the program"))
    (folder / "ds_config.json").write_text(only(r"^```jsonc\n(.*?)^```$", page, "README.md, the config"))
    (folder / "CMakeLists.txt").write_text(cmake_lists.replace("start", "readme"))


def main():
    start, readme = WORK / "start", WORK / "readme"
    start.mkdir(parents=True)
    readme.mkdir()
    write_start(start)
    write_readme(readme, (start / "CMakeLists.txt").read_text())
    lines = sum(len((start / name).read_text().splitlines()) for name in ("CMakeLists.txt", "ds_config.json", "main.cpp"))
    if lines > 60:
        fail(f"docs/start.md: {lines} lines of code")

    (WORK / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(pages CXX)\nadd_subdirectory(start)\nadd_subdirectory(readme)\n")
    run(CMAKE, "-S", WORK, "-B", WORK / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCMAKE_CXX_COMPILER={CXX}", folder=WORK)
    run(CMAKE, "--build", WORK / "build", "--parallel", 2, folder=WORK)

    gannet, program = PREFIX / "bin/gannet", WORK / "build/start/start"
    for config in (start, readme):
        if ": ok" not in run(gannet, "config", "check", config / "ds_config.json", folder=WORK):
            fail(f"gannet config check does not take {config}'s config")

    losses = [float(line) for line in re.findall(r"^[0-9.e-]+$", run(program, folder=start), re.MULTILINE)]
    if len(losses) != 5 or not losses[-1] < 0.1 < 1 < losses[0]:
        fail(f"docs/start.md says that the loss falls from above 1 to below 0.1: {losses}")
    again = run(program, folder=start)
    if "loaded run1/global_step512" not in again:
        fail(f"the second run does not resume: {again}")
    run(gannet, "run", "--num_procs", 2, program, folder=start)
    run(gannet, "report", "metrics.jsonl", "-o", "report.html", folder=start)

    if " steps so far, saved in run1" not in run(WORK / "build/readme/readme", folder=readme):
        fail("README's program does not print its line")
    if "loaded run1/" not in run(gannet, "run", "--num_procs", 2, WORK / "build/readme/readme", folder=readme):
        fail("README's program does not resume")
    refused = subprocess.run([WORK / "build/readme/readme"], cwd=WORK, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280)
    if refused.returncode != 2 or "ds_config.json" not in refused.stdout:
        fail(f"README's program without its config: exit code {refused.returncode}, expected 2\n{refused.stdout}")
    if not (readme / "metrics.jsonl").is_file() or not (readme / "run1/latest").is_file():
        fail("README's program leaves no metrics and no checkpoint")
    print(f"the first pages' programs train; docs/start.md has {lines} lines of code")


main()
