"""What a person reads of a command, and what it says to a slip of the finger."""
import re
import shutil
import subprocess
import unittest

from support import GANNET, Case

SLIPS = [
    ("", "gannet: `gannet` needs a command: run, train, config"),
    ("confg check x", "gannet: there is no command 'gannet confg'; did you mean 'config'?"),
    ("run --num-procs 2 ls", "gannet: unknown option '--num-procs' before PROGRAM; did you mean '--num_procs'?"),
    ("run --num_procs 0 ls", "gannet: `gannet run`: --num_procs is '0', and must be a number from 1 to 4096"),
    ("schedule --step 5", "gannet: unknown option '--step' of `gannet schedule`; did you mean '--steps'?"),
    ("estimate", "gannet: `gannet estimate` needs --parameters"),
    ("schedule x.json --steps", "gannet: `gannet schedule`: --steps needs a value"),
    ("estimate --parameters 1B --dtype bf15", "--dtype is 'bf15', and must be one of bf16, fp16, fp32, fp64; did you mean"),
    ("config check", "gannet: `gannet config check` needs FILE (the configs; - reads the standard input)"),
    ("completion", "gannet: `gannet completion` needs SHELL (the shell: bash, zsh or fish)"),
    ("config resolve a.json b.json", "gannet: `gannet config resolve` does not take 'b.json'"),
    ("doctor --json --report", "gannet: `gannet doctor`"),
    ("completion tcsh", "must be one of bash, zsh, fish"),
    ("help chekpoint list", "did you mean 'checkpoint list'?"),
]


class Help(Case):
    def test_a_slip_gets_what_was_meant_and_the_next_step(self):
        for arguments, answer in SLIPS:
            with self.subTest(arguments):
                text = self.gannet(*arguments.split(), code=2)
                self.assertIn(answer, text)
                self.assertRegex(text, r"\n  \(.+\)\n$")

    def test_no_command_ends_by_abort(self):
        """Folders and links where files are expected: whatever a library throws is one sentence and an exit code of ours."""
        for name in ("latest_is_a_folder", "loop"):
            (self.folder / name).mkdir()
        (self.folder / "latest_is_a_folder/latest").mkdir()
        (self.folder / "loop/latest_universal").symlink_to("latest_universal")
        (self.folder / "itself").symlink_to("itself")
        for name in ("latest_is_a_folder", "loop", "itself"):
            with self.subTest(name):
                done = subprocess.run([GANNET, "checkpoint", "import", name, "out"], cwd=self.folder, text=True, timeout=200,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertIn(done.returncode, (2, 3, 70), done.stdout)
                self.assertRegex(done.stdout, r"^gannet: ")

    def test_ranks_start_and_the_version_is_printed_without_libtorch(self):
        """The program alone, without the tree that it was built in: what needs LibTorch says what is missing."""
        (self.folder / "bin").mkdir()
        alone = shutil.copy(GANNET, self.folder / "bin/gannet")
        run = lambda *words: subprocess.run([alone, *words], cwd=self.folder, text=True, timeout=200,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        version = run("--version")
        self.assertEqual((version.returncode, version.stdout), (0, self.gannet("--version", code=0)))
        ranks = run("run", "--num_procs", "2", "sh", "-c", "echo rank $RANK; exit $((RANK * 7))")
        self.assertEqual(ranks.returncode, 7, ranks.stdout)
        self.assertIn("[1] rank 1", ranks.stdout)
        self.assertIn("Usage: gannet run", run("run", "--help").stdout)
        doctor = run("doctor")
        self.assertEqual(doctor.returncode, 3, doctor.stdout)
        self.assertIn(f"cannot start {self.folder}/libexec/gannet/gannet-tools: No such file or directory", doctor.stdout)
        self.assertNotIn("torch", subprocess.run(["ldd", alone], text=True, capture_output=True).stdout)

    def test_every_command_has_examples(self):
        """The manual page is the whole tree."""
        sections = re.split(r"^\.SS ", self.gannet("help", "--man", code=0), flags=re.M)[1:]
        self.assertGreaterEqual(len(sections), 14)
        self.assertEqual([s.splitlines()[0] for s in sections if "Examples:" not in s], [])

    def test_help_tells_usage_options_ranges_defaults_and_exit_codes(self):
        text = self.gannet("--help", code=0)
        self.assertIn("Usage: gannet [OPTIONS] COMMAND", text)
        self.assertRegex(text, r"\n  doctor +Check this machine")
        self.assertIn("Exit code: 0", text)
        text = self.gannet("run", "--help", code=0)
        self.assertIn("Usage: gannet run [OPTIONS] [--] PROGRAM ARGS...", text)
        self.assertRegex(text, r"--nproc-per-node N\s+ranks to start on this machine \(1 to 4096\)")
        text = self.gannet("schedule", "--help", code=0)
        self.assertIn("Usage: gannet schedule [OPTIONS] CONFIG\n", text)
        self.assertEqual(self.gannet("help", "schedule", code=0), text)
        self.assertIn("Usage: gannet config check [OPTIONS] FILE...\n", self.gannet("config", "check", "--help", code=0))
        text = self.gannet("estimate", "--help", code=0)
        self.assertIn("Usage: gannet estimate --parameters VALUE [OPTIONS]", text)
        self.assertRegex(text, r"--ranks N +number of processes \(1 to \d+; default: 1\)")
        self.assertLessEqual(max(map(len, self.gannet("bench", "nvme", "--help", code=0).splitlines())), 120)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed: the manual page is not set")
    def test_groff_sets_the_manual_page_without_a_warning(self):
        page = self.gannet("help", "--man", code=0)
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww"], input=page, text=True, capture_output=True)
        self.assertEqual(done.stderr, "")
        self.assertIn("--num_procs", done.stdout)


unittest.main()
