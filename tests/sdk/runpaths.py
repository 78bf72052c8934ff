"""Programs and libraries below the folders that would load a library from the current folder: runpaths.py FOLDER... Exit code 1
where there is one. An empty entry of a RUNPATH means the current folder, and so does one that is no absolute path."""
import pathlib
import re
import subprocess
import sys

seen = 0
wrong = []
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        dynamic = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True).stdout
        seen += 1
        for entries in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
            wrong += [f"{path}: '{entries}'" for entry in entries.split(":") if not entry.startswith(("/", "$ORIGIN"))][:1]
print("\n".join(wrong))
if wrong or seen == 0:
    sys.exit(f"{len(wrong)} of {seen} files load from the current folder" if seen else "no program and no library there")
