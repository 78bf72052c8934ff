"""The Comm plugin `nccl` over a double of its library, on the devices made of host memory: the kit's checks, the losses of the
device's own Comm to the last bit, and what all ranks say of each fault of the library."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ["BUILD"])
PLUGIN = BUILD / "tests/nccl_double/gannet_comm_nccl_double.so"
FULL = os.environ.get("GANNET_TEST_FULL") == "1"
DEADLINE = 4  # seconds
SMALL = ["--layers", 2, "--width", 32, "--heads", 2, "--seq-len", 32, "--positions", 32, "--threads", 1, "--plain-operators",
         "--generate", 0]


class Nccl(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-nccl-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(lambda: [shutil.rmtree(left) for left in pathlib.Path("/dev/shm").glob("gannet-nccl-double-*")])

    def run_gpt2(self, ranks, comm, zero, *more, fault="", delay_us=0, steps=4):
        config = self.folder / "config.json"
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 0.1,
                                      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": zero,
                                      "accelerator": {"type": "checked"}, "comm": {"type": comm},
                                      "gannet": {"deadline_seconds": DEADLINE, "timeout_seconds": DEADLINE} if fault else {}}))
        self.metrics = self.folder / "metrics.jsonl"
        self.metrics.unlink(missing_ok=True)
        return subprocess.run([BUILD / "bin/gannet", "run", "--num_procs", str(ranks), BUILD / "bin/gpt2", "--deepspeed_config", config,
                               "--steps", str(steps), "--metrics", self.metrics, *map(str, SMALL), *map(str, more)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
                              env=dict(os.environ, GANNET_PLUGIN_PATH=str(PLUGIN.parent), NCCL_DOUBLE=f"{fault};delay_us={delay_us}"))

    def losses(self, *arguments, **options):
        done = self.run_gpt2(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        return [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]

    def test_the_kit_passes(self):
        done = subprocess.run([BUILD / "libexec/gannet/gannet-kit", "check", PLUGIN, "--plugin", "comm/nccl@fake", "--accelerator",
                               BUILD / "lib/gannet/gannet_accelerator_fake.so"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)
        for check in ("reduces", "uneven-parts", "messages", "batches", "groups", "time-out", "abort", "lost-peer", "counters",
                      "leaves-no-group"):
            self.assertIn(f"pass      {check}", done.stdout)

    def test_it_trains_as_the_devices_own_comm(self):
        small = {"reduce_bucket_size": 5000, "stage3_param_persistence_threshold": 200}
        cpu = {"device": "cpu"}
        cases = [(2, {"stage": 0}), (3, {"stage": 1, "offload_optimizer": cpu}), (4, {"stage": 2}),
                 (2, {"stage": 3, "offload_optimizer": cpu, "offload_param": cpu}), (3, {"stage": 3})]
        if FULL:
            cases = [(ranks, {"stage": stage, **offload}) for ranks in (2, 3, 4) for stage in (0, 1, 2, 3)
                     for offload in ({}, {"offload_optimizer": cpu}) if stage > 0 or not offload]
        for ranks, zero in cases:
            with self.subTest(ranks=ranks, zero=zero):
                expected = self.losses(ranks, "checked", {**small, **zero})
                self.assertEqual(len(expected), 4)
                self.assertEqual(self.losses(ranks, "nccl", {**small, **zero}, delay_us=2000), expected)

    def test_pipelines_train_as_over_the_devices_own_comm(self):
        for ranks, stages in ((2, 2), (4, 2)) if FULL else ((4, 2),):
            with self.subTest(ranks=ranks):
                expected = self.losses(ranks, "checked", {"stage": 1}, "--pipeline", stages)
                self.assertEqual(len(expected), 4)
                self.assertEqual(self.losses(ranks, "nccl", {"stage": 1}, "--pipeline", stages), expected)

    def test_all_ranks_say_what_is_wrong(self):
        lost = "another rank has ended, or its connection is lost"
        faults = [("fault=async_error;rank=1;at=7", [lost, "10.0.0.2<4711> has closed the connection on eth0"]),
                  ("fault=die;rank=1;at=7", ["rank 1"]),
                  ("fault=silent;rank=1;at=7", ["rank 1"]),
                  ("fault=no_init;rank=1", ["rank 1"]),
                  ("fault=no_id;rank=0", ["ncclGetUniqueId", "NCCL_SOCKET_IFNAME"]),
                  ("fault=lost_id;rank=0", ["rank 0"]),
                  ("fault=duplicate", ["Duplicate GPU detected", 'set "comm": {"type": "gloo"}'])]
        for fault, sentences in faults:
            for ranks in (2, 3, 4) if FULL else (3,) if "async" in fault else (2,):
                with self.subTest(fault=fault, ranks=ranks):
                    begun = time.monotonic()
                    self.assertEqual(len(self.losses(ranks, "nccl", {"stage": 2})), 4)
                    healthy = time.monotonic() - begun
                    begun = time.monotonic()
                    done = self.run_gpt2(ranks, "nccl", {"stage": 2}, fault=fault, steps=1000)
                    self.assertNotEqual(done.returncode, 0, done.stdout)
                    for sentence in sentences:
                        self.assertIn(sentence, done.stdout)
                    self.assertLess(time.monotonic() - begun - healthy, DEADLINE + 10, done.stdout)


if __name__ == "__main__":
    unittest.main()
