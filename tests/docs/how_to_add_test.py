"""docs/how_to_add.md as it stands: its plugins, its command and its config key compile, and their code is in clang-format's form.

Every block of C++ belongs to the file that the line before it names, or that its own comments name. What goes into a file of the
tree is put into a copy of it.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["BUILD"])
SPEC = importlib.util.spec_from_file_location("check_alone", ROOT / "scripts" / "check_alone.py")
CHECK_ALONE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CHECK_ALONE)
PAGE = (ROOT / "docs" / "how_to_add.md").read_text()


def block_after(text, start="```cpp\n"):
    begin = PAGE.index(start, PAGE.index(text)) + len(start)
    return PAGE[begin:PAGE.index("```", begin)]


def parts_of(block):
    """A block with the parts of several files: {the file: (where, its lines)}, from comments `// file, where`."""
    parts, file = {}, None
    for line in block.splitlines():
        named = re.match(r"// ([\w/]+\.\w+), (.*)", line)
        if named:
            file = named[1]
            parts[file] = (named[2], [])
        elif file:
            parts[file][1].append(line)
    return {file: (where, "\n".join(lines).strip("\n") + "\n") for file, (where, lines) in parts.items()}


class HowToAdd(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-how-to-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def compiles(self, flags, name, text, *more, is_whole=True):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if is_whole and (clang_format := shutil.which("clang-format")):
            shaped = subprocess.run([clang_format, f"--style=file:{ROOT / '.clang-format'}", str(file)], text=True, capture_output=True)
            self.assertEqual(shaped.stdout, text, f"{name} as docs/how_to_add.md has it is not what clang-format makes of it")
        done = subprocess.run([*flags, *more, "-Werror", "-fsyntax-only", str(file)], cwd=BUILD, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, f"{name} as docs/how_to_add.md has it:\n{done.stderr[:4000]}")

    def test_plugins(self):
        for name, target in (("signum", "gannet_optimizer_lion"), ("host", "gannet_accelerator_cpu"), ("one", "gannet_comm_gloo")):
            self.compiles(CHECK_ALONE.flags_of(BUILD, target), f"{name}.cpp", block_after(f"/{name}.cpp`"))

    def test_a_command(self):
        begin = PAGE.index("## A command")
        code = PAGE[PAGE.index("```cpp\n", begin) + 7:]
        code = code[:code.index("```")]
        self.assertIn("add_batch", code)
        commands = (ROOT / "tools" / "cli" / "commands.h").read_text()
        declaration = re.search(r"`(void add_batch\(CLI::App& app\);)", PAGE)[1]
        end = commands.rindex("}")
        (self.folder / "cli").mkdir()
        (self.folder / "cli" / "commands.h").write_text(commands[:end] + declaration + "\n" + commands[end:])
        flags = CHECK_ALONE.flags_of(BUILD, "gannet_tools")
        self.compiles([flags[0], f"-I{self.folder}", *flags[1:]], "cli/batch.cpp", code)

    def test_a_config_key(self):
        parts = parts_of(block_after("## A config key"))
        self.assertEqual(sorted(parts), ["core/config/keys_training.cpp", "core/config/settings.h", "core/engine/boundary.cpp"])
        copies = {file: (ROOT / file).read_text() for file in parts}
        if "warn_grad_norm" in copies["core/config/settings.h"]:
            self.skipTest("the tree has the key of the example already, as after following the page")

        def insert(file, behind, text, before=False):
            self.assertEqual(copies[file].count(behind), 1, f"{behind!r} in {file}")
            copies[file] = copies[file].replace(behind, text + behind if before else behind + text)

        where, text = parts["core/config/settings.h"]
        insert("core/config/settings.h", re.search(r"struct \w+", where)[0] + " {\n", text)
        insert("core/config/keys_training.cpp", '    row("log_level"', parts["core/config/keys_training.cpp"][1], before=True)
        where, text = parts["core/engine/boundary.cpp"]
        self.assertIn("in check() before its return", where)
        insert("core/engine/boundary.cpp", "  return check;\n", text, before=True)
        headers = re.findall(r'<[\w/.]+>|"[\w/.]+"', where)
        copies["core/engine/boundary.cpp"] = "".join(f"#include {header}\n" for header in headers) + copies["core/engine/boundary.cpp"]
        for file, text in copies.items():
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(text)
        flags = CHECK_ALONE.flags_of(BUILD, "gannet_core")
        flags = [flags[0], f"-I{self.folder}/core", *flags[1:]]
        for file in ("core/config/keys_training.cpp", "core/engine/boundary.cpp"):
            self.compiles(flags, file, copies[file], is_whole=False)


if __name__ == "__main__":
    unittest.main()
