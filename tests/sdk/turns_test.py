"""Each struct of gannet/abi.h that begins with its size, one field longer while the others stay: what a later minor does to the
plugins of today, and to the hosts.

    test_hosts      a host compiled against such a header uses every plugin of today as today's host does
    test_plugins    today's host uses a plugin compiled against such a header as it uses today's

A header for each struct takes a compilation of the host and of plugins each. By default two headers share them out, so that each struct is longer
in one beside neighbours that are not. GANNET_TEST_FULL=1 takes the structs one by one, which says whose fault it is.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import abi_header  # noqa: E402
import longer  # noqa: E402

BUILD = json.loads(pathlib.Path(sys.argv.pop()).read_text())  # turns.json, written by CMake
SOURCE = pathlib.Path(BUILD["source"])
HERE = SOURCE / "tests/sdk"
HEADER = (SOURCE / "sdk/include/gannet/abi.h").read_text()
SIZED = [each.name for each in abi_header.structs(HEADER) if each.is_sized]
FULL = os.environ.get("GANNET_TEST_FULL") == "1"
TURNS = [[name] for name in SIZED] if FULL else [SIZED[0::2], SIZED[1::2]]

# What turn_host.cpp does not include: it depends on no struct of the header.
SHARED = ["base/parallel", "base/value", "plugin/elf_file", "plugin/exposure", "plugin/sealed_copy", "plugin/trust", "params/layout", "kit/optimizer/cut", "kit/optimizer/problem",
          "kit/memory", "kit/place", "kit/vendor"]
# A plugin of the kind whose table and arguments a struct belongs to; of the others, an optimizer and a schedule.
OF_KIND = {
    "accelerators/cpu/*.cpp": ("gannet_accelerator_", "gannet_device_info"),
    "plugins/comm/local/*.cpp": ("gannet_comm_", "gannet_collective_", "gannet_rendezvous", "gannet_store"),
    "plugins/offload/cpu/*.cpp": ("gannet_offload_",),
}


def run(command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise AssertionError(f"{' '.join(str(word) for word in command)}\n{done.stdout[-3000:]}")
    return done.stdout


def at_once(function, things):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, things))


class Turns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-turns-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        includes = [SOURCE / "tools", SOURCE / "core", SOURCE / "core/include", HERE, *BUILD["includes"]]
        cls.options = ["-std=c++20", "-O0", "-w", "-fPIC", "-DBOOST_DLL_USE_STD_FS", "-DXXH_INLINE_ALL", "-DGANNET_STD_THREADS",
                       "-DJSON_DIAGNOSTIC_POSITIONS=1", '-DGANNET_INSTALLED_PLUGINS=""', '-DGANNET_FINGERPRINT=""',
                       *(f"-I{folder}" for folder in includes)]
        objects = [pathlib.Path(each) for each in BUILD["objects"]]
        cls.shared = [next(each for each in objects if str(each).endswith(name.replace("kit/", "/") + ".cpp.o")) for name in SHARED]
        cls.shared += [each for each in objects if "gannet_base.dir" in str(each) or "gannet_log.dir" in str(each)]
        cls.libraries = cls.folder / "libraries.h"
        shutil.copy(HERE / "turn_host_libraries.h", cls.libraries)
        run([BUILD["cxx"], *cls.options, "-x", "c++-header", cls.libraries, "-o", f"{cls.libraries}.gch"])
        cls.today = cls.host_of([], "today")
        kept = sorted((HERE / "kept").glob("2.*/*.so")) if BUILD["machine"] == "x86_64" else []
        own = [each for each in sorted(pathlib.Path(BUILD["plugins"]).glob("*.so")) if not cls.is_for_another_host(each)]
        shelf = [row.split("|")[1] for row in pathlib.Path(BUILD["shelf"], "rows.txt").read_text().splitlines()]
        cls.plugins = [*own, *(each for each in shelf if each), f"{BUILD['shelf']}/ramp.so", *kept]
        cls.expected = run([cls.today, *cls.plugins])

    @staticmethod
    def is_for_another_host(plugin):  # pinned, or for a device: it needs LibTorch, or a driver; or it takes no fp32, which the probe has
        return any(name in plugin.name for name in ("gloo", "cuda", "rocm", "checked", "adamw_bf16"))

    @classmethod
    def header_of(cls, names, name):
        folder = cls.folder / name / "include/gannet"
        folder.mkdir(parents=True)
        (folder / "abi.h").write_text(longer.longer(HEADER, names) if names else HEADER)
        return folder.parent

    @classmethod
    def host_of(cls, names, name):
        include = cls.header_of(names, name)
        host = cls.folder / name / "host"
        run([BUILD["cxx"], f"-I{include}", *cls.options, f"-I{SOURCE}/sdk/include", "-include", cls.libraries, HERE / "turn_host.cpp",
             *cls.shared, "-o", host, "-pthread", "-ldl", "-lmd"])
        return host

    def test_the_shared_sources_name_no_struct(self):
        for name in SHARED:
            folder = SOURCE / ("tools" if name.startswith("kit/") else "core")
            text = (folder / f"{name}.cpp").read_text()
            self.assertEqual([each for each in SIZED if each in text], [], name)

    def test_today_s_host_uses_them(self):
        lines = self.expected.splitlines()
        self.assertGreaterEqual(len(lines), len(self.plugins))
        self.assertEqual([line for line in lines if "FAILED" in line], [])
        self.assertGreater(sum("parameters" in line for line in lines), 9)
        self.assertGreater(sum("rates" in line for line in lines), 5)

    def test_hosts(self):
        found = at_once(lambda turn: run([self.host_of(turn[1], f"host{turn[0]}"), *self.plugins]), enumerate(TURNS))
        for names, lines in zip(TURNS, found):
            with self.subTest(longer=names):
                self.assertEqual(lines, self.expected, "GANNET_TEST_FULL=1 takes the structs one by one")

    def test_plugins(self):
        def of_kind(names):
            return [sources for sources, beginnings in OF_KIND.items() if any(name.startswith(beginnings) for name in names)]

        def built(turn):
            number, names = turn
            name = f"plugins{number}"
            include = self.header_of(names, name)
            files = []
            for source in ("steady", "ramp"):
                files.append(self.folder / name / f"{source}.so")
                run([BUILD["cc"], "-std=c99", "-pedantic", "-O1", "-ffp-contract=off", "-shared", "-fPIC", f"-I{include}", "-o", files[-1],
                     HERE / f"shelf/{source}.c", BUILD["map"], "-lm"])
            for sources in of_kind(names):
                files.append(self.folder / name / (sources.split("/")[1] + ".so"))
                run([BUILD["cxx"], "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{include}", f"-I{SOURCE}/sdk/include",
                     *sorted(SOURCE.glob(sources)), "-o", files[-1], BUILD["map"]])
            return run([self.today, *files])

        lines_of_both = [line for line in self.expected.splitlines() if line.startswith(("gcc_c99.so", "ramp.so"))]
        expected = list(dict.fromkeys(line.split(" ", 1)[1] for line in lines_of_both))  # the kept ramp.so says the same
        for names, lines in zip(TURNS, at_once(built, enumerate(TURNS))):
            with self.subTest(longer=names):
                found = [line.split(" ", 1)[1] for line in lines.splitlines()]
                self.assertEqual(found[:2], expected)
                self.assertEqual([line.endswith(": opened") for line in found[2:]], [True] * len(of_kind(names)), found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
