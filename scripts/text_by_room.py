"""Prints the machine code of the runtime library by room, in KiB: scripts/text_by_room.py [BUILD [BUILD_BEFORE]]"""
import collections
import json
import pathlib
import re
import subprocess
import sys


def text_by_room(build):
    rooms = collections.Counter()
    for unit in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        found = re.search(r" -o (core/(?:\w+/)?CMakeFiles/gannet_(?:core|base|log)\.dir/\S+)", unit["command"])
        if found:
            size = subprocess.run(["size", pathlib.Path(build, found.group(1))], capture_output=True, text=True, check=True).stdout
            room = pathlib.Path(unit["file"]).parent.name
            rooms[room] += int(size.splitlines()[1].split()[0])
    return rooms


builds = [text_by_room(build) for build in sys.argv[1:] or ["build"]]
for room in sorted(set().union(*builds)):
    print(f"{room:12}" + "".join(f"{rooms[room] / 1024:10.0f}" for rooms in builds))
print(f"{'all':12}" + "".join(f"{sum(rooms.values()) / 1024:10.0f}" for rooms in builds))
