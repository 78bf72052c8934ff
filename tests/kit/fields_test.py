"""For each field of the ABI's structs and each function and argument of its tables: plugins that ignore it, use its first value for
ever, read it wrongly, or write to it. fields.csv has the check of the kit that finds each, or why there is none.

A cell of fields.csv is one of
    complete:gradient-scale   the sound plugin `complete`, mutated so (bad/mutated.cpp): this check fails
    =updatescalesquared       a plugin planted by hand: its check is in defects.py
    -fixed                    no such defect: the reason is in REASONS

    fields_test.py --find PATTERN PLUGIN,... [CHECK ...]     for a new row: the checks that each mutation fails
"""

import concurrent.futures
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "bad"))

import abi_fields  # noqa: E402
from defects import CHECK_OF  # noqa: E402

KIT = pathlib.Path(os.environ["GANNET"]).parent.parent / "libexec/gannet/gannet-kit"
MUTATED = pathlib.Path(os.environ["KIT_BAD"]) / "gannet_bad_mutated.so"
TABLE = HERE / "fields.csv"
HEADER = HERE.parents[1] / "sdk/include/gannet/abi.h"
WAYS = ("ignored", "once", "wrong", "written")
REASONS = {
    "fixed": "the host gives an object the same value all its life",
    "optional": "a plugin may do without it",
    "own-rule": "what the plugin does then is another rule, which the contract allows",
    "own-count": "the plugin knows the number from its own description",
    "device": "it is null, or one value, for the host's memory, which is all that the kit has",
    "output": "the plugin fills it in",
    "by-value": "what a plugin writes to its own copy is seen by nobody",
    "reserved": "it has no meaning",
    "null": "no host gives one",
    "same-place": "the kit's own variable is at one address in all calls",
    "one-call": "it is called once for each object",
    "void": "it returns nothing",
    "as-written": "only the host sets it: see the column `written`",
}
# A struct of the other kinds' calls, which is copied where nothing else is changed.
OF_KIND = {"flat": "gannet_schedule_query.step", "climbing": "gannet_schedule_query.step", "soundcomm": "gannet_collective_args.op",
           "soundtier": "gannet_offload_api.read(offset)", "soundmemory": "gannet_collective_args.op"}
LIMIT = ("--timeout", "8")  # seconds for a check of a mutation, which may hang
REFUSED = "refused"  # in place of a check: the file is not opened, with an error message


def verdicts(plugin, field, way, *options):
    """{check: verdict} of the mutated plugin, or {"refused": message}."""
    environment = dict(os.environ, GANNET_TEST_MUTATION=f"{plugin} {field} {way}")
    done = subprocess.run([KIT, "check", MUTATED, "--plugin", plugin, "--json", *options], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    if done.returncode not in (0, 1):
        return {REFUSED: done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.stdout[-300:]}
    return {check["check"]: check["verdict"] for each in json.loads(done.stdout)["plugins"] for check in each["checks"]}


def read_table():
    with open(TABLE, newline="") as file:
        return {row["field"]: row for row in csv.DictReader(file)}


class Fields(unittest.TestCase):
    def test_the_table_has_every_field_function_and_argument(self):
        self.assertEqual(list(read_table()), list(abi_fields.rows(HEADER.read_text())))

    def test_every_cell_is_a_defect_or_a_reason(self):
        used = set()
        for field, row in read_table().items():
            for way in WAYS:
                with self.subTest(field, way=way):
                    cell = row[way]
                    if cell.startswith("-"):
                        self.assertIn(cell[1:], REASONS)
                        used.add(cell[1:])
                    elif cell.startswith("="):
                        self.assertTrue(CHECK_OF.get(cell[1:]), f"{cell} is not among the planted defects")
                    else:
                        self.assertRegex(cell, r"^[a-z]+:[a-z-]+$")
        self.assertEqual(used, set(REASONS))

    def test_each_mutation_is_found_by_its_check(self):
        cells = [(field, way, *row[way].split(":")) for field, row in read_table().items() for way in WAYS if ":" in row[way]]
        self.assertGreater(len(cells), 500)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda cell: verdicts(cell[2], cell[0], cell[1], *LIMIT, *([] if cell[3] == REFUSED else ["--check", cell[3]])),
                                  cells))
        for (field, way, plugin, check), verdict in zip(cells, found):
            with self.subTest(field, way=way, plugin=plugin):
                if check == REFUSED:
                    self.assertIn(REFUSED, verdict)
                else:
                    self.assertEqual([name for name, one in verdict.items() if one == "fail"], [check])

    def test_the_same_plugins_pass_without_a_mutation(self):
        plugins = sorted({row[way].split(":")[0] for row in read_table().values() for way in WAYS if ":" in row[way]})
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda plugin: verdicts(plugin, OF_KIND.get(plugin, "gannet_update_args.struct_size"), "copied"), plugins))
        for plugin, verdict in zip(plugins, found):
            with self.subTest(plugin):
                self.assertEqual([check for check, one in verdict.items() if one == "fail"], [])
                self.assertGreater(len(verdict), 10)


def find(pattern, plugins, *checks):
    """Prints, for each field that matches and each way, the checks that fail: a new row begins with it."""
    options = [*LIMIT, *(word for check in checks for word in ("--check", check))]
    for field in abi_fields.rows(HEADER.read_text()):
        for way in WAYS if re.search(pattern, field) else ():
            for plugin in plugins.split(","):
                failed = [check for check, verdict in verdicts(plugin, field, way, *options).items() if verdict == "fail" or check == REFUSED]
                print(field, way, plugin, *failed, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--find"]:
        find(*sys.argv[2:])
    else:
        unittest.main()
