"""gannet_export: what it refuses, what it says, and what is in its files. Skipped where Python has no torch of 2.11 or newer."""
import json
import pathlib
import subprocess
import sys
import unittest

from exporter_case import BATCH, ExporterCase, Small, gannet_export, torch  # skips this file where there is no torch

import numpy
from gannet_export import ExportError
from gannet_export.convert import convert_archive
from safetensors.torch import load_file


class Slope(torch.autograd.Function):
    """The derivative is not that of forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Exporter(ExporterCase):
    def test_a_custom_backward_is_refused_with_the_first_gradient_that_differs(self):
        text = self.refused(Small(lambda x: Slope.apply(x).mean()))
        self.assertIn("the exported program differs from the model (train.fp32): the gradient of 'linear.weight'", text)
        self.assertIn("custom torch.autograd.Function loses its backward", text)

    def test_a_batch_of_one_row_is_refused(self):
        self.assertIn("'x' of the example batch has 1 row", self.refused(Small(), {"x": torch.ones(1, 3)}))
        self.assertIn("the example batch is empty", self.refused(Small(), {}))

    def test_a_model_that_is_not_repeatable_is_refused(self):
        count = [0]

        def loss(x):
            count[0] += 1
            return x.mean() * count[0]

        self.assertIn("the model itself is not repeatable", self.refused(Small(loss)))

    def test_what_is_no_scalar_loss_is_refused(self):
        self.assertIn("the loss has shape [2, 4]", self.refused(Small(lambda x: x)))
        self.assertIn("returned NoneType, in which there is no loss", self.refused(Small(lambda x: None)))
        self.assertIn("the loss has no gradient", self.refused(Small(lambda x: x.detach().mean())))

    def test_every_form_of_a_loss_gives_one_graph(self):
        class Result:
            def __init__(self, loss):
                self.loss = loss

        for form in (lambda x: x.mean(), lambda x: {"loss": x.mean(), "logits": x}, lambda x: (x.mean(), x), lambda x: Result(x.mean())):
            self.export(Small(form))
            self.assertEqual(self.operators(), ["aten.linear.default", "aten.mean.default"])

    def test_a_model_of_another_dtype_is_refused(self):
        self.assertIn("parameter 'linear.weight' has dtype float64", self.refused(Small().double()))

    def test_data_dependent_control_flow_is_refused_with_pytorchs_reason(self):
        self.assertIn("torch.export cannot trace the model (train, fp32)", self.refused(Small(lambda x: x.mean() if x.sum() > 0 else x.sum())))

    def test_what_became_constant_is_told(self):
        self.export(Small())
        self.assertIn("x: dimension 1 became constant, 3", self.lines)
        self.assertEqual(self.graph()["inputs"], [{"name": "x", "dtype": "float32", "shape": ["s0", 3]}])

    def test_a_flattened_checkpoint_is_told(self):
        from torch.utils.checkpoint import checkpoint
        self.export(Small(lambda x: checkpoint(torch.sin, x, use_reentrant=False).mean()))
        self.assertTrue(any("torch.utils.checkpoint was called" in line for line in self.lines), self.lines)

    def test_a_reentrant_checkpoint_loses_its_gradient_and_is_refused(self):
        from torch.utils.checkpoint import checkpoint
        text = self.refused(Small(lambda x: checkpoint(torch.sin, x, use_reentrant=True).mean()))
        self.assertIn("pass use_reentrant=False", text)

    def test_the_model_is_as_before(self):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
        wrapped = Small(lambda x: x.mean())
        wrapped.linear = model
        before = {name: value.clone() for name, value in wrapped.state_dict().items()}
        wrapped.eval()
        self.export(wrapped, dtypes=["fp32", "bf16"])
        self.assertFalse(wrapped.training)
        for name, value in wrapped.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        stored = load_file(self.out + "/model.safetensors")
        self.assertEqual(set(stored), set(before))
        for name, value in before.items():
            self.assertTrue(torch.equal(stored[name], value), name)

    def test_integers_floats_and_infinities_stay_what_they_are(self):
        self.export(Small(lambda x: (x + 1).add(1.0).masked_fill(x > 9e9, float("inf")).mean()))
        arguments = [node["args"][1] for node in self.graph()["graphs"][0]["nodes"] if node["op"] == "aten.add.Tensor"]
        self.assertEqual([type(one) for one in arguments], [int, float])
        self.assertIn('{"float":"inf"}', (pathlib.Path(self.out) / "graph.train.fp32.json").read_text())

    def test_no_file_has_a_path_of_the_source(self):
        self.export(Small())
        for path in pathlib.Path(self.out).iterdir():
            self.assertNotIn(str(pathlib.Path(__file__).parent).encode(), path.read_bytes(), path)
            self.assertNotIn(b"stack_trace", path.read_bytes(), path)

    def test_a_folder_of_something_else_is_left_alone(self):
        pathlib.Path(self.out).mkdir()
        (pathlib.Path(self.out) / "notes.txt").write_text("mine")
        with self.assertRaises(ExportError):
            self.export(Small())
        self.assertEqual([path.name for path in pathlib.Path(self.out).iterdir()], ["notes.txt"])

    def test_the_output_folder_of_a_training_is_left_alone(self):
        self.export(Small(), modes=["train"])
        for name in ("checkpoint-10", "latest", "trainer_state.json"):
            path = pathlib.Path(self.out) / name
            path.mkdir() if "-" in name else path.write_text("{}")
            with self.assertRaises(ExportError) as caught:
                self.export(Small(), modes=["train"])
            self.assertIn(f"has files that this command did not write, such as '{name}'", str(caught.exception))
            self.assertTrue(path.exists())
            path.rmdir() if "-" in name else path.unlink()
        self.export(Small(), modes=["train"])

    def test_a_second_export_replaces_the_first_whole(self):
        self.export(Small(), dtypes=["fp32", "bf16"])
        self.export(Small(), modes=["train"])
        self.assertEqual(sorted(path.name for path in pathlib.Path(self.out).glob("graph*")), ["graph.train.fp32.json"])
        self.assertEqual(len(list(self.folder.iterdir())), 1, "nothing temporary is left")

    def test_a_model_that_runs_in_fp32_alone_is_refused_in_bf16_with_the_way_out(self):
        text = self.refused(Small(lambda x: (x @ torch.ones(4, 1)).mean()), dtypes=["fp32", "bf16"])
        self.assertIn("the model does not run in bf16", text)
        self.assertIn("--dtypes fp32", text)

    def test_inputs_may_be_one_tensor(self):
        class Pair(Small):
            def forward(self, x, y):
                return self.linear(x).mean() * y.mean()

        self.export(Pair(), {"x": BATCH["x"], "y": BATCH["x"]})
        stored = load_file(self.out + "/probe.safetensors")
        self.assertTrue(torch.equal(stored["x"], stored["y"]))

    def test_the_config_of_transformers_is_kept_without_its_path(self):
        class Config:
            def to_json_string(self):
                return '{"model_type": "small", "_name_or_path": "/home/me/small"}'

        class Pretrained(Small):
            config = Config()

            @classmethod
            def from_pretrained(cls, folder):
                pass

        self.export(Pretrained())
        config = json.loads((pathlib.Path(self.out) / "python_config.json").read_text())
        self.assertEqual(config, {"model_type": "small", "architectures": ["Pretrained"]})
        self.export(Small())
        self.assertFalse((pathlib.Path(self.out) / "python_config.json").exists())

    def test_what_a_strict_load_needs_and_the_folder_lacks_is_told(self):
        class Extra(Small):
            def get_extra_state(self):
                return {"a": 1}

            def set_extra_state(self, state):
                pass

        self.export(Extra())
        self.assertTrue(any(line.startswith("'_extra_state' of the state dict is neither") for line in self.lines), self.lines)

    def test_the_command_line_exports_and_converts(self):
        (self.folder / "mine.py").write_text("import torch\n\nclass Net(torch.nn.Linear):\n    def forward(self, x):\n"
                                             "        return super().forward(x).mean()\n\ndef make():\n    return Net(3, 4)\n")
        numpy.savez(self.folder / "batch.npz", x=BATCH["x"].numpy())
        command = [sys.executable, "-m", "gannet_export"]

        def run(*arguments):
            return subprocess.run([*command, *arguments], cwd=self.folder, text=True, capture_output=True)

        done = run("mine:make", "--example", "batch.npz", "--out", "model", "--dtypes", "fp32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train.fp32: 2 nodes; loss, 2 gradients and 0 buffers are bit-equal to the model's", done.stdout)
        for arguments, message in ((("mine", "--example", "batch.npz", "--out", "m"), "write MODULE:FUNCTION"),
                                   (("other:make", "--example", "batch.npz", "--out", "m"), "there is no module 'other'"),
                                   (("mine:other", "--example", "batch.npz", "--out", "m"), "has no 'other'"),
                                   (("mine:make", "--example", "none.npz", "--out", "m"), "none.npz is not an .npz file"),
                                   (("convert", "none.pt2", "--out", "m"), "is not an archive"),
                                   (("convert", "mine.py", "--out", "m"), "is not an archive")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_an_archive_is_converted_with_its_names_ties_and_sizes(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False)
                self.head.weight = self.words.weight

            def forward(self, ids):
                return torch.nn.functional.cross_entropy(self.head(self.words(ids)).flatten(0, 1), ids.flatten())

        auto = torch.export.Dim.AUTO
        program = torch.export.export(Tied(), (torch.ones(2, 5, dtype=torch.int64),), dynamic_shapes=({0: auto, 1: auto},))
        torch.export.save(program, self.folder / "tied.pt2")
        convert_archive(str(self.folder / "tied.pt2"), self.out, say=self.lines.append)
        config = json.loads((pathlib.Path(self.out) / "config.json").read_text())
        self.assertEqual(len(config["parameters"]), 1)
        self.assertEqual(len(config["tied"]), 1)
        self.assertEqual(self.graph()["inputs"], [{"name": "ids", "dtype": "int64", "shape": ["s0", "s1"]}])
        self.assertIn("nothing was compared", self.lines[-1])


if __name__ == "__main__":
    unittest.main()
