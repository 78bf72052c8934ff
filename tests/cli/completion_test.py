"""The completion scripts, run by the shells that they are for."""
import shutil
import subprocess
import unittest

from support import Case


class Completion(Case):
    def offered(self, words):
        """What bash offers after these words, the last of which is being written."""
        if not (self.folder / "script").exists():
            self.write("script", self.gannet("completion", "bash", code=0))
            self.write("ds_config.json", "{}")
            (self.folder / "ds_folder").mkdir()
        ask = f"source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _gannet; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "--norc", "-c", ask], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.split())

    def test_bash_is_offered_commands(self):
        self.assertLessEqual({"bench", "config", "doctor", "run"}, set(self.offered("gannet ''")))
        self.assertEqual(self.offered("gannet che"), ["checkpoint"])
        self.assertEqual(self.offered("gannet config ''"), ["check", "keys", "resolve"])

    def test_bash_is_offered_options_of_the_command_that_is_written(self):
        self.assertEqual(self.offered("gannet run --num"), ["--num-nodes", "--num_accelerators", "--num_gpus", "--num_nodes", "--num_procs"])
        options = self.offered("gannet doctor --")
        self.assertLessEqual({"--config", "--report"}, set(options))
        self.assertNotIn("--num_procs", options)

    def test_bash_is_offered_fixed_choices(self):
        self.assertEqual(self.offered("gannet estimate --dtype ''"), ["bf16", "fp16", "fp32", "fp64"])
        self.assertEqual(self.offered("gannet estimate --dtype = b"), ["bf16"])
        self.assertEqual(self.offered("gannet estimate --ranks 2 --dtype fp"), ["fp16", "fp32", "fp64"])
        self.assertEqual(self.offered("gannet completion ''"), ["bash", "fish", "zsh"])

    def test_bash_is_offered_files_and_folders(self):
        self.assertEqual(self.offered("gannet config check ds_c"), ["ds_config.json"])
        self.assertEqual(self.offered("gannet doctor --config ds_c"), ["ds_config.json"])
        self.assertEqual(self.offered("gannet checkpoint list ds_"), ["ds_folder"])

    def test_a_programs_own_arguments_are_files(self):
        self.assertEqual(self.offered("gannet run --num_procs 2 ./train --num"), [])
        self.assertEqual(self.offered("gannet run --num_procs 2 ./train ds_c"), ["ds_config.json"])

    def test_scripts_of_the_other_shells_are_theirs(self):
        zsh = self.gannet("completion", "zsh", code=0)
        self.assertTrue(zsh.startswith("#compdef gannet\n"))
        self.assertIn("'gannet config') echo 'check resolve keys'", zsh)
        self.assertIn("complete -c gannet -n '__gannet_at estimate' -l dtype -x -a 'bf16 fp16 fp32 fp64'", self.gannet("completion", "fish", code=0))

    def test_zsh_and_fish_read_their_scripts(self):
        read = []
        for shell in ("zsh", "fish"):
            if shutil.which(shell):
                script = self.gannet("completion", shell, code=0)
                done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)
                read.append(shell)
        if len(read) < 2:
            self.skipTest(f"zsh or fish is not installed; read by: {' '.join(read) or 'none'}")


unittest.main()
