"""Reads an event file with TensorBoard's own package and compares it with the CSV files of the same run.

    pip install tensorboard
    python3 tests/observe/check_with_tensorboard.py logs/run1 csv/run1

Every number of the CSV files must be in the event file, at the same x and equal as a 32-bit float, and no other.
"""
import csv
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def as_float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def same(a, b):
    return a == b or (a != a and b != b)


events, tables = map(pathlib.Path, sys.argv[1:3])
read = EventAccumulator(str(events), size_guidance={"scalars": 0})
read.Reload()
by_file = {tag.replace("/", "_").replace(" ", "_"): tag for tag in read.Tags()["scalars"]}
wrong, compared = [], 0
names = {path.stem for path in tables.glob("*.csv")}
wrong += [f"{name}: only in the event file" for name in sorted(set(by_file) - names)]
for name in sorted(names):
    with open(tables / f"{name}.csv", newline="") as file:
        rows = list(csv.reader(file))
    if name not in by_file:
        wrong.append(f"{name}: not in the event file")
        continue
    drawn = [(event.step, event.value) for event in read.Scalars(by_file[name])]
    written = [(int(x), as_float32(float(y))) for x, y in rows[1:]]
    if rows[0] != ["step", by_file[name].split("/")[-1]]:
        wrong.append(f"{name}: the head is {rows[0]}")
    if len(drawn) != len(written) or not all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(drawn, written)):
        wrong.append(f"{name}: {drawn[:3]} ... in the event file, {written[:3]} ... in the table")
    compared += len(written)
print("\n".join(wrong) if wrong else f"{compared} values of {len(names)} tags are the same")
sys.exit(1 if wrong or compared == 0 else 0)
