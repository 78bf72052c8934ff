"""The Comm plugin `mpi` under `mpirun` of each MPI library that is here: losses and norms of a run over gloo, and the kit's checks."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["BUILD"])
PLUGIN = BUILD / "lib/gannet/gannet_comm_mpi.so"
KIT = BUILD / "libexec/gannet/gannet-kit"
FULL = os.environ.get("GANNET_TEST_FULL") == "1"
LIBRARIES = [name for name in ("openmpi", "mpich")
             if shutil.which(f"mpirun.{name}") and (BUILD / f"lib/gannet/mpi/gannet_mpi_{name}.so").exists()]
# A rank that is killed ends all others under mpirun, and the library changes what it likes at MPI_Init.
CHECKS = ["worlds", "moves", "reduces", "uneven-parts", "sum-dtype", "messages", "batches", "groups", "completion", "time-out",
          "counters", "newer-host", "refusals"]


def launched(library, ranks, *command, timeout=240):
    own = {"openmpi": ["--oversubscribe", "--allow-run-as-root"], "mpich": []}[library]
    return subprocess.run([f"mpirun.{library}", *own, "-n", str(ranks), *map(str, command)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=timeout)


class Mpi(unittest.TestCase):
    def setUp(self):
        if not LIBRARIES:
            self.skipTest("no MPI library and mpirun are here")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-mpi-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def losses(self, start, comm, zero, *more, steps=4):
        config, metrics = self.folder / "config.json", self.folder / "metrics.jsonl"
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 0.1,
                                      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": zero,
                                      "comm": {"type": comm}}))
        metrics.unlink(missing_ok=True)
        done = start(BUILD / "bin/gpt2", "--deepspeed_config", config, "--layers", 2, "--width", 32, "--heads", 2, "--seq-len", 32,
                     "--positions", 32, "--steps", steps, "--metrics", metrics, "--threads", 1, "--generate", 0, *more)
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        found = [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]
        self.assertEqual(len(found), steps)
        return found

    def assert_near(self, found, expected):
        for (loss, norm), (wanted, wanted_norm) in zip(found, expected, strict=True):
            self.assertAlmostEqual(loss, wanted, delta=1e-6 * wanted)
            self.assertAlmostEqual(norm, wanted_norm, delta=1e-5 * wanted_norm)

    def over_gloo(self, ranks):
        return lambda *command: subprocess.run([BUILD / "bin/gannet", "run", "--num_procs", str(ranks), *map(str, command)], text=True,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)

    def test_it_trains_as_gloo_does(self):
        cpu, pipeline = {"device": "cpu"}, ("--pipeline", 2)
        cases = [(2, {"stage": 0}, ()), (3, {"stage": 1}, ()), (2, {"stage": 2, "offload_optimizer": cpu}, ()),
                 (2, {"stage": 3, "offload_param": cpu, "offload_optimizer": cpu}, ()), (4, {"stage": 1}, pipeline)]
        if FULL:
            cases = [(ranks, {"stage": stage, **offload}, ()) for ranks in (2, 3, 4) for stage in (0, 1, 2, 3)
                     for offload in ({}, {"offload_optimizer": cpu}) if stage > 0 or not offload]
            cases += [(ranks, {"stage": stage}, pipeline) for ranks in (2, 4) for stage in (0, 1, 2)]
        for ranks, zero, more in cases:
            expected = self.losses(self.over_gloo(ranks), "gloo", zero, *more)
            for library in LIBRARIES:
                with self.subTest(library=library, ranks=ranks, zero=zero, more=more):
                    self.assert_near(self.losses(lambda *command: launched(library, ranks, *command), "mpi", zero, *more), expected)

    def test_a_checkpoint_resumes(self):
        for stage in (0, 1, 2, 3) if FULL else (2,):
            expected = self.losses(self.over_gloo(2), "gloo", {"stage": stage})
            for library in LIBRARIES:
                with self.subTest(library=library, stage=stage):
                    start, saved = lambda *command: launched(library, 2, *command), self.folder / f"{library}{stage}"
                    self.losses(start, "mpi", {"stage": stage}, "--save-checkpoint", saved, steps=2)
                    self.assert_near(self.losses(start, "mpi", {"stage": stage}, "--load-checkpoint", saved, steps=2), expected[2:])

    def test_the_kit_passes(self):
        for library in LIBRARIES:
            for ranks in (2, 3, 4) if FULL else (3,):
                for check in CHECKS:
                    with self.subTest(library=library, ranks=ranks, check=check):
                        done = launched(library, ranks, KIT, "check", PLUGIN, "--check", check, "--launched",
                                        self.folder / f"{library}{ranks}{check}")
                        self.assertEqual(done.returncode, 0, done.stdout)
                        self.assertEqual(done.stdout.count(f"pass      {check}"), ranks, done.stdout)

    def test_a_program_that_owns_mpi_trains_on_its_communicators(self):
        found = set()
        for library in LIBRARIES:
            for ranks in (2, 4, 5) if FULL else (4,):
                for comm in ("", "gloo"):
                    with self.subTest(library=library, ranks=ranks, comm=comm):
                        done = launched(library, ranks, BUILD / f"tests/mpi_halves_{library}", *([comm] if comm else []))
                        self.assertEqual(done.returncode, 0, done.stdout)
                        self.assertEqual(done.stdout.count("finalized"), ranks, done.stdout)
                        self.assertEqual(done.stdout.count("the program's communicator"), 3 if comm else 4, done.stdout)
                        moved_by = set(re.findall(r"gannet_comm_(gloo|mpi)\.so", done.stdout))  # the tables of plugins
                        self.assertEqual(moved_by, {comm or "mpi"}, done.stdout)
                        sums = re.search(r"halves of \d: (\S+), all of \d: (\S+)", done.stdout)
                        if ranks == 4:
                            found.add(tuple(round(float(text), 6) for text in sums.groups()))
        self.assertEqual(len(found), 1, found)  # both libraries, and gloo

    def test_what_a_program_that_owns_mpi_gets_wrong(self):
        for library in LIBRARIES:
            # The halves are (2, 0) and (3, 1): 3 is the first of its half, whose address the other waits for.
            for mode, code, sentence in (("single", 2, "MPI_THREAD_SINGLE: call MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE"),
                                         ("null", 2, "MPI_COMM_NULL: only its members train on it"),
                                         ("absent 0", 3, "rank 1 of 2"),
                                         ("absent 3", 3, "has called init_distributed within 3 s")):
                with self.subTest(library=library, mode=mode):
                    done = launched(library, 4, BUILD / f"tests/mpi_halves_{library}", *mode.split(), timeout=60)
                    self.assertEqual(done.returncode, code, done.stdout)
                    self.assertIn(sentence, done.stdout)

    def test_mpirun_of_another_library_is_named(self):
        names = {"openmpi": "Open MPI", "mpich": "MPICH"}
        for library in LIBRARIES:
            for launcher in LIBRARIES:
                if launcher == library:
                    continue
                with self.subTest(library=library, launcher=launcher):
                    config = self.folder / "config.json"
                    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"},
                                                  "comm": {"type": "mpi", "params": {"library": library}}}))
                    done = launched(launcher, 2, BUILD / "bin/gpt2", "--deepspeed_config", config, "--layers", 1, "--width", 8, "--heads", 1,
                                    "--seq-len", 8, "--positions", 8, "--steps", 1, "--threads", 1, "--generate", 0, timeout=60)
                    self.assertNotEqual(done.returncode, 0, done.stdout)
                    self.assertIn(f"this world has 2 ranks, which {names[launcher]}'s mpirun started, and the process uses {names[library]}, "
                                  f"which knows of 1: start it with {names[library]}'s mpirun (mpirun.{library}), or use {names[launcher]}: "
                                  f'"params": {{"library": "{launcher}"}}', done.stdout)

    def test_a_process_that_no_launcher_started_is_told(self):
        done = subprocess.run([KIT, "check", PLUGIN, "--check", "moves", "--launched", self.folder / "x"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("no launcher has given this process a rank", done.stdout)


if __name__ == "__main__":
    unittest.main()
