"""`gannet plugins new`: what it writes, what it refuses. That the projects build and pass is tests/sdk/authors_test.py."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

GANNET = pathlib.Path(os.environ["GANNET"])
KIT = GANNET.parent.parent / "libexec/gannet/gannet-kit"
KINDS = ("optimizer", "scheduler", "offload", "comm", "accelerator")
IN_C99 = ("optimizer", "scheduler", "offload")

REFUSED = [
    ("optimizer Lion-2", "'Lion-2' cannot be a plugin's name", "'Lion_2' would do"),
    ("optimizer 2lions", "'2lions' cannot be a plugin's name", "'lions' would do"),
    ("optimizer ../up", "'../up' cannot be a plugin's name", "'up' would do"),
    ("optimizer", "needs NAME", "--help"),
    ("optimizer _", "'_' cannot be a plugin's name", "choose another, as 'mine'"),
    ("optimizer " + "x" * 65, "64 at most", "would do"),
    ("optimiser mine", "KIND is 'optimiser'", "did you mean 'optimizer'?"),
    ("optimizer mine --language c", "--language is 'c', and must be one of c++, c99", "--help"),
    ("comm mine --language c99", "no template of a plugin 'comm' in c99", "in c99 there is: optimizer, scheduler, offload"),
    ("accelerator mine --language c99", "no template of a plugin 'accelerator' in c99", "leave out --language for C++"),
    ("optimizer mine --fodler x", "unknown option '--fodler'", "did you mean '--folder'?"),
]


class NewPlugin(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-new-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def new(self, *words, code=0, program=(GANNET, "plugins")):
        done = subprocess.run([*program, "new", *words], cwd=self.folder, text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_every_kind_and_language_writes_a_project_without_a_place_left_open(self):
        for kind in KINDS:
            for language in ("c++", "c99"):
                if language == "c99" and kind not in IN_C99:
                    continue
                with self.subTest(kind=kind, language=language):
                    name = f"{kind}_{'c' if language == 'c99' else 'cpp'}"
                    said = self.new(kind, name, "--language", language)
                    source = f"{name}.{'c' if language == 'c99' else 'cpp'}"
                    self.assertEqual({p.name for p in (self.folder / name).iterdir()}, {"CMakeLists.txt", source, "README.md"})
                    self.assertIn(f"{name}/{source}", said)
                    self.assertIn("ctest", said)
                    for file in (self.folder / name).iterdir():
                        self.assertNotRegex(file.read_text(), r"@[A-Za-z_]+@", file.name)
                        self.assertLessEqual(max(map(len, file.read_text().splitlines())), 140, file.name)

    def test_the_name_is_in_lower_case_where_the_loader_reads_it_and_a_class_in_the_source(self):
        self.new("optimizer", "My_Lion", "--folder", "a/b")
        text = (self.folder / "a/b/my_lion.cpp").read_text()
        self.assertIn("struct MyLionRule {", text)
        self.assertIn('GANNET_ELEMENTWISE_PLUGIN(MyLionRule, "my_lion"', text)

    def test_an_element_wise_optimizer_needs_15_lines_of_its_author(self):
        self.new("optimizer", "mine")
        text = (self.folder / "mine/mine.cpp").read_text()
        rule = text[text.index("GANNET_RULES_BEGIN"):text.index("GANNET_RULES_END")].splitlines()[1:]
        self.assertLessEqual(len([line for line in rule if line.strip() and not line.strip().startswith("//")]), 15)

    def test_bad_input_is_refused_with_what_would_do(self):
        for words, message, next_step in REFUSED:
            with self.subTest(words):
                said = self.new(*words.split(), code=2)
                self.assertIn(message, said)
                self.assertIn(next_step, said)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder_that_holds_something_stays_as_it_is(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/notes").write_text("mine")
        self.assertIn("the folder mine is not empty", self.new("optimizer", "mine", code=2))
        self.assertEqual([p.name for p in (self.folder / "mine").iterdir()], ["notes"])
        self.assertIn("exists and is not a folder", self.new("optimizer", "mine", "--folder", "mine/notes", code=2))
        (self.folder / "empty").mkdir()
        self.new("optimizer", "mine", "--folder", "empty")

    def test_a_folder_that_cannot_be_made_is_named(self):
        self.assertIn("cannot write /proc/mine: ", self.new("optimizer", "mine", "--folder", "/proc/mine", code=3))

    @unittest.skipIf(os.geteuid() != 0 or not shutil.which("setpriv"), "a user without rights is made by root, with setpriv")
    def test_a_folder_without_the_right_to_write_is_named(self):
        self.folder.chmod(0o755)
        nobody = ("setpriv", "--reuid=65534", "--clear-groups", KIT)
        self.assertIn("cannot write mine: Permission denied", self.new("optimizer", "mine", code=3, program=nobody))

    def test_the_kit_alone_takes_the_command_too(self):
        self.new("scheduler", "mine", program=(KIT,))
        self.assertTrue((self.folder / "mine/mine.cpp").exists())


unittest.main()
