"""gannet config check | resolve as a person runs them: every mistake at once, plugins and all. And checkpoint list's exit code."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import BUILD, GANNET, Case

PLAIN = '{"train_micro_batch_size_per_gpu": 1, %s}'


class Config(Case):
    def on_a_drive(self):
        """A folder with a folder `data`, where files can be read past the cache: /tmp may be in memory."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cli-drive-", dir=BUILD)).resolve()
        self.addCleanup(shutil.rmtree, folder)
        (folder / "data").mkdir()
        return folder

    def check(self, text, *options, code):
        return self.gannet("config", "check", self.write("c.json", text), *options, code=code)

    def test_check_tells_every_mistake_of_a_file(self):
        text = self.check("""{
  "train_batch_sise": 8,
  "gradient_clipping": "much",
  "fp16": {"enabled": true, "loss_scale": -1, "hysterese": 2},
  "optimizer": {"type": "AdmW", "params": {"lr": 1e-3}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_stepz": 5, "warmup_max_lr": "high"}}
}""", code=2)
        for mistake in (r"c\.json:2:3: unknown key 'train_batch_sise' at the top level; did you mean 'train_batch_size'\?\n  \(",
                        r"c\.json:3:3: gradient_clipping must be", r"c\.json:4:\d+: fp16.loss_scale must be",
                        r"c\.json:4:\d+: unknown key 'hysterese' in fp16; did you mean 'hysteresis'\?",
                        r"c\.json:5:\d+: there is no optimizer plugin 'AdmW' for device '[a-z]+'; did you mean 'adamw'\?",
                        r"c\.json:6:\d+: scheduler plugin WarmupLR has no parameter 'warmup_num_stepz'; did you mean 'warmup_num_steps'\?",
                        r"c\.json:6:\d+: parameter 'warmup_max_lr' of scheduler plugin WarmupLR: expected"):
            self.assertRegex(text, "gannet: " + mistake)
        self.assertIn("gannet: c.json has 7 mistakes; whether its values fit together is not checked until the keys are right\n", text)
        self.assertNotIn("neither train_batch_size nor", text, "what follows from a misspelt key alone")

    def test_check_tells_independent_values_that_do_not_fit_together(self):
        text = self.check("""{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
 "fp16": {"enabled": true}, "bf16": {"enabled": true}, "optimizer": {"params": {"lr": 1}}}""", "--no-plugins", code=2)
        for mistake in ("train_batch_size 7", "bf16 and fp16 are both enabled", "optimizer has params and no type", "c.json has 3 mistakes\n"):
            self.assertIn(mistake, text)

    def test_check_opens_the_plugins_unless_they_are_to_be_left_alone(self):
        wrong_param = PLAIN % '"optimizer": {"type": "AdamW", "params": {"beta": 1}}'
        self.check(wrong_param, code=2)
        self.assertIn("c.json: ok", self.check(wrong_param, "--no-plugins", code=0))
        for member, answer in (('"comm": {"type": "glo"}', "there is no comm plugin 'glo'"),
                               ('"accelerator": {"type": "cup"}', "did you mean 'cpu'?"),
                               ('"plugins": {"path": ["not/here.so"]}', "not/here.so"),
                               ('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}',
                                "offload plugin nvme needs the parameter 'nvme_path'"),
                               ('"scheduler": {"type": "cosine_with_min_lr"}', "neither min_lr nor min_lr_rate is given"),
                               ('"scheduler": {"type": "WarmupDecayLR"}', "needs the parameter 'total_num_steps'")):
            with self.subTest(member):
                self.assertIn(answer, self.check(PLAIN % member, code=2))

    def test_check_accepts_what_is_right_and_tells_what_has_no_effect(self):
        text = self.check(PLAIN % '"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}, "aio": {"queue_depth": 4}', code=0)
        self.assertRegex(text, r"^c\.json: ok\n  no effect: aio.queue_depth")

    def test_a_schedule_may_have_the_length_of_the_run_from_the_config(self):
        text = self.check(PLAIN % '"optimizer": {"type": "AdamW"}, "scheduler": {"type": "cosine"}, "gannet": {"total_steps": 50}', code=0)
        self.assertEqual(text, "c.json: ok\n")

    def test_a_schedule_that_lacks_the_length_of_the_run_alone_is_right_for_the_trainer(self):
        for scheduler in ('{"type": "cosine"}', '{"type": "polynomial", "params": {"warmup_num_steps": 3}}',
                          '{"type": "warmup_stable_decay", "params": {"num_decay_steps": 5}}',
                          '{"type": "cosine_with_min_lr", "params": {"min_lr": 0}}'):
            with self.subTest(scheduler):
                text = self.check(PLAIN % ('"optimizer": {"type": "AdamW"}, "scheduler": ' + scheduler), code=0)
                self.assertRegex(text, r"^c\.json: ok\n  c\.json:1:\d+: scheduler '\w+' needs the number of updates of the run: the Trainer "
                                       r"gives it from its data; for another program set gannet\.total_steps\n$")
                self.assertIn("gannet.total_steps", self.gannet("schedule", "c.json", "--steps", "3", code=2))

    def test_parameter_groups_are_checked_shown_and_scheduled(self):
        config = """{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, %s}, "param_groups": [
   {"match": "*.bias", %s},
   {"match": "*embed*", "lr": 1e-4}]},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [%s], "warmup_num_steps": 2, "warmup_type": "linear"}}}"""
        text = self.check(config % ('"epz": 1', '"wieght_decay": 0, "betas": [3, 1]', "0.1, 0.2"), code=2)
        for mistake in (r"c\.json:1:\d+: optimizer plugin AdamW has no parameter 'epz'",
                        r"c\.json:2:24: optimizer plugin AdamW has no parameter 'wieght_decay'; did you mean 'weight_decay'\?",
                        r"c\.json:2:43: parameter 'betas' of optimizer plugin AdamW: expected",
                        r"c\.json:4:36: scheduler plugin WarmupLR .*: expected 3 values for 'warmup_max_lr', got 2"):
            self.assertRegex(text, "gannet: " + mistake)
        self.assertIn("c.json has 4 mistakes\n", text, "what all groups share is told once")
        good = self.write("c.json", config % ('"eps": 1e-8', '"weight_decay": 0', "0.1, 0.2, 0.3"))
        self.assertEqual(self.gannet("config", "check", good, code=0), "c.json: ok\n")
        resolved = self.gannet("config", "resolve", good, code=0)
        self.assertRegex(resolved, r'optimizer.param_groups.1 = \{"match": "\*embed\*", "lr": 1e-04\} +# c\.json:3:5\n')
        self.assertEqual(self.gannet("schedule", good, "--steps", "3", code=0), "step,lr,lr_1,lr_2\n0,0.0,0.0,0.0\n1,0.0,0.0,0.0\n2,0.05,0.1,0.15\n")
        self.assertIn("8 bytes of optimizer states", self.gannet("estimate", "--parameters", "1M", "--config", good, code=0))
        self.assertIn("optimizer.param_groups\n    objects, default [] [active]", self.gannet("config", "keys", "optimizer", code=0))

    def test_untested_optimizers_are_a_list_of_deepspeeds(self):
        text = self.check(PLAIN % '"zero_allow_untested_optimizer": true, "optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 2}', code=0)
        self.assertIn("no effect: zero_allow_untested_optimizer (DeepSpeed refuses optimizers under ZeRO that are not on its list", text)
        self.assertIn("it reads each plugin's capabilities", text)

    def test_text_that_is_no_json_stops_at_the_first_mistake(self):
        text = self.check('{"a": 1,, "b": }', code=2)
        self.assertRegex(text, r"^gannet: c\.json:1:\d+: ")
        self.assertNotIn("mistakes", text)

    def test_set_takes_json_values(self):
        config = self.write("c.json", PLAIN % '"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.999]}}')
        text = self.gannet("config", "resolve", config, "--set", "optimizer.params.betas=[0.9, 0.98]", "--set", "gradient_clipping=0.5", "--set",
                           'fp16={"enabled": true}', code=0)
        for line in (r"optimizer.params.betas = \[0\.9, 0\.98\] +# --set", r"gradient_clipping = 0\.5 +# --set", r"fp16.enabled = true +# --set"):
            self.assertRegex(text, line)
        self.assertRegex(self.gannet("config", "resolve", config, "--set", "optimizer.params.betas=[0.9,", code=2), "the value is not JSON.*\n.*in quotes for the shell")
        self.assertIn("--set: parameter 'betas' of optimizer plugin AdamW", self.gannet("config", "check", config, "--set", "optimizer.params.betas=[2,2]", code=2))
        self.assertIn("--set: unknown key 'gradient_cliping'", self.gannet("config", "check", config, "--set", "gradient_cliping=1", code=2))

    def test_check_takes_several_files_and_the_standard_input(self):
        good, bad = self.write("good.json", PLAIN % '"gradient_clipping": 1'), self.write("bad.json", PLAIN % '"gradient_cliping": 1')
        other = self.write("other.json", PLAIN % '"gradient_clipping": "much"')
        text = self.gannet("config", "check", good, bad, "none.json", other, code=2)
        for said in ("good.json: ok\n", "bad.json:1:", "none.json", "other.json:1:"):
            self.assertIn(said, text)
        self.assertIn("good.json: ok\n", self.gannet("config", "check", good, good, code=0))
        for given, code, said in ((PLAIN % '"gradient_clipping": 1', 0, "/dev/stdin: ok"), ('{"a": 1}', 2, "/dev/stdin:1:2: unknown key 'a'")):
            done = subprocess.run([GANNET, "config", "check", "-"], input=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn(said, done.stdout)

    def test_resolve_and_schedule_read_the_standard_input(self):
        run = lambda *words: subprocess.run([GANNET, *words], input=PLAIN % '"optimizer": {"type": "SGD", "params": {"lr": 0.5}}', text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60).stdout
        self.assertRegex(run("config", "resolve", "-"), r"optimizer\.params\.lr = 0\.5 +# /dev/stdin:1:")
        self.assertEqual(run("schedule", "-", "--steps", "1"), "step,lr\n0,0.5\n")

    def test_resolve_refuses_what_check_refuses(self):
        config = self.write("c.json", PLAIN % '"optimizer": {"type": "SGD", "params": {"momentum": -5}}')
        said = "parameter 'momentum' of optimizer plugin SGD: expected a number >= 0, found -5"
        self.assertIn(said, self.gannet("config", "check", config, code=2))
        text = self.gannet("config", "resolve", config, code=2)
        self.assertIn(said, text)
        self.assertNotIn("optimizer.type", text)
        self.assertIn("optimizer.params.momentum = -5", self.gannet("config", "resolve", config, "--no-plugins", code=0))

    def test_batch_sizes_are_meant_for_the_ranks_with_data_of_their_own(self):
        config = self.write("c.json", '{"train_batch_size": 64, "gannet": {"mesh": {"pipe": 2, "tensor": 2}}}')
        text = self.gannet("config", "resolve", config, "--world-size", "8", code=0)
        self.assertIn("# world size 2 (the ranks with data of their own, of 8 in the mesh)", text)
        self.assertRegex(text, r"train_micro_batch_size_per_gpu = 32 ")
        self.assertIn("ok", self.gannet("config", "check", config, "--world-size", "8", code=0))
        for command in ("check", "resolve"):
            self.assertIn("6 ranks do not divide into the config's mesh: pipe 2, tensor 2",
                          self.gannet("config", command, config, "--world-size", "6", code=2))
        both = self.gannet("config", "check", self.write("both.json", '{"train_batch_size": 64, "fp16": {"enabled": true}, "bf16": {"enabled": true}, '
                                                         '"gannet": {"mesh": {"tensor": 4}}}'), "--world-size", "6", code=2)
        self.assertIn("6 ranks do not divide into the config's mesh", both)
        self.assertIn("bf16", both)  # a mistake of the mesh hides no other
        stages = self.write("s.json", '{"train_batch_size": 6, "train_micro_batch_size_per_gpu": 2, "pipeline": {"stages": 3}}')
        self.assertIn("for 3 processes", self.gannet("config", "check", stages, "--set", "gradient_accumulation_steps=3", code=0))
        self.assertIn("world size 1 (the ranks with data of their own, of 3", self.gannet("config", "resolve", stages, "--world-size", "3", code=0))

    def test_an_auto_that_becomes_a_default_is_said(self):
        text = self.check(PLAIN % '"bf16": {"enabled": "auto"}', code=0)
        self.assertEqual(text, 'c.json: ok\n  "auto" taken as its default: bf16.enabled = false\n')
        text = self.check('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", '
                          '"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, "fp16": "auto", "accelerator": {"type": "auto"}}', code=0)
        self.assertIn('  "auto" taken as its default: gradient_accumulation_steps = 1, fp16 = {}, zero_optimization.reduce_bucket_size = 500000000\n', text)
        computed = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"}'
        self.assertEqual(self.check(computed, code=0), "c.json: ok\n")
        text = self.check(PLAIN % '"zero_optimization": {"cpu_offload": "auto"}', code=0)
        self.assertIn('"auto" taken as its default: zero_optimization.cpu_offload = false\n', text)

    def test_names_that_texts_use_lead_to_the_key(self):
        for member, meant in (('"train_micro_batch_size": 1', "'train_micro_batch_size_per_gpu'"), ('"bfp16": {"enabled": true}', "'bf16'"),
                              ('"fp16": {"clip": 1.0}', "'gradient_clipping' at the top level"), ('"fp16.clip": 1.0', "'gradient_clipping'"),
                              ('"fp16.loss_scale": 8', "'loss_scale' in fp16"), ('"max_grad_norm": 1', "'gradient_clipping'"),
                              ('"gradient_accumulation": 2', "'gradient_accumulation_steps'"), ('"zero_stage": 2', "'stage' in zero_optimization"),
                              ('"fp16": {"initial": 4}', "'initial_scale_power'"),
                              ('"flops_profiler": {"module": 1}', "'module_depth'")):
            with self.subTest(member):
                text = self.check("{%s}" % member, "--no-plugins", code=2)
                self.assertIn(f"; did you mean {meant}?\n  (add a leading underscore", text)
        text = self.check(PLAIN % '"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params": {"warmup": 3}}', code=2)
        self.assertIn("; did you mean 'warmup_min_lr', 'warmup_max_lr', 'warmup_num_steps' or 'warmup_type'?", text)
        text = self.check(PLAIN % '"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 3}}', code=2)
        self.assertIn("'warmup_steps'; did you mean 'warmup_num_steps'?", text)
        text = self.check(PLAIN % '"zero_optimization": {"bucket_size": 3}', code=2)
        self.assertRegex(text, r"; did you mean .reduce_bucket_size.*\?")

    def test_a_fractional_size_is_rounded_down_and_said(self):
        text = self.check(PLAIN % '"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 943718.4}', code=0)
        self.assertRegex(text, r"^c\.json: ok\n  c\.json:1:\d+: zero_optimization.stage3_prefetch_bucket_size = 943718\.4 is rounded down to 943718: a size is a whole number\n$")
        resolved = self.gannet("config", "resolve", "c.json", code=0)
        self.assertRegex(resolved, r"zero_optimization.stage3_prefetch_bucket_size = 943718 +#")
        self.assertNotIn("rounded", self.check(PLAIN % '"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8}', code=0))
        for member in ('"steps_per_print": 5.5', '"zero_optimization": {"stage": 0.5}', '"zero_optimization": {"reduce_bucket_size": -0.5}',
                       '"aio": {"queue_depth": 8.5}', '"aio": {"block_size": 0.5}'):
            with self.subTest(member):
                self.assertRegex(self.check(PLAIN % member, code=2), r"must be an integer ?[^,]*, found -?\d+\.5\n")

    def resolve(self, config, arguments, *options, code=0, name="arguments.json"):
        return self.gannet("config", "resolve", self.write("c.json", config), "--arguments", self.write(name, arguments), *options, code=code)

    def test_arguments_that_fill_auto_are_checked(self):
        text = self.resolve("{}", """{"lerning_rate": 1e-3, "max_grad_norm": "much", "adam_beta1": 1.5, "fp16": true, "bf16": true,
 "per_gpu_train_batch_size": 4, "per_device_train_batch_size": 8}""", code=2)
        for mistake in ("unknown argument 'lerning_rate'; did you mean 'learning_rate'?", 'argument max_grad_norm takes a finite number, found the text "much"',
                        "argument adam_beta1 is 1.5, allowed: from 0, below 1", "fp16 and bf16 are both on: choose one",
                        "argument per_device_train_batch_size is 8, and per_gpu_train_batch_size, another name of it, is 4: keep one"):
            self.assertIn("arguments.json: " + mistake, text)
        for name in ("a.json", "a.yaml"):
            self.assertIn("is empty: it names no argument\n  (give arguments; {} stands for every default)", self.resolve("{}", "\n", code=2, name=name))
        self.assertIn("cannot open the file of arguments none.json", self.gannet("config", "resolve", "c.json", "--arguments", "none.json"))

    def test_an_argument_fills_under_each_of_its_names_and_from_yaml(self):
        auto = '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}'
        for name, arguments in (("a.json", '{"per_gpu_train_batch_size": 4, "learning_rate": 0.5, "max_steps": 10}'), ("a.yaml", "per_gpu_train_batch_size: 4\nlearning_rate: 0.5\nmax_steps: 10\n")):
            text = self.resolve(auto, arguments, name=name)
            self.assertRegex(text, r"train_micro_batch_size_per_gpu = 4 +# auto: per_device_train_batch_size\n")
            self.assertRegex(text, r"optimizer.params.lr = 0\.5 +# auto: learning_rate\n")
        apex = self.resolve('{"amp": {"enabled": "auto", "opt_level": "auto"}}', '{"fp16": true, "fp16_backend": "apex", "fp16_opt_level": "O2", "max_steps": 10}')
        self.assertRegex(apex, r'amp.enabled = true +# auto: fp16, fp16_backend\namp.opt_level = "O2"')
        # A default that is given contradicts a config, one that is not given does not.
        differs = '{"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}'
        self.assertIn("optimizer.params.lr = 0.5", self.resolve(differs, '{"max_steps": 10}'))
        self.assertIn("but learning_rate gives 5e-05", self.resolve(differs, '{"learning_rate": 5e-05, "max_steps": 10}', code=2))

    def test_what_only_the_data_of_a_run_tells_is_known_when_training_starts(self):
        later = r' = "auto" +# known when training starts\n'
        auto = '{"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "%s", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}}}'
        text = self.resolve(auto % "WarmupDecayLR", '{"num_train_epochs": 3, "learning_rate": 0.5}')
        self.assertRegex(text, "scheduler.params.total_num_steps" + later)
        self.assertRegex(text, r"scheduler.params.warmup_num_steps = 1 +# auto: warmup_steps, warmup_ratio\n")
        self.assertRegex(text, r"optimizer.params.lr = 0\.5 +# auto: learning_rate\n")
        text = self.resolve(auto % "WarmupDecayLR", '{"num_train_epochs": 3, "warmup_ratio": 0.1}')
        self.assertRegex(text, "scheduler.params.total_num_steps" + later)
        self.assertRegex(text, "scheduler.params.warmup_num_steps" + later)
        for arguments in ('{"num_train_epochs": 3}', '{"lr_scheduler_type": "cosine", "warmup_ratio": 0.1}'):
            text = self.resolve('{"gradient_clipping": "auto"}', arguments)
            self.assertRegex(text, "scheduler.params.total_num_steps" + later)
            self.assertRegex(text, r"gradient_clipping = 1\.0 +# auto: max_grad_norm\n")

    def test_the_number_of_updates_may_be_given(self):
        auto = '{"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}}}'
        text = self.resolve(auto, '{"num_train_epochs": 3, "warmup_ratio": 0.1}', "--updates", "500")
        self.assertRegex(text, r"scheduler.params.total_num_steps = 500 +# auto: number of training steps\n")
        self.assertRegex(text, r"scheduler.params.warmup_num_steps = 50 +# auto: ")
        self.assertIn("--updates fills", self.gannet("config", "resolve", self.write("c.json", auto), "--updates", "5", code=2))

    def test_a_schedules_length_comes_from_the_config(self):
        for given in ('"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 7, "warmup_num_steps": 2}}',
                      '"scheduler": {"type": "cosine"}, "gannet": {"total_steps": 7}'):
            config = self.write("c.json", PLAIN % ('"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, ' + given))
            rows = self.gannet("schedule", config, code=0)
            self.assertEqual(rows, self.gannet("schedule", config, "--steps", "7", code=0))
            self.assertEqual(len(rows.splitlines()), 8)
        endless = self.write("c.json", PLAIN % '"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}')
        self.assertIn("give --steps N, or set gannet.total_steps", self.gannet("schedule", endless, code=2))
        self.assertIn('"scheduler.params.total_num_steps": {"value": "auto", "origin": "known when training starts"}', self.resolve("{}", "{}", "--json"))
        self.assertIn("scheduler.params.total_num_steps = 10 ", self.resolve("{}", '{"max_steps": 10}'))

    def test_an_argument_that_nothing_of_the_config_goes_by_is_said(self):
        text = self.resolve('{"optimizer": {"type": "SGD"}}', '{"learning_rate": 0.1, "optim": "sgd", "max_grad_norm": 1.0}')
        self.assertIn('gannet: no effect: argument learning_rate (the config has no optimizer.params.lr: write "auto" there)\n', text)
        self.assertIn("gannet: no effect: argument optim (the config has its own optimizer entry)\n", text)

    def test_an_argument_that_the_trainer_refuses_fills_auto_with_a_note(self):
        text = self.resolve('{"fp16": {"enabled": "auto"}}', '{"fp16_full_eval": true, "max_steps": 10}')
        self.assertIn("gannet: arguments.json: the Trainer refuses argument fp16_full_eval: parameters of another dtype", text)
        self.assertRegex(text, r"fp16.enabled = true +# auto: fp16, fp16_full_eval")

    def test_arguments_of_a_script_beside_those_of_training_are_notes(self):
        text = self.resolve('{"gradient_clipping": "auto"}', '{"model_name_or_path": "gpt2", "max_grad_norm": 0.5}')
        self.assertIn("arguments.json: not taken: model_name_or_path, which belongs to a training script of transformers", text)
        self.assertIn("gradient_clipping = 0.5", text)

    def test_one_mistake_is_told_once(self):
        for members, mistake in (('"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}',
                                  'nothing gives a value to these "auto"s'),
                                 ('"train_batch_size": 8, "optimizer": {"type": "auto", "params": {"lr": 1}}', 'nothing gives a value to this "auto"'),
                                 ('"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}', "clipping is the engine's work"),
                                 ('"train_batch_size": 8, "wandb": {"enabled": true, "project": "gannets", "team": "x"}', "wandb.enabled = true"),
                                 ('"train_batch_size": 8, "zero_optimization": {"offload_optimizer": {"device": "none", "ratio": 0.5}}', "offload_optimizer.ratio below 1"),
                                 ('"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}', "offload_param belongs to ZeRO stage 3")):
            with self.subTest(members):
                text = self.check("{%s}" % members, code=2)
                mistakes = [line for line in text.splitlines() if line.startswith("gannet: ") and " has 1 mistake;" not in line]
                self.assertEqual(len(mistakes), 1, text)
                self.assertIn(mistake, mistakes[0])
                self.assertNotIn("no effect", text)

    def test_schedule_needs_no_batch_size(self):
        without = '"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 2, "warmup_type": "linear"}}'
        rows = self.gannet("schedule", self.write("c.json", PLAIN % without), "--steps", "3", code=0)
        self.assertRegex(rows, r"^step,lr\n0,")
        for batch in ("", '"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", ',
                      '"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '):
            self.assertEqual(self.gannet("schedule", self.write("c.json", "{%s%s}" % (batch, without)), "--steps", "3", code=0), rows)
        self.write("c.json", '{"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}')
        self.assertIn('gannet: nothing gives a value to this "auto": optimizer.params.lr', self.gannet("schedule", "c.json", "--steps", "3", code=2))

    def test_bench_nvme_takes_a_relative_folder(self):
        drive = self.on_a_drive()
        text = self.gannet("bench", "nvme", "data", "--size", "4M", "--block_size", "1M", "--rounds", "1", code=0, cwd=drive)
        self.assertIn('"aio": {', text)
        self.assertEqual(list((drive / "data").iterdir()), [], "what it wrote is gone")
        text = self.gannet("bench", "nvme", "none", "--size", "4M", "--block_size", "1M", code=None, cwd=drive)
        self.assertIn(f"{drive}/none", text)

    def test_checkpoint_list_ends_with_3_where_one_is_broken(self):
        (self.folder / "run1" / "step1").mkdir(parents=True)
        (self.folder / "run1" / "step1" / "manifest.json").write_text("{")
        self.assertIn("BROKEN", self.gannet("checkpoint", "list", "run1", code=3))


unittest.main()
