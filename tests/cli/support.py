"""Runs `gannet` as a person does. GANNET, BUILD (the build folder) and BAD (plugins that must be refused) come from ctest."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

GANNET = os.environ["GANNET"]
BUILD = pathlib.Path(os.environ["BUILD"])
BAD = pathlib.Path(os.environ["BAD"])


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-cli-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)

    def gannet(self, *arguments, code=None, cwd=None, **variables):
        """What a call prints, stdout and stderr together, in a folder of its own; `code` is the exit code that is expected."""
        done = subprocess.run([GANNET, *arguments], cwd=cwd or self.folder, env={**os.environ, **variables}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name
