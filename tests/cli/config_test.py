"""gannet config check | resolve as a person runs them: every mistake at once, plugins and all. And checkpoint list's exit code."""
import unittest

from support import Case

PLAIN = '{"train_micro_batch_size_per_gpu": 1, %s}'


class Config(Case):
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
        for mistake in (r"c\.json:2:3: unknown key 'train_batch_sise' at /train_batch_sise; did you mean 'train_batch_size'\?\n  \(",
                        r"c\.json:3:3: /gradient_clipping must be", r"c\.json:4:\d+: /fp16/loss_scale must be",
                        r"c\.json:4:\d+: unknown key 'hysterese' at /fp16/hysterese; did you mean 'hysteresis'\?",
                        r"c\.json:5:\d+: there is no optimizer plugin 'AdmW' for device '[a-z]+'; did you mean 'adamw'\?",
                        r"c\.json:6:\d+: scheduler plugin WarmupLR has no parameter 'warmup_num_stepz'; did you mean 'warmup_num_steps'\?",
                        r"c\.json:6:\d+: parameter 'warmup_max_lr' of scheduler plugin WarmupLR: expected"):
            self.assertRegex(text, "gannet: " + mistake)
        self.assertIn("gannet: c.json has 7 mistakes; whether its values fit together is checked once the keys are right\n", text)
        self.assertNotIn("neither train_batch_size nor", text, "what follows from a misspelt key alone")

    def test_check_tells_independent_values_that_do_not_fit_together(self):
        text = self.check("""{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
 "fp16": {"enabled": true}, "bf16": {"enabled": true}, "optimizer": {"params": {"lr": 1}}}""", "--no-plugins", code=2)
        for mistake in ("train_batch_size 7", "bf16 and fp16 are both enabled", "/optimizer has params and no type", "c.json has 3 mistakes\n"):
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
                               ('"scheduler": {"type": "WarmupDecayLR"}', "needs the parameter 'total_num_steps'")):
            with self.subTest(member):
                self.assertIn(answer, self.check(PLAIN % member, code=2))

    def test_check_accepts_what_is_right_and_tells_what_has_no_effect(self):
        text = self.check(PLAIN % '"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}, "aio": {"queue_depth": 4}', code=0)
        self.assertRegex(text, r"^c\.json: ok\n  no effect: /aio/queue_depth")

    def test_text_that_is_no_json_stops_at_the_first_mistake(self):
        text = self.check('{"a": 1,, "b": }', code=2)
        self.assertRegex(text, r"^gannet: c\.json:1:\d+: ")
        self.assertNotIn("mistakes", text)

    def test_set_takes_json_values(self):
        config = self.write("c.json", PLAIN % '"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.999]}}')
        text = self.gannet("config", "resolve", config, "--set", "optimizer.params.betas=[0.9, 0.98]", "--set", "gradient_clipping=0.5", "--set",
                           'fp16={"enabled": true}', code=0)
        for line in (r"/optimizer/params/betas = \[0\.9, 0\.98\] +# --set", r"/gradient_clipping = 0\.5 +# --set", r"/fp16/enabled = true +# --set"):
            self.assertRegex(text, line)
        self.assertRegex(self.gannet("config", "resolve", config, "--set", "optimizer.params.betas=[0.9,", code=2), "the value is not JSON.*\n.*in quotes for the shell")
        self.assertIn("--set: parameter 'betas' of optimizer plugin AdamW", self.gannet("config", "check", config, "--set", "optimizer.params.betas=[2,2]", code=2))
        self.assertIn("--set: unknown key 'gradient_cliping'", self.gannet("config", "check", config, "--set", "gradient_cliping=1", code=2))

    def test_checkpoint_list_ends_with_3_where_one_is_broken(self):
        (self.folder / "run1" / "step1").mkdir(parents=True)
        (self.folder / "run1" / "step1" / "manifest.json").write_text("{")
        self.assertIn("BROKEN", self.gannet("checkpoint", "list", "run1", code=3))


unittest.main()
