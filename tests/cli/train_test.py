"""gannet train as a person runs it: an exported GPT-2 of two layers (tests/exported/archives), tokens and arrays in files."""
import json
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from support import GANNET, Case

MODEL = pathlib.Path(__file__).resolve().parent.parent / "exported" / "archives" / "gpt2"
VOCABULARY, LENGTH = 40, 8


def npy(path, type_name, shape, values, code):
    """A file as numpy.save writes it."""
    header = f"{{'descr': '{type_name}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{code}", *values))


class Train(Case):
    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        self.tokens = [draw.randrange(VOCABULARY) for _ in range(64 * LENGTH)]
        (self.folder / "tokens.bin").write_bytes(struct.pack(f"<{len(self.tokens)}H", *self.tokens))
        self.write("ds_config.json", json.dumps({"optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "gradient_clipping": 0.5,
                                                 "zero_optimization": {"stage": 2}}))

    def options(self, out, *more, data="tokens.bin", model=str(MODEL)):
        return ["--model", model, "--data", data, *(["--seq_len", str(LENGTH)] if data.endswith(".bin") else []), "--output_dir", out,
                "--per_device_train_batch_size", "4", "--lr_scheduler_type", "constant", "--learning_rate", "1e-2",
                "--logging_steps", "1", *more]

    def weights(self, out):
        return (self.folder / out / "model.safetensors").read_bytes()

    def test_it_trains_and_writes_a_model_that_is_trained_again(self):
        text = self.gannet("train", *self.options("out", "--max_steps", "12", "--deepspeed", "ds_config.json", "--eval_data", "tokens.bin",
                                                  "--do_eval"), code=0)
        self.assertRegex(text, r"12 updates, training loss \d\.\d+, evaluation loss \d\.\d+; the model is in out")
        first = float(text.split("evaluation loss ")[1].split(";")[0])
        self.assertIn("28 parameters", self.gannet("model", "info", "out", code=0))
        text = self.gannet("train", *self.options("more", "--max_steps", "12", "--eval_data", "tokens.bin")[2:], "--model", "out", code=0)
        self.assertLess(float(text.split("evaluation loss ")[1].split(";")[0]), first)

    def test_a_torch_script_file_trains_resumes_and_returns_under_every_name(self):
        script = str(MODEL.parent.parent / "torch_scripts" / "words.pt")
        (self.folder / "words").mkdir()
        draw = random.Random(2)
        for name in ("ids", "labels"):
            npy(self.folder / "words" / f"{name}.npy", "<i8", (32, 6), [draw.randrange(20) for _ in range(32 * 6)], "q")
        options = ["--deepspeed", "ds_config.json", "--save_steps", "4"]
        text = self.gannet("train", *self.options("whole", "--max_steps", "8", *options, data="words", model=script), code=0)
        self.assertRegex(text, r"8 updates, training loss \d\.\d+; the model is in whole")
        shutil.copytree(self.folder / "whole", self.folder / "half", ignore=shutil.ignore_patterns("checkpoint-8", "model.safetensors"))
        self.gannet("train", *self.options("half", "--max_steps", "8", *options, "--resume_from_checkpoint", "half/checkpoint-4", data="words",
                                           model=script), code=0)
        self.assertEqual(self.weights("half"), self.weights("whole"))
        self.gannet("checkpoint", "export", "whole", "back", code=0)
        for path in ("whole/model.safetensors", "back/model.safetensors"):
            data = (self.folder / path).read_bytes()
            names = set(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])) - {"__metadata__"}
            self.assertEqual({"words.weight", "head.weight", "mix.weight", "mix.bias", "norm.weight", "norm.bias", "norm.running_mean",
                              "norm.running_var", "norm.num_batches_tracked", "scale"}, names, path)

    def test_two_ranks_see_the_samples_of_one(self):
        """Without dropout, whose numbers each rank draws by itself."""
        shutil.copytree(MODEL, self.folder / "model")
        graph = self.folder / "model" / "graph.train.fp32.json"
        graph.write_text(re.sub(r"\b0\.1\b", "0.0", graph.read_text()))
        one = self.gannet("train", *self.options("one", "--max_steps", "4", "--gradient_accumulation_steps", "2", "--deepspeed",
                                                 "ds_config.json", model="model"), code=0)
        two = self.gannet("run", "--num_procs", "2", GANNET, "train", *self.options("two", "--max_steps", "4", "--deepspeed", "ds_config.json",
                                                                                   model="model"), code=0)
        losses = [float(text.split("training loss ")[1].split(";")[0].split(",")[0]) for text in (one, two)]
        self.assertAlmostEqual(losses[0], losses[1], delta=2e-5)

    def test_two_stages_of_a_pipeline_train_as_one_rank(self):
        """The config alone asks for stages; without dropout, whose numbers each stage draws by itself."""
        shutil.copytree(MODEL.parent / "llama", self.folder / "model")
        for name in ("train", "eval"):  # 60 words, which the tokens are below
            graph = self.folder / "model" / f"graph.{name}.fp32.json"
            graph.write_text(re.sub(r"\b0\.1\b", "0.0", graph.read_text()))
        data = self.folder / "arrays"
        data.mkdir()
        for name in ("input_ids", "labels", "attention_mask"):
            npy(data / f"{name}.npy", "<i8", (64, LENGTH), [1] * len(self.tokens) if name == "attention_mask" else self.tokens, "q")
        config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "gradient_clipping": 0.0, "zero_optimization": {"stage": 1}}
        self.write("ds_config.json", json.dumps(config))
        self.write("stages.json", json.dumps({**config, "pipeline": {"stages": 2}}))
        more = ["--max_steps", "4", "--gradient_accumulation_steps", "4", "--eval_data", "arrays", "--do_eval"]
        options = lambda out, config: [*self.options(out, *more, data="arrays", model="model"), "--deepspeed", config]
        one = self.gannet("train", *options("one", "ds_config.json"), code=0)
        two = self.gannet("run", "--num_procs", "2", GANNET, "train", *options("two", "stages.json"), code=0)
        losses = [re.search(r"training loss (\S+), evaluation loss (\S+);", text).groups() for text in (one, two)]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(self.weights("two"), self.weights("one"))
        self.assertRegex(two, r"stage 0: ranks 0; \d layers, 'model\.embed_tokens' to 'model\.layers\.\d'")

    def test_a_run_that_is_killed_continues_to_the_same_bits(self):
        options = ["--max_steps", "40", "--save_strategy", "steps", "--save_steps", "5"]
        self.gannet("train", *self.options("whole", *options), code=0)
        running = subprocess.Popen([GANNET, "train", *self.options("killed", *options)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while running.poll() is None and not list((self.folder / "killed").glob("checkpoint-*")):
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        self.gannet("train", *self.options("killed", *options, "--resume_from_checkpoint", "last"), code=0)
        self.assertEqual(self.weights("killed"), self.weights("whole"))

    def names(self, path):
        """The tensors of a safetensors file."""
        data = (self.folder / path).read_bytes()
        return set(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])) - {"__metadata__"}

    def test_weights_return_under_every_name_of_the_python_model(self):
        """lm_head.weight is another name of transformer.wte.weight; a strict load_state_dict expects both."""
        shutil.copytree(MODEL, self.folder / "model")
        config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
        (self.folder / "model" / "python_config.json").write_text(json.dumps(config))
        self.gannet("train", *self.options("out", "--max_steps", "2", "--save_strategy", "steps", "--save_steps", "2", model="model"), code=0)
        self.assertEqual(len(self.names("out/model.safetensors")), 29)
        self.assertIn("lm_head.weight", self.names("out/model.safetensors"))
        text = self.gannet("checkpoint", "export", "out", "back", code=0)
        self.assertIn("29 tensors of out/checkpoint-2", text)
        self.assertEqual(self.names("back/model.safetensors"), self.names("out/model.safetensors"))
        self.assertEqual(json.loads((self.folder / "back" / "config.json").read_text()), config)
        self.assertIn("29 tensors", self.gannet("checkpoint", "export", "out", "back.bin", code=0))
        self.assertIn("lm_head.weight", self.gannet("checkpoint", "show", "back.bin", code=0))
        # Both names, with equal values, are read as one tensor.
        self.gannet("train", *self.options("more", "--max_steps", "1")[2:], "--model", "out", code=0)

    def test_arrays_are_the_inputs_and_labels_may_be_left_out_of_the_mean(self):
        data = self.folder / "arrays"
        data.mkdir()
        npy(data / "input_ids.npy", "<i8", (64, LENGTH), self.tokens, "q")
        npy(data / "labels.npy", "<i8", (64, LENGTH), self.tokens, "q")
        self.gannet("train", *self.options("arrays_out", "--max_steps", "4", data="arrays"), code=0)
        self.gannet("train", *self.options("tokens_out", "--max_steps", "4"), code=0)
        self.assertEqual(self.weights("arrays_out"), self.weights("tokens_out"))
        text = self.gannet("train", *self.options("both_out", "--max_steps", "4", "--eval_data", "arrays", "--do_eval"), code=0)
        self.assertIn("evaluation loss", text, "--seq_len is for the tokens, and not for the folder")
        self.assertIn("is not a file of tokens", self.gannet("train", *self.options("out", "--seq_len", "8", data="arrays"), code=2))
        text = self.gannet("train", *self.options("items_out", "--max_steps", "4", "--items", "labels", data="arrays"), code=0)
        self.assertIn("4 updates", text)

    def test_float_inputs_get_the_dtype_of_the_graph(self):
        images = self.folder / "images"
        images.mkdir()
        draw = random.Random(2)
        npy(images / "image.npy", "<f4", (16, 3, 6, 6), [draw.random() for _ in range(16 * 3 * 6 * 6)], "f")
        npy(images / "label.npy", "<i8", (16,), [i % 5 for i in range(16)], "q")
        self.write("bf16.json", json.dumps({"bf16": {"enabled": True}, "data_types": {"buffer_dtype": "bf16"}, "zero_optimization": {"stage": 3,
                                            "stage3_gather_16bit_weights_on_model_save": True}}))
        text = self.gannet("train", *self.options("out", "--max_steps", "4", "--eval_data", "images", "--do_eval", "--deepspeed", "bf16.json",
                                                  "--bf16", "true", data="images", model=str(MODEL.parent / "residual")), code=0)
        self.assertRegex(text, r"4 updates, training loss \d\.\d+, evaluation loss \d")

    def test_stage_3_writes_a_model_too(self):
        """Without stage3_gather_16bit_weights_on_model_save."""
        self.write("stage3.json", json.dumps({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}))
        text = self.gannet("run", "--num_procs", "2", GANNET, "train", *self.options("out", "--max_steps", "2", "--deepspeed", "stage3.json"), code=0)
        self.assertIn("out/model.safetensors has the fp32 weights", text)
        self.assertEqual(len(self.names("out/model.safetensors")), 29)
        self.gannet("train", *self.options("more", "--max_steps", "1")[2:], "--model", "out", code=0)

    def test_every_sample_of_an_evaluation_counts_once(self):
        """A last batch of two samples of ten, against all ten at once."""
        (self.folder / "ten.bin").write_bytes((self.folder / "tokens.bin").read_bytes()[:10 * LENGTH * 2])
        losses = []
        for size in ("4", "10"):
            text = self.gannet("train", *self.options(f"out{size}", "--max_steps", "1", "--eval_data", "ten.bin", "--do_eval",
                                                      "--per_device_eval_batch_size", size), code=0)
            losses.append(float(re.search(r"evaluation loss (\S+);", text).group(1)))
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-5)

    def test_an_evaluation_that_fails_leaves_the_trained_model(self):
        """Nine samples in batches of four: one is left, and the graph takes at least two rows."""
        (self.folder / "nine.bin").write_bytes((self.folder / "tokens.bin").read_bytes()[:9 * LENGTH * 2])
        text = self.gannet("train", *self.options("out", "--max_steps", "2", "--eval_data", "nine.bin", "--do_eval",
                                                  "--per_device_eval_batch_size", "4"), code=2)
        self.assertIn("is 1, and the graph takes at least 2", text)
        self.assertIn("choose another batch size", text)
        self.assertEqual(len(self.names("out/model.safetensors")), 29)

    def test_the_models_folder_is_not_the_output(self):
        shutil.copytree(MODEL, self.folder / "model")
        before = self.weights("model")
        text = self.gannet("train", *self.options("model/../model", "--max_steps", "1", model="model"), code=2)
        self.assertIn("--output_dir is the model's folder", text)
        self.assertEqual(self.weights("model"), before)

    def unequal(self):
        """Labels shorter than the inputs: a relation of the graph that does not hold."""
        folder = self.folder / "unequal"
        folder.mkdir()
        npy(folder / "input_ids.npy", "<i8", (64, LENGTH), self.tokens, "q")
        npy(folder / "labels.npy", "<i8", (64, LENGTH - 2), self.tokens[:64 * (LENGTH - 2)], "q")
        return "unequal"

    def test_mistakes_are_named(self):
        def says(sentence, *arguments, code=2):
            text = self.gannet("train", *arguments, code=code)
            self.assertIn(sentence, text)
            self.assertTrue(text.splitlines()[-1].startswith("  ("), text)

        text = self.gannet("train", code=2)
        self.assertIn("--model is missing", text)
        self.assertIn("--data is missing", text)
        says("--seq_len must be an integer of at least 1, found 'x'", "--model", str(MODEL), "--data", "tokens.bin", "--seq_len", "x")
        says("--eval_data takes a value", "--model", str(MODEL), "--data", "tokens.bin", "--eval_data")
        says("the length of a sample is not given", "--model", str(MODEL), "--data", "tokens.bin", "--output_dir", "out")
        says("without --eval_data", *self.options("out", "--do_eval"))
        says("--items names 'weights'", *self.options("out", "--max_steps", "1", "--items", "weights"))
        says("unknown argument", *self.options("out", "--max_stepz", "1"))
        self.assertIn("config.json", self.gannet("train", "--model", "nowhere", "--data", "tokens.bin", "--output_dir", "out", code=2))
        data = self.folder / "other"
        data.mkdir()
        npy(data / "input_ids.npy", "<i4", (64, LENGTH), self.tokens, "i")
        says("other has input_ids, and the model takes input_ids, labels; missing: labels", *self.options("out", "--max_steps", "1", data="other"))
        npy(data / "labels.npy", "<i4", (64, LENGTH), self.tokens, "i")
        says("input 'input_ids' is int32[4, 8], and the graph train.fp32 takes int64[s0, s1]", *self.options("out", "--max_steps", "1", data="other"))
        flat = self.folder / "flat"
        flat.mkdir()
        for name in ("input_ids", "labels"):
            npy(flat / f"{name}.npy", "<i8", (64 * LENGTH,), self.tokens, "q")
        says("input 'input_ids' is int64[4], and the graph train.fp32 takes int64[s0, s1]", *self.options("out", "--max_steps", "1", data="flat"))
        says("the batch has other sizes than the export allows", *self.options("out", "--max_steps", "1", data=self.unequal()))
        npy(data / "weights.npy", "<i4", (64, LENGTH), self.tokens, "i")
        says("other has input_ids, labels, weights, and the model takes input_ids, labels", *self.options("out", "--max_steps", "1", data="other"))

    def test_help_shows_the_options(self):
        text = self.gannet("train", "--help", code=0)
        for option in ("--model PATH", "--data PATH", "--seq_len N", "--items INPUT", "--deepspeed CONFIG"):
            self.assertIn(option, text)


if __name__ == "__main__":
    unittest.main()
