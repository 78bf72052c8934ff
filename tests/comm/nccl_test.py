"""The Comm plugin `nccl` over a double of its library, on the devices made of host memory: the kit's checks, the losses of the
device's own Comm to the last bit, and what all ranks say of each fault of the library."""
import json
import os
import pathlib
import shutil
import socket
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

    def program(self, comm, zero, *more, fault="", steps=4):
        config = self.folder / "config.json"
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 0.1,
                                      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": zero,
                                      "accelerator": {"type": "checked"}, "comm": {"type": comm},
                                      "gannet": {"deadline_seconds": DEADLINE, "timeout_seconds": DEADLINE} if fault else {}}))
        self.metrics = self.folder / "metrics.jsonl"
        self.metrics.unlink(missing_ok=True)
        return [str(each) for each in (BUILD / "bin/gpt2", "--deepspeed_config", config, "--steps", steps, "--metrics", self.metrics, *SMALL,
                                       *more)]

    def environment(self, fault="", delay_us=0, **more):
        return dict(os.environ, GANNET_PLUGIN_PATH=str(PLUGIN.parent), NCCL_SOCKET_IFNAME="eth7", NCCL_DOUBLE=f"{fault};delay_us={delay_us}", **more)

    def run_gpt2(self, ranks, comm, zero, *more, delay_us=0, steps=4):
        return subprocess.run([BUILD / "bin/gannet", "run", "--num_procs", str(ranks), *self.program(comm, zero, *more, steps=steps)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, env=self.environment(delay_us=delay_us))

    def run_apart(self, ranks, zero, fault, steps=1000):
        """Each rank started by itself, as by another launcher, which ends none of them: their exit codes, outputs and seconds."""
        program = self.program("nccl", zero, fault=fault, steps=steps)
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = str(chosen.getsockname()[1])
        processes = []
        for rank in range(ranks):
            with open(self.folder / f"rank{rank}.log", "w") as log:
                processes.append(subprocess.Popen(program, stdout=log, stderr=subprocess.STDOUT, env=self.environment(
                    fault, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=port)))
        begun, seconds = time.monotonic(), {}
        while len(seconds) < ranks and time.monotonic() < begun + 120:
            seconds |= {rank: time.monotonic() - begun for rank, each in enumerate(processes)
                        if rank not in seconds and each.poll() is not None}
            time.sleep(0.05)
        for each in processes:
            each.kill()
            each.wait()
        return [(each.returncode, (self.folder / f"rank{rank}.log").read_text(), seconds.get(rank, float("inf")))
                for rank, each in enumerate(processes)]

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

    def test_a_checkpoint_resumes(self):
        for ranks, stage in [(ranks, stage) for ranks in (2, 3, 4) for stage in (0, 1, 2, 3)] if FULL else [(2, 2)]:
            with self.subTest(ranks=ranks, stage=stage):
                zero, saved = {"stage": stage}, self.folder / f"saved{ranks}{stage}"
                expected = self.losses(ranks, "nccl", zero)
                self.losses(ranks, "nccl", zero, "--save-checkpoint", saved, steps=2)
                self.assertEqual(self.losses(ranks, "nccl", zero, "--load-checkpoint", saved, steps=2), expected[2:])

    def test_pipelines_train_as_over_the_devices_own_comm(self):
        for ranks, stages in ((2, 2), (4, 2)) if FULL else ((4, 2),):
            with self.subTest(ranks=ranks):
                expected = self.losses(ranks, "checked", {"stage": 1}, "--pipeline", stages)
                self.assertEqual(len(expected), 4)
                self.assertEqual(self.losses(ranks, "nccl", {"stage": 1}, "--pipeline", stages), expected)

    def test_every_rank_ends_by_itself_and_says_what_is_wrong(self):
        lost = "another rank has ended, or its connection is lost"
        # A collective that never ends: every rank's deadline comes at about the same time, and the first to meet it ends.
        late = "did not complete in 7 s: a rank is late|has ended after an error in|" + lost
        duplicate = 'Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000): two ranks of a host have the same GPU'
        refused = "socketStartConnect: Connect to 10.0.0.3<4712> failed : Connection refused"
        interface = "NCCL_SOCKET_IFNAME, which is 'eth7', chooses the interface (as 'eth0')"
        # The fault, what the rank with it says (None: it is killed), and what the others say ("|" divides alternatives).
        faults = [("fault=async_error;rank=1;at=7", "10.0.0.2<4711> has closed the connection on eth0", lost),
                  ("fault=die;rank=1;at=7", None, "rank 1 has died in backward() of step 2"),
                  ("fault=silent;rank=1;at=7", late, late),
                  ("fault=no_init;rank=1", "(rank 1 of {ranks}): ncclCommInitRankConfig has not ended in time, " + refused +
                   " (4 s): all ranks have come, so a connection between them fails: NCCL_DEBUG=INFO shows which; " + interface,
                   "NCCL_SOCKET_IFNAME"),
                  ("fault=no_connection;rank=1", "(rank 1 of {ranks}): ncclCommInitRankConfig: unhandled system error (" + refused +
                   "): set NCCL_DEBUG=INFO to see the interface and the call; " + interface, "NCCL_SOCKET_IFNAME"),
                  ("fault=no_id;rank=0", "ncclGetUniqueId: unhandled system error: the library finds no network interface", "rank 0"),
                  ("fault=lost_id;rank=0", None, "the store lives in rank 0"),
                  ("fault=duplicate", duplicate, duplicate)]
        for fault, own, others in faults:
            faulty = int(fault.split("rank=")[1][0]) if "rank=" in fault else 0
            for ranks in (2, 3, 4) if FULL else (3,):
                with self.subTest(fault=fault, ranks=ranks):
                    healthy = max(each[2] for each in self.run_apart(ranks, {"stage": 2}, "", steps=2))
                    for rank, (code, output, seconds) in enumerate(self.run_apart(ranks, {"stage": 2}, fault)):
                        said = output + f"\n(rank {rank}, exit code {code}, {seconds:.1f} s; without a fault: {healthy:.1f} s)"
                        expected = own if rank == faulty else others
                        self.assertEqual(code < 0, expected is None, said)
                        self.assertNotEqual(code, 0, said)
                        self.assertNotIn("this is a fault of the plugin", output)
                        if expected:
                            expected = expected.replace("{ranks}", str(ranks))
                            self.assertTrue(any(each in output for each in expected.split("|")), said)
                        self.assertLess(seconds - healthy, DEADLINE + 10, said)

    def test_a_rank_that_dies_in_any_collective_is_named(self):
        for stage, launches in ((2, (1, 2, 3, 4, 5, 6, 8, 12, 20)), (3, (1, 3, 9, 27, 40))) if FULL else ((3, (1, 27)),):
            for launch in launches:
                with self.subTest(stage=stage, launch=launch):
                    begun = self.run_apart(3, {"stage": stage, "stage3_param_persistence_threshold": 200}, f"fault=die;rank=1;at={launch}")
                    for rank, (code, output, seconds) in enumerate(begun):
                        said = output + f"\n(rank {rank}, exit code {code}, {seconds:.1f} s)"
                        self.assertEqual(code < 0, rank == 1, said)
                        if rank != 1:
                            self.assertNotEqual(code, 0, said)
                            self.assertRegex(output, "rank 1 has died (in|after) ", said)
                        self.assertLess(seconds, 60, said)


if __name__ == "__main__":
    unittest.main()
