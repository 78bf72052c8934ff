"""gannet doctor: what it says of this machine, and that it names what was broken on purpose."""
import json
import os
import shutil
import socket
import struct
import unittest

from support import BAD, BUILD, Case

PLUGINS = BUILD / "lib" / "gannet"


def without_code(library):
    """The same shared object with an illegal instruction in place of every one, as a bad disk leaves it: opening it crashes."""
    library = bytearray(library)
    table, = struct.unpack_from("<Q", library, 0x28)
    size, count = struct.unpack_from("<HH", library, 0x3A)
    for at in range(table, table + size * count, size):
        flags, _, offset, length = struct.unpack_from("<QQQQ", library, at + 8)
        if flags & 4:  # holds instructions
            library[offset:offset + length] = (b"\x0f\x0b" * length)[:length]  # of x86; on Arm it is none either
    return bytes(library)


class Doctor(Case):
    def diagnose(self, **variables):
        return json.loads(self.gannet("doctor", "--json", **variables))

    def put(self, *names):
        for name in names:
            shutil.copy(BAD / f"{name}.so", self.folder)
        return {"GANNET_PLUGIN_PATH": str(self.folder)}

    def state(self, diagnosis, file):
        for found in diagnosis["plugins"]:
            if found["file"].endswith("/" + file):
                return found["state"] + ": " + found["remark"]
        return "not listed"

    def test_knows_every_plugin_of_the_build_and_what_auto_picks(self):
        diagnosis = self.diagnose()
        self.assertEqual(diagnosis["well"], diagnosis["problems"] == [])
        for file in PLUGINS.glob("*.so"):
            self.assertNotEqual(self.state(diagnosis, file.name), "not listed", file)
        for name in ("accelerator_cpu", "comm_local", "optimizer_adam", "scheduler_warmup_lr", "offload_cpu"):
            self.assertRegex(self.state(diagnosis, f"gannet_{name}.so"), "^usable", name)
        facts = diagnosis["facts"]
        self.assertRegex(facts["versions"]["LibTorch"], r"^2\.\d+\.\d+")
        self.assertGreater(facts["memory"]["built in"]["value"], 1 << 28)
        self.assertEqual(facts["processor"]["cores"]["value"], len(os.sched_getaffinity(0)))
        self.assertRegex(facts['what "auto" picks']["accelerator"]["text"], r"^[a-z]+ \(cuda")

    def test_a_plugin_for_a_device_that_is_not_here_is_a_note_and_no_problem(self):
        diagnosis = self.diagnose(**self.put("fails_in_create"))
        self.assertRegex(self.state(diagnosis, "fails_in_create.so"), "^not here: .*the coprocessor in slot 2 does not answer")
        self.assertIn("slot 2", json.dumps(diagnosis["notes"]))
        self.assertNotIn("slot 2", json.dumps(diagnosis["problems"]))
        if (PLUGINS / "gannet_accelerator_cuda.so").exists() and not os.path.exists("/dev/nvidia0"):
            self.assertRegex(self.state(diagnosis, "gannet_accelerator_cuda.so"), "^not here: .*driver")
            self.assertNotIn("cuda", json.dumps(diagnosis["problems"]))

    def test_names_each_plugin_that_is_broken_and_why(self):
        variables = self.put("missing_dependency", "wrong_fingerprint", "throws_across", "null_function")
        whole = (PLUGINS / "gannet_optimizer_sgd.so").read_bytes()
        (self.folder / "cut_in_half.so").write_bytes(whole[:len(whole) // 2])
        (self.folder / "cut_short.so").write_bytes(whole[:40])
        (self.folder / "crashes.so").write_bytes(without_code(whole))
        self.gannet("doctor", "--json", code=1, **variables)
        diagnosis = self.diagnose(**variables)
        expected = {
            "missing_dependency": "needs the library libgannet_gone.so, which is not found",
            "wrong_fingerprint": "is built for another host: torch is",
            "throws_across": "threw an exception across the plugin contract",
            "null_function": "breaks the plugin contract",
            "crashes": r"was opened and tried: it ended the process with (signal \d+|exit code)",
            "cut_in_half": "",
            "cut_short": "",
        }
        for name, reason in expected.items():
            with self.subTest(name):
                self.assertRegex(self.state(diagnosis, f"{name}.so"), "^broken: .*" + reason)
                named = [p for p in diagnosis["problems"] if f"/{name}.so " in p["what"]]
                self.assertEqual(len(named), 1)
                self.assertTrue(named[0]["next_step"])
        # Those of the build are judged for themselves.
        self.assertRegex(self.state(diagnosis, "gannet_optimizer_sgd.so"), "^usable")

    def test_a_plugin_that_ends_its_process_is_a_row(self):
        variables = self.put("exits", "crashes", "hangs")
        diagnosis = json.loads(self.gannet("doctor", "--json", "--timeout", "4", code=1, **variables))
        for name, end in {"exits": "ended the process with exit code 0", "hangs": "did not return within 4 s",
                          "crashes": r"ended the process with signal 11 \(Segmentation fault\)"}.items():
            with self.subTest(name):
                self.assertRegex(self.state(diagnosis, f"{name}.so"), "^broken: was opened and tried: it " + end)
        self.assertRegex(self.state(diagnosis, "gannet_optimizer_sgd.so"), "^usable")

    def test_is_not_held_up_by_what_is_no_file(self):
        os.mkfifo(self.folder / "fifo.so")
        os.symlink("/dev/zero", self.folder / "zero.so")
        diagnosis = json.loads(self.gannet("doctor", "--json", code=1, GANNET_PLUGIN_PATH=str(self.folder)))
        self.assertEqual(self.state(diagnosis, "fifo.so"), "broken: is not a regular file")
        self.assertEqual(self.state(diagnosis, "zero"), "broken: is not a regular file")

    def test_names_both_files_where_a_plugin_stands_before_gannets_own(self):
        diagnosis = self.diagnose(**self.put("shadows"))
        self.assertRegex(json.dumps(diagnosis["notes"]),
                         r"optimizer plugin SGD \(cpu\) is taken from \S+/shadows\.so, which takes precedence over Gannet's own, \S+/gannet_optimizer_sgd\.so")

    def test_refuses_what_every_user_may_write_unless_the_config_trusts_it(self):
        self.put("shadows")
        file = self.folder / "shadows.so"
        file.chmod(0o666)
        diagnosis = self.diagnose(GANNET_PLUGIN_PATH=str(self.folder))
        self.assertRegex(self.state(diagnosis, "shadows.so"), r"^broken: is not opened: the file \S+ may be written by every user \(mode 0666\)")
        self.assertIn("chmod o-w", json.dumps(diagnosis["problems"]))
        config = {"train_batch_size": 1, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "plugins": {"path": str(file)}}
        self.write("distrusts.json", json.dumps(config))
        self.assertIn("may be written by every user", self.gannet("config", "check", "distrusts.json", code=2))
        self.write("trusts.json", json.dumps(config | {"plugins": {"path": str(file), "allow": str(file)}}))
        self.assertIn("trusts.json: ok", self.gannet("config", "check", "trusts.json", code=0))

    def test_a_plugins_fault_is_not_the_configs(self):
        self.put("unknown_status")
        self.write("c.json", json.dumps({"train_batch_size": 1, "optimizer": {"type": "Bad"},
                                         "plugins": {"path": str(self.folder / "unknown_status.so")}}))
        text = self.gannet("config", "check", "c.json", code=71)
        self.assertIn("failed with status 77 and gave no reason", text)
        self.assertIn("a fault of the plugin Bad 2.7-rc1, not of the config", text)

    def test_ends_its_text_with_numbered_problems(self):
        text = self.gannet("doctor", code=1, **self.put("missing_dependency"))
        self.assertRegex(text, r"\n\d+ problems?:\n(.|\n)*  \d\. optimizer plugin bad \(cpu\) is broken: \S*/missing_dependency\.so needs the "
                               r"library libgannet_gone\.so, which is not found\n     install it, or put its folder into LD_LIBRARY_PATH\n")

    def test_a_library_that_is_no_plugin_is_left_alone(self):
        diagnosis = self.diagnose(**self.put("not_a_plugin"))
        self.assertEqual(self.state(diagnosis, "not_a_plugin.so"), "not listed")
        self.assertIn("not_a_plugin.so is a shared object but not a Gannet plugin", json.dumps(diagnosis["notes"]))

    def test_a_report_tells_no_names_of_host_and_user(self):
        home = self.folder / "wandas_home"
        (home / "plugins").mkdir(parents=True)
        text = self.gannet("doctor", "--report", HOME=str(home), USER="wanda42",
                           GANNET_PLUGIN_PATH=f"{home}/plugins:/home/erwin/plugins:/opt/wanda42/lib")
        for shown in ("### gannet doctor: ", "| accelerator | cpu |", "`<host>`, `<user>`, `~`", "~/plugins", "/home/<user>/plugins", "/opt/<user>/lib"):
            self.assertIn(shown, text)
        for secret in (str(home), "wanda42", "erwin"):
            self.assertNotIn(secret, text)
        if socket.gethostname() != "localhost":
            self.assertNotRegex(text, rf"(?<!\w){socket.gethostname()}(?!\w)")

    def test_checks_a_config_with_the_plugins_that_it_names(self):
        good = '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}'
        self.write("good.json", good)
        self.write("bad.json", good.replace('"lr"', '"lrr"'))
        self.assertRegex(self.gannet("doctor", "--config", "good.json"), r"good\.json +ok for 1 process\n")
        text = self.gannet("doctor", "--config", "bad.json", code=1)
        self.assertRegex(text, r"bad\.json:1:\d+: optimizer plugin AdamW has no parameter 'lrr'; did you mean 'lr'\?")
        self.assertIn("does not exist", self.gannet("doctor", "--config", "none.json", code=1))

    def test_a_report_holds_the_config(self):
        home = self.folder / "wandas_home"
        home.mkdir()
        text = """{
  // of wanda42, in %s/data
  "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": "auto"},
  "comet": {"enabled": false, "api_key": "swordfish"}, "_hub_token" : "s3cret",
  "_note": "```"
}
""" % home
        self.write("ds.json", text)
        variables = {"HOME": str(home), "USER": "wanda42"}
        report = self.gannet("doctor", "--report", "--config", "ds.json", **variables)
        expected = text.replace("wanda42", "<user>").replace(str(home), "~").replace("swordfish", "<hidden>").replace("s3cret", "<hidden>")
        self.assertTrue(report.endswith("\n**ds.json**\n\n````jsonc\n" + expected + "````\n"), report)
        self.assertIn("- ds.json: ok for 1 process", report)
        self.assertIn('"auto" taken as its default: bf16.enabled = false', report)
        self.assertNotIn("jsonc", self.gannet("doctor", "--report", **variables))
        self.write("broken.json", '{"a": \x1b[31m')
        report = self.gannet("doctor", "--report", "--config", "broken.json", code=1)
        self.assertTrue(report.endswith('```jsonc\n{"a": ?[31m\n```\n'), report)

    def test_says_which_variables_of_a_launcher_contradict_one_another(self):
        text = self.gannet("doctor", code=1, RANK="3", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        self.assertRegex(text, r"problems?:\n +1\. .*RANK")


unittest.main()
