"""`gannet plugins trust`: what the list holds, and what is refused. That the loader obeys it is tests/plugin/trust_test.cpp."""
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

GANNET = pathlib.Path(os.environ["GANNET"])
BUILD = pathlib.Path(os.environ["BUILD"])
LION = BUILD / "lib/gannet/gannet_optimizer_lion.so"


class Trust(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-trust-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.list = self.folder / "config/gannet/trusted_plugins"
        self.mine = self.folder / "mine.so"
        shutil.copy(LION, self.mine)

    def trust(self, *words, code=0):
        done = subprocess.run([GANNET, "plugins", "trust", *map(str, words)], cwd=self.folder, text=True, timeout=60,
                              env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def hash(self, file):
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def test_a_file_is_listed_as_sha256sum_lists_it(self):
        said = self.trust("mine.so")
        self.assertIn(f"trusted: {self.hash(self.mine)}  {self.mine}  (optimizer/lion@cpu)", said)
        self.assertIn(f"{self.hash(self.mine)}  {self.mine}\n", self.list.read_text())
        self.assertEqual(self.list.stat().st_mode & 0o777, 0o644)
        check = subprocess.run(["sha256sum", "--check", self.list], text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stdout), (0, f"{self.mine}: OK\n"))

    def test_a_folder_stands_for_its_plugins(self):
        (self.folder / "text.txt").write_text("no plugin")
        self.trust(self.folder)
        self.assertEqual(self.list.read_text().count(self.hash(self.mine)), 1)
        (self.folder / "empty").mkdir()
        self.assertIn("there is no plugin in the folder", self.trust("empty", code=2))

    def test_the_list_is_printed_with_what_became_of_its_files(self):
        other = self.folder / "other.so"
        other.write_bytes(LION.read_bytes() + b"\n")
        self.trust("mine.so", "other.so")
        said = self.trust("--list")
        self.assertIn(f"{self.hash(self.mine)}  {self.mine}\n", said)
        self.mine.write_bytes(LION.read_bytes() + b"!")
        other.unlink()
        said = self.trust("--list")
        self.assertIn(f"{self.mine}  (has changed since: it would be refused)", said)
        self.assertIn(f"{other}  (no longer there)", said)

    def test_a_file_is_removed_by_its_path_or_its_hash(self):
        self.trust("mine.so")
        self.assertIn("no longer trusted: mine.so", self.trust("--remove", "mine.so"))
        self.assertIn("no plugin is trusted", self.trust("--list"))
        self.trust("mine.so")
        self.trust("--remove", self.hash(self.mine))
        self.assertIn("has no file or hash 'mine.so'", self.trust("--remove", "mine.so", code=2))

    def test_the_list_may_be_another_file(self):
        self.trust("--trusted", "team.trusted", "mine.so")
        self.assertIn(self.hash(self.mine), (self.folder / "team.trusted").read_text())
        self.assertFalse(self.list.exists())

    def test_what_is_no_plugin_is_refused_and_the_list_stays_as_it_is(self):
        self.trust("mine.so")
        before = self.list.read_text()
        (self.folder / "text.so").write_text("no plugin")
        other = self.folder / "other.so"
        other.write_bytes(LION.read_bytes() + b"\n")
        self.assertIn("is not a plugin that can be trusted: it is not a shared object", self.trust("other.so", "text.so", code=2))
        self.assertIn("there is no plugin file 'gone.so'", self.trust("gone.so", code=2))
        self.assertIn("needs a FILE to trust, --remove FILE or --list", self.trust(code=2))
        self.assertEqual(self.list.read_text(), before)

    def test_a_list_that_others_may_write_is_neither_used_nor_changed(self):
        self.trust("mine.so")
        self.list.chmod(0o666)
        self.assertIn("may be written by every user", self.trust("--list", code=2))
        self.assertIn("may be written by every user", self.trust("mine.so", code=2))

    def test_commands_that_change_the_list_at_once_lose_nothing(self):
        files = [self.folder / f"{number}.so" for number in range(8)]
        for number, file in enumerate(files):
            file.write_bytes(LION.read_bytes() + b"!" * number)
        with concurrent.futures.ThreadPoolExecutor(len(files)) as pool:
            list(pool.map(self.trust, files))
        for file in files:
            self.assertIn(f"{self.hash(file)}  {file}\n", self.list.read_text())

    def test_what_a_command_that_was_killed_left_behind_is_no_obstacle(self):
        self.trust("mine.so")
        pathlib.Path(f"{self.list}.new").write_text("half")
        self.trust("--remove", "mine.so")
        self.assertIn("no plugin is trusted", self.trust("--list"))

    def test_copies_of_a_file_have_entries_of_their_own(self):
        copy = self.folder / "copy.so"
        shutil.copy(self.mine, copy)
        self.trust("mine.so", "copy.so")
        self.trust("--remove", "copy.so")
        self.assertEqual(self.list.read_text().count(self.hash(self.mine)), 1)
        self.assertIn(f"{self.mine}\n", self.list.read_text())


unittest.main()
