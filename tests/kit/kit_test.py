"""`gannet plugins check`: each planted defect is named by the check that it breaks, and every plugin of ours passes."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from defects import DEFECTS, ONE_CHECK

GANNET = pathlib.Path(os.environ["GANNET"])
KIT = GANNET.parent.parent / "libexec/gannet/gannet-kit"
BUILD = pathlib.Path(os.environ["BUILD"])
BAD = pathlib.Path(os.environ["KIT_BAD"])
OURS = BUILD / "lib/gannet"
FULL = os.environ.get("GANNET_TEST_FULL") == "1"

# Defects of one thing alone: the report has one entry, that of the check.
EXACT = {"groupcount", "truncates", "rankstate", "nanaborts", "writesgrad", "writeshyper", "overruns", "underruns", "unseeded",
         "widework", "ownnorm", "halfmoved", "widemove", "heedless", "firststep", "firstwork", "neverskips", "skipshalf",
         "remembers", "writesnumbers", "keepspointer", "deaftofailure", "silentfailure", "silentrefusal", "overclaims", "prints",
         "startsprocess", "limitcrashes", "limitsilent", "fickle", "neverwrites", "needsbase", "writessecond"}
# The entries of the others: their checks overlap, or one comes first.
ENTRIES = {"position": {"halves-equal-whole", "types"}, "fixedrate": {"schedule", "hyperparameters"}, "dropslast": {"other-hosts", "lists"},
           "byorder": {"other-hosts", "lists"}, "onesum": {"other-hosts", "lists"}, "movesparameter": {"inputs-untouched"}}
# Of a file with several plugins: by plugin.
PARAMS_OF = {
    "gannet_optimizer_onebit.so": {
        "OneBitAdam": {"freeze_step": 5},
        "OneBitLamb": {"freeze_step": 5},
        # Each phase, each interval and its end within 40 updates; update 23, where runs are resumed, is a local step.
        "ZeroOneAdam": {"var_freeze_step": 12, "var_update_scaler": 3, "local_step_scaler": 5, "local_step_clipper": 4},
    },
}
PARAMS = {
    "gannet_scheduler_cosine.so": {"total_num_steps": 1000, "warmup_num_steps": 50},
    "gannet_scheduler_cosine_with_restarts.so": {"total_num_steps": 1000, "num_cycles": 3},
    "gannet_scheduler_cosine_with_min_lr.so": {"total_num_steps": 1000, "min_lr": 1e-3},
    "gannet_scheduler_cosine_warmup_with_min_lr.so": {"total_num_steps": 1000, "warmup_num_steps": 50, "min_lr_rate": 0.1},
    "gannet_scheduler_polynomial.so": {"total_num_steps": 1000, "warmup_num_steps": 50, "power": 2.0},
    "gannet_scheduler_warmup_stable_decay.so": {"total_num_steps": 1000, "warmup_num_steps": 50, "num_decay_steps": 200},
    "gannet_scheduler_one_cycle.so": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3},
    "gannet_scheduler_warmup_cosine_lr.so": {"total_num_steps": 1000},
    "gannet_scheduler_warmup_decay_lr.so": {"total_num_steps": 1000},
}


def without_run_path(file, copy):
    """A copy of a library whose own list of folders leads nowhere."""
    dynamic = subprocess.run(["readelf", "-d", file], text=True, capture_output=True, check=True).stdout
    folders = re.search(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic).group(1).encode()
    content = file.read_bytes()
    assert folders in content
    copy.write_bytes(content.replace(folders, b"/" + b"x" * (len(folders) - 1)))


class Kit(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-kit-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def check(self, file, *options, program=GANNET):
        return subprocess.run([program, "plugins", "check", str(file), *options], cwd=self.folder, text=True, timeout=250,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def verdicts(self, file, *options):
        done = self.check(file, "--json", *options)
        self.assertIn(done.returncode, (0, 1), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 if report["failed"] else 0)
        return {p["plugin"].split("/")[-1].split("@")[0]: {c["check"]: c for c in p["checks"]} for p in report["plugins"]}

    def together(self, runs):
        """(key, result) of each callable, in their order, three at a time: many wait for a deadline."""
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            started = [(key, pool.submit(run)) for key, run in runs]
            return [(key, one.result()) for key, one in started]

    def test_every_planted_defect_is_named_by_its_check(self):
        def verdicts(file, plugin, check):
            # Where the other entries of the report are not compared, the other checks run with GANNET_TEST_FULL=1 alone.
            is_whole = check is None or plugin in EXACT or plugin in ENTRIES or FULL
            return self.verdicts(BAD / f"gannet_bad_{file}.so", "--plugin", plugin, "--timeout", "8" if check else "40",
                                 *(() if is_whole else ("--check", check)))[plugin]

        for file, defects in DEFECTS.items():
            listed = subprocess.run([KIT, "plugins", "check", BAD / f"gannet_bad_{file}.so", "--check", "params", "--json"],
                                    cwd=self.folder, text=True, capture_output=True, timeout=250).stdout
            self.assertEqual({p["plugin"].split("/")[-1].split("@")[0] for p in json.loads(listed)["plugins"]} - {"file"},
                             set(defects))
        runs = [((plugin, check), lambda one=(file, plugin, check): verdicts(*one))
                for file, defects in DEFECTS.items() for plugin, check in defects.items()]
        for (plugin, check), found in self.together(runs):
            with self.subTest(plugin):
                failed = [name for name, one in found.items() if one["verdict"] in ("fail", "same")]
                if check is None:
                    self.assertEqual(failed, [])
                    continue
                self.assertIn(check, failed)
                entries = {name for name in failed if found[name]["verdict"] == "fail"}
                if plugin in EXACT:
                    self.assertEqual(entries, {check})
                if plugin in ENTRIES:
                    self.assertEqual(entries, ENTRIES[plugin])
                for name in entries:
                    self.assertTrue(found[name]["found"] and found[name]["expected"])

    def test_every_planted_defect_of_the_other_kinds_is_named_by_its_check(self):
        def verdicts(file, plugin, check):
            params = json.dumps({"folder": str(self.folder)} if plugin == "leavesfiles" else {})
            return self.verdicts(BAD / f"gannet_bad_{file}.so", "--plugin", plugin, "--check", check, "--timeout", "8",
                                 "--params", params)

        runs = [((plugin, check), lambda one=(file, plugin, check): verdicts(*one))
                for file, defects in ONE_CHECK.items() for plugin, check in defects.items()]
        for (plugin, check), found in self.together(runs):
            with self.subTest(plugin):
                self.assertEqual(set(found[plugin]), {check})
                self.assertEqual(found[plugin][check]["verdict"], "fail")
                self.assertTrue(found[plugin][check]["found"])
        for file, sound in (("comms", "soundcomm"), ("comms", "soundmemory"), ("tiers", "soundtier"), ("descriptions", "described"), ("fields", "complete"),
                            ("fields", "separate"), ("losses", "scaled"), ("losses", "frombegin")):
            done = self.check(BAD / f"gannet_bad_{file}.so", "--plugin", sound)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_check_that_is_not_there_is_an_error(self):
        done = self.check(BAD / "gannet_bad_tiers.so", "--check", "zeroes")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("did you mean 'zeros'?", done.stdout)

    def test_a_failure_says_what_was_expected_what_was_found_where_and_what_to_do(self):
        text = self.check(BAD / "gannet_bad_manners.so", "--plugin", "writesgrad").stdout
        self.assertRegex(text, r"FAIL +gradients-untouched +\d")
        self.assertIn("expected  the gradient is never written", text)
        self.assertIn("found     it wrote to the gradient, byte 380 (it ended the process with signal 11", text)
        self.assertIn("in update, step 1, tensor 'scalar' [0, 1), 'one' [0, 1), 'three' [0, 3)", text)
        self.assertIn("to do     use a scratch buffer", text)
        self.assertRegex(text, r"\n\d+ passed, 1 failed, \d+ skipped, 0 excluded\n$")
        text = self.check(BAD / "gannet_bad_results.so", "--plugin", "hangs", "--timeout", "1").stdout
        self.assertIn("it did not return within 1 s", text)
        self.assertIn("in update, step 150", text)
        self.assertIn("exit code 0", self.check(BAD / "gannet_bad_results.so", "--plugin", "exits").stdout)

    def test_every_plugin_of_ours_passes(self):
        def check(file, plugin, of_plugin):
            params = dict(of_plugin)
            if "nvme" in file.name:
                params["nvme_path"] = str(self.folder)
            excluded = pathlib.Path(__file__).parent / f"{file.stem.rsplit('_', 1)[-1]}.exclusions"
            options = ("--exclusions", excluded) if excluded.exists() else ()
            options += ("--plugin", plugin) if plugin else ()
            return self.check(file, "--params", json.dumps(params), *options)

        runs = [((file.name, plugin), lambda one=(file, plugin, of_plugin): check(*one)) for file in sorted(OURS.glob("*.so"))
                for plugin, of_plugin in PARAMS_OF.get(file.name, {None: PARAMS.get(file.name, {})}).items()]
        for (name, plugin), done in self.together(runs):
            with self.subTest(name, plugin=plugin):
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_kept_binaries_of_older_minors_pass(self):
        exclusions = self.folder / "drawn.exclusions"
        squares = "the squares of `drawn` have grad_scale once, where the gradient is there twice"
        exclusions.write_text(f"gradient-scale {squares}\ntypes {squares}\n")
        kept = sorted((pathlib.Path(__file__).parent.parent / "sdk/kept").glob("*/*.so"))
        self.assertGreater(len(kept), 10)
        runs = [(file, lambda file=file: self.check(file, *(("--exclusions", exclusions) if file.stem == "drawn" else ())))
                for file in kept]
        for file, done in self.together(runs):
            with self.subTest(file):
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_one_cause_is_one_entry(self):
        text = self.check(BAD / "gannet_bad_authors.so", "--plugin", "crashingsupports").stdout
        self.assertEqual(text.count("FAIL"), 1, text)
        self.assertRegex(text, r"same +repeatable +it fails as '[a-z-]+' does")

    def test_plugins_that_use_all_of_the_contract_pass(self):
        exclusions = self.folder / "silent.exclusions"
        exclusions.write_text("schedule  optimizer/silent updates nothing, at any rate\n")
        for name, options in (("whole", ()), ("later", ("--plugin", "noisy")), ("lists", ("--plugin", "plain")), ("lists", ("--plugin", "ondevice")), ("later", ("--plugin", "shampoo", "--params", '{"limit": 16}')), ("contract", ("--plugin", "contract")), ("contract", ("--plugin", "rateless")),
                              ("contract", ("--plugin", "silent", "--exclusions", exclusions))):
            with self.subTest(options):
                done = self.check(BUILD / f"tests/plugins/gannet_test_{name}.so", *options)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_pinned_plugin_whose_libtorch_is_not_found_is_an_error_with_what_to_do(self):
        file = OURS / "gannet_comm_gloo.so"
        if not file.exists():
            self.skipTest("gloo is not built")
        moved = self.folder / file.name
        without_run_path(file, moved)
        done = self.check(moved)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("which is not found; it is of the pinned tier", done.stdout)
        self.assertIn("LD_LIBRARY_PATH=/path/to/libtorch/lib gannet plugins check FILE", done.stdout)

    def test_exclusions_are_printed_with_their_reason_and_checked(self):
        file, bad = self.folder / "x", BAD / "gannet_bad_manners.so"
        file.write_text("# what is known\ngradients-untouched  scratch of ours\n")
        done = self.check(bad, "--plugin", "writesgrad", "--exclusions", file)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"excluded +gradients-untouched +scratch of ours")
        for text, answer in (("gradient-untouched why", "did you mean 'gradients-untouched'?"), ("bounds", "without a reason")):
            file.write_text(text)
            done = self.check(bad, "--plugin", "writesgrad", "--exclusions", file)
            self.assertEqual(done.returncode, 2)
            self.assertIn(answer, done.stdout)

    def test_params_are_those_of_the_config(self):
        done = self.check(BAD / "gannet_bad_results.so", "--plugin", "sound", "--params", '{"rl": 1}')
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("has no parameter 'rl'; did you mean 'lr'?", done.stdout)
        done = self.check(BAD / "gannet_bad_results.so", "--plugin", "sound", "--params", "lr=1")
        self.assertIn("--params is not a JSON dictionary", done.stdout)

    def test_a_schedule_that_needs_a_length_asks_for_it(self):
        file = OURS / "gannet_scheduler_cosine.so"
        done = self.check(file)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("the schedule needs the length of the run", done.stdout)
        self.assertIn("""--params '{"total_num_steps": 1000}'""", done.stdout)
        self.assertNotIn("FAIL", done.stdout)
        self.assertEqual(self.check(file, "--params", '{"total_num_steps": 1000}').returncode, 0)

    def test_a_reference_of_the_same_rule_is_matched_and_another_is_not(self):
        bad = BAD / "gannet_bad_results.so"
        options = ("--plugin", "sound", "--reference", bad)
        same = self.check(bad, *options)
        self.assertEqual(same.returncode, 0, same.stdout)
        self.assertRegex(same.stdout, r"pass +reference")
        other = self.check(bad, *options, "--reference-params", '{"lr": 0.011}')
        self.assertRegex(other.stdout, r"FAIL +reference")
        self.assertIn("differs by", other.stdout)
        self.assertEqual(self.check(bad, *options, "--reference-params", '{"lr": 0.011}', "--tolerance", "10").returncode, 0)

    def test_it_needs_nothing_but_the_system(self):
        for program in (KIT, GANNET):
            libraries = subprocess.run(["ldd", program], text=True, capture_output=True).stdout
            for other in ("torch", "fmt", "boost", "spdlog", "gomp"):
                self.assertNotIn(other, libraries)


unittest.main()
