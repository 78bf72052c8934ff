"""`gannet plugins bench`: its table has every optimizer of the files, and its mistakes have sentences. No time is judged."""
import os
import pathlib
import subprocess
import unittest

GANNET = pathlib.Path(os.environ["GANNET"])
PLUGINS = GANNET.parent.parent / "lib/gannet"


def bench(*words, code=0):
    done = subprocess.run([GANNET, "plugins", "bench", *map(str, words)], text=True, timeout=120, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == code, done.stdout
    return done.stdout


def rows(text):
    table = text.split("optimizer  ")[1].split("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line.split()[1:] for line in table}


class Bench(unittest.TestCase):
    def test_each_optimizer_has_a_row_with_its_bytes(self):
        files = [PLUGINS / f"gannet_optimizer_{name}.so" for name in ("adam", "lars", "prodigy", "muon", "adafactor", "adam8bit")]
        found = rows(bench(*files, "--numel", 65536, "--rounds", 3))
        # Parameter and states both ways, the gradient one way.
        expected = {"AdamW": 28, "LARS": 20, "Prodigy": 44}
        self.assertEqual({name: float(found[name][2]) for name in expected}, expected)
        self.assertLessEqual({"Muon", "Adafactor", "AdamW8bit"}, set(found))
        self.assertEqual(found["AdamW"][-1], "1.000")
        self.assertTrue(all(float(row[1]) > 0 for row in found.values()))

    def test_16_bit_types_and_chosen_plugins(self):
        text = bench(PLUGINS / "gannet_optimizer_adam.so", "--plugin", "AdamW", "--dtype", "bf16", "--numel", 65536, "--rounds", 1,
                     "--params", '{"weight_decay": 0.1}')
        self.assertEqual(list(rows(text)), ["AdamW"])
        self.assertEqual(float(rows(text)["AdamW"][2]), 28)  # 12 + 12 and 2 + 2
        found = rows(bench(PLUGINS / "gannet_optimizer_adamw_bf16.so", "--numel", 65536, "--rounds", 1))
        self.assertEqual(float(found["AdamWBF16"][2]), 14)  # bf16 alone is what it takes
        self.assertEqual(float(rows(bench(PLUGINS / "gannet_optimizer_lars.so", "--numel", 65536, "--rounds", 1, "--bytes", 28))
                               ["LARS"][2]), 28)

    def test_mistakes(self):
        self.assertIn("there is no plugin file", bench("nothing.so", code=2))
        self.assertIn("has no optimizer for the host's memory", bench(PLUGINS / "gannet_scheduler_one_cycle.so", code=2))
        self.assertIn("--plugin", bench(PLUGINS / "gannet_optimizer_lars.so", "--plugin", "Lion", code=2))
        self.assertIn("none of the optimizers has a parameter 'momentun'",
                      bench(PLUGINS / "gannet_optimizer_lars.so", PLUGINS / "gannet_optimizer_adam.so", "--numel", 65536,
                            "--rounds", 1, "--params", '{"weight_decay": 0.1, "momentun": 0.5}', code=2))
        self.assertIn("fp8", bench(PLUGINS / "gannet_optimizer_lars.so", "--dtype", "fp8", code=2))


if __name__ == "__main__":
    unittest.main()
