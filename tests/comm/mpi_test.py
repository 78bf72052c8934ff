"""The Comm plugin `mpi` under `mpirun` of each MPI library that is here: losses and norms of a run over gloo, and the kit's checks."""
import json
import os
import pathlib
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

    def losses(self, start, comm, stage, name):
        config = self.folder / f"{name}.json"
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.1,
                                      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                                      "zero_optimization": {"stage": stage}, "comm": {"type": comm}}))
        metrics = self.folder / f"{name}.jsonl"
        done = start(BUILD / "bin/gpt2", "--deepspeed_config", config, "--layers", 2, "--width", 32, "--heads", 2, "--seq-len", 32,
                     "--positions", 32, "--steps", 4, "--metrics", metrics, "--threads", 1)
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]

    def test_it_trains_as_gloo_does(self):
        cases = [(2, 0), (3, 1), (2, 2), (2, 3)] if not FULL else [(ranks, stage) for ranks in (2, 3, 4) for stage in (0, 1, 2, 3)]
        for ranks, stage in cases:
            expected = self.losses(lambda *command: subprocess.run([BUILD / "bin/gannet", "run", "--num_procs", str(ranks),
                                                                    *map(str, command)], text=True, stdout=subprocess.PIPE,
                                                                   stderr=subprocess.STDOUT, timeout=240), "gloo", stage, f"gloo{ranks}{stage}")
            self.assertEqual(len(expected), 4)
            for library in LIBRARIES:
                with self.subTest(library=library, ranks=ranks, stage=stage):
                    found = self.losses(lambda *command: launched(library, ranks, *command), "mpi", stage, f"{library}{ranks}{stage}")
                    self.assertEqual(len(found), 4)
                    for (loss, norm), (wanted, wanted_norm) in zip(found, expected):
                        self.assertAlmostEqual(loss, wanted, delta=1e-6 * wanted)
                        self.assertAlmostEqual(norm, wanted_norm, delta=1e-5 * wanted_norm)

    def test_the_kit_passes(self):
        for library in LIBRARIES:
            for ranks in (2, 3, 4) if FULL else (3,):
                for check in CHECKS:
                    with self.subTest(library=library, ranks=ranks, check=check):
                        done = launched(library, ranks, KIT, "check", PLUGIN, "--check", check, "--launched",
                                        self.folder / f"{library}{ranks}{check}")
                        self.assertEqual(done.returncode, 0, done.stdout)
                        self.assertEqual(done.stdout.count(f"pass      {check}"), ranks, done.stdout)

    def test_a_process_that_no_launcher_started_is_told(self):
        done = subprocess.run([KIT, "check", PLUGIN, "--check", "moves", "--launched", self.folder / "x"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("no launcher has given this process a rank", done.stdout)


if __name__ == "__main__":
    unittest.main()
