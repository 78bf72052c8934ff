"""docs/plugin_authors.md without CMake: its command line and its rule, word for word, as authors use them.

    python3 authors_page_test.py SOURCE KIT CMAKE CXX

By relative paths, from other folders, with spaces, with and without Highway, without optimisation; then what authors usually
write (author_habits.cpp, author_layer.cpp) and get wrong.
"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, KIT, CMAKE, CXX = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
HERE = SOURCE / "tests/sdk"
PAGE = (SOURCE / "docs/plugin_authors.md").read_text()
LINE = re.search(r"^    (g\+\+ .*?)\n\n", PAGE, re.S | re.M).group(1)
WITH_HIGHWAY = re.search(r"with Highway, add `([^`]*)`", PAGE).group(1)
RULE = re.search(r"```cpp\n(#include <gannet/sdk_elementwise.hpp>\n.*?)```", PAGE, re.S).group(1)
IS_GCC = "clang" not in subprocess.run([CXX, "--version"], text=True, capture_output=True).stdout
HAS_HIGHWAY = subprocess.run([CXX, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"], input="#include <hwy/highway.h>\n", text=True,
                             capture_output=True).returncode == 0
LOOPS = {"plain": "", **({"Highway": " " + WITH_HIGHWAY} if HAS_HIGHWAY else {})}


class Page(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gannet-page-"))
        self.addCleanup(shutil.rmtree, self.home)
        (self.home / "gannet-sdk/lib/cmake").mkdir(parents=True)
        (self.home / "gannet-sdk/include").symlink_to(SOURCE / "sdk/include")
        (self.home / "gannet-sdk/lib/cmake/gannet").symlink_to(SOURCE / "sdk/cmake")
        self.work = self.home / "my work"
        self.work.mkdir()

    def compile(self, source="mine.cpp", out="mine.so", more="", folder=None, without=""):
        """The page's command line with another file; returns the exit code and the compiler's errors."""
        line = LINE.replace("g++", CXX, 1).replace("mine.cpp", shlex.quote(str(source))).replace("gannet_optimizer_mine.so", str(out))
        for word in without.split(", ") if without else ():
            self.assertIn(word, line)
            line = line.replace(word, "")
        done = subprocess.run(["bash", "-c", line + more], cwd=folder or self.work, text=True, capture_output=True,
                              env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"})
        return done.returncode, done.stderr

    def built(self, *words, **options):
        code, text = self.compile(*words, **options)
        self.assertEqual(code, 0, text)

    def check(self, file, *options):
        done = subprocess.run([KIT, "plugins", "check", self.work / file, *options], text=True, capture_output=True)
        return done.returncode, done.stdout + done.stderr

    def passes(self, file, *options):
        code, text = self.check(file, *options)
        self.assertEqual(code, 0, text)

    def test_the_rule_of_the_page_is_built_by_its_line_from_any_folder(self):
        (self.work / "rules").mkdir()
        (self.work / "mine.cpp").write_text(RULE)
        (self.work / "rules/mine.cpp").write_text(RULE)
        for name, loops in LOOPS.items():
            with self.subTest(name):
                self.built(more=loops)
                self.passes("mine.so")
                self.built("rules/mine.cpp", out=f"below_{name}.so", more=loops)
                self.built("../mine.cpp", out=f"above_{name}.so", more=loops, folder=self.work / "rules")
                code, text = self.compile(more=loops, without="-iquote .")
                self.assertNotEqual(code, 0)
                self.assertIn("its path was given relative to the current folder: add -iquote .", text)

    def test_cmake_takes_a_rule_by_a_relative_path_from_a_subdirectory_and_names_a_missing_build_type(self):
        for folder in ("rules of mine", "project/below it"):
            (self.work / folder).mkdir(parents=True)
        (self.work / "rules of mine/one rule.cpp").write_text(RULE)
        (self.work / "project/CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.22)
project(many LANGUAGES CXX)
add_library(gannet_sdk INTERFACE)
add_library(gannet::sdk ALIAS gannet_sdk)
target_include_directories(gannet_sdk INTERFACE "{SOURCE}/sdk/include")
list(APPEND CMAKE_MODULE_PATH "{SOURCE}/cmake")
include("{SOURCE}/sdk/cmake/GannetPlugin.cmake")
add_subdirectory("below it")
""")
        (self.work / "project/below it/CMakeLists.txt").write_text(
            'gannet_add_plugin(mine KIND optimizer SOURCES "../../rules of mine/one rule.cpp" DEVICES cpu)\n')
        for options, says in (((), True), (("-DCMAKE_BUILD_TYPE=Debug", "-DGANNET_RULE_HIGHWAY=OFF"), False),
                              (("-DCMAKE_BUILD_TYPE=Release",), False)):
            with self.subTest(options):
                build = self.home / "build here"
                shutil.rmtree(build, ignore_errors=True)
                text = subprocess.run([CMAKE, "-S", "project", "-B", build, f"-DCMAKE_CXX_COMPILER={CXX}", *options], cwd=self.work,
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
                self.assertEqual("CMAKE_BUILD_TYPE is not set: plugins are compiled without optimisation" in text, says, text)
                done = subprocess.run([CMAKE, "--build", build], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.passes(build / "lib/gannet/gannet_optimizer_mine.so", "--check", "lengths", "--check", "types")

    def test_without_the_version_script_the_kit_names_it(self):
        (self.work / "mine.cpp").write_text(RULE)
        self.built(without=LINE.split()[-1])
        code, text = self.check("mine.so")
        self.assertEqual(code, 1)
        self.assertIn("-Wl,--version-script=lib/cmake/gannet/plugin.map", text)

    def test_without_optimisation_a_rule_is_the_same_and_no_allocator_of_its_own(self):
        self.built(HERE / "author_habits.cpp", out="fast.so")
        for name, loops in LOOPS.items():
            with self.subTest(name):
                self.built(HERE / "author_habits.cpp", out="slow.so", more=loops + " -O0")
                self.passes("slow.so", "--check", "handshake", "--check", "types", "--check", "lengths", "--check", "reference",
                            "--reference", self.work / "fast.so", "--tolerance", "1e-300")
                done = subprocess.run([CMAKE, f"-DPLUGIN={self.work}/slow.so", "-DNM=nm", "-DREADELF=readelf", "-P",
                                       SOURCE / "sdk/cmake/check_plugin.cmake"], text=True, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_authors_usually_write_has_the_same_bits_with_highway(self):
        self.built(HERE / "author_habits.cpp", out="plain.so", more=" -Wall -Wextra -Werror")
        self.passes("plain.so")
        if HAS_HIGHWAY:
            self.built(HERE / "author_habits.cpp", out="lanes.so", more=" -Wall -Wextra -Werror" + LOOPS["Highway"])
            self.passes("lanes.so", "--reference", self.work / "plain.so", "--tolerance", "1e-300")

    @unittest.skipUnless(IS_GCC, "the compiler's notes are GCC's")
    def test_select_and_min_are_vectorised_without_highway(self):
        code, notes = self.compile(HERE / "author_habits.cpp", more=" -DSIMPLE_CONDITIONS -fopt-info-vec-optimized")
        self.assertEqual(code, 0, notes)
        loop = next(i for i, line in enumerate((SOURCE / "sdk/include/gannet/elementwise/plain-inl.h").read_text().splitlines(), 1)
                    if "for (uint64_t i = 0; i < count; ++i) {" in line)
        self.assertGreaterEqual(len(re.findall(rf"plain-inl\.h:{loop}:\d+: optimized: loop vectorized", notes)), 10, notes)

    def test_the_line_has_the_options_of_gannet_add_plugin(self):
        module = (SOURCE / "sdk/cmake/GannetPlugin.cmake").read_text()
        options = re.search(r"COMPILE_LANGUAGE:C,CXX>:([^>]*)>", module).group(1).split(";")
        self.assertGreater(len(options), 2)
        for option in options:
            self.assertIn(option, LINE.split())

    def test_a_number_that_is_not_declared_is_an_error_not_another_number(self):
        for macro, sentence in (("BEYOND_THE_LIST", "number 2 of 'betas', which has 2 (the first is number 0)"),
                                ("BEYOND_A_NUMBER", "number 1 of 'eps', which has 1 (the first is number 0)"),
                                ("TEXT_AS_NUMBER", "number 0 of 'note', which has none: text() reads it")):
            with self.subTest(macro):
                self.built(HERE / "author_habits.cpp", out="wrong.so", more=f" -D{macro}")
                code, text = self.check("wrong.so", "--check", "repeatable")
                self.assertEqual(code, 1, text)
                self.assertIn(f"the rule asks for {sentence}", text)

    def test_a_loop_of_ones_own_names_the_types_that_it_takes(self):
        self.built(HERE / "author_layer.cpp", out="layer.so", more=" -Wall -Wextra -Werror")
        self.passes("layer.so", "--params", '{"mode": "nesterov"}')
        done = subprocess.run([KIT, "plugins", "bench", self.work / "layer.so", "--dtype", "bf16"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("it does not take these types, but parameter/gradient/copy of fp32/fp32/none", done.stderr)

    def test_an_older_standard_is_refused_in_a_sentence(self):
        code, text = self.compile(HERE / "author_layer.cpp", more=" -std=c++14")
        self.assertNotEqual(code, 0)
        self.assertIn("the SDK needs C++17: compile with -std=c++17 or later", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
