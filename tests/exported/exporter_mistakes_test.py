"""gannet_export: mistakes of its users, each an ExportError with the next step. Skipped where Python has no torch of 2.11 or newer."""
import os
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

from exporter_case import BATCH, ExporterCase, Small, torch  # skips this file where there is no torch

import numpy
from gannet_export import ExportError, allowed_operators, folder


class Mistakes(ExporterCase):
    def test_a_batch_that_forward_does_not_take_is_refused_with_its_arguments(self):
        for batch, found in (({"x": BATCH["x"], "y": BATCH["x"]}, "unexpected keyword argument 'y'"), ({"y": BATCH["x"]}, "'y'"),
                             ({"x": torch.ones(2, 5)}, "mat1 and mat2 shapes cannot be multiplied")):
            text = self.refused(Small(), batch)
            self.assertIn("the model does not run on the example batch (train): ", text)
            self.assertIn(found, text)
            self.assertIn(f"the batch has {', '.join(batch)}, by name; forward takes x)", text)
        self.assertIn(f"({pathlib.Path(__file__).with_name('exporter_case.py')}:", text)

    def test_a_batch_of_a_dtype_that_no_data_has_is_refused(self):
        for dtype in (torch.complex64, torch.uint16):
            self.assertIn(f"'x' of the example batch has dtype {str(dtype)[6:]}", self.refused(Small(), {"x": torch.ones(2, 3).to(dtype)}))

    def test_parameters_without_values_or_of_complex_numbers_are_refused(self):
        lazy = Small()
        lazy.linear = torch.nn.LazyLinear(4)
        self.assertIn("parameter 'linear.weight' has no size yet", self.refused(lazy))
        self.assertIn("parameter 'linear.weight' is on the device 'meta'", self.refused(Small().to("meta")))
        number = Small()
        number.linear.bias = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64))
        text = self.refused(number)
        self.assertIn("parameter 'linear.bias' has dtype complex64", text)
        self.assertIn("torch.view_as_complex", text)

    def test_what_is_not_finite_or_sparse_is_refused(self):
        class Words(Small):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(3, 3, sparse=True)

            def forward(self, x):
                return self.linear(x + self.words(x.argmax(-1))).mean()

        self.assertIn("the loss of the example batch is nan", self.refused(Small(lambda x: x.mean() * float("nan"))))
        self.assertIn("the gradient of 'linear.weight' is not finite", self.refused(Small(lambda x: (x * 0).sum().sqrt())))
        text = self.refused(Words())
        self.assertIn("the gradient of 'words.weight' is sparse", text)
        self.assertIn("sparse=False", text)

    def test_a_buffer_may_have_infinities(self):
        model = Small()
        model.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
        self.export(model)

    def test_a_backward_that_fails_is_refused(self):
        self.assertIn("the backward of the model fails: ", self.refused(Small(lambda x: x.relu().add_(1).mean())))

    def test_the_old_weight_norm_is_refused_in_bf16_with_the_way_out(self):
        model = Small()
        with warnings.catch_warnings(action="ignore"):
            model.linear = torch.nn.utils.weight_norm(model.linear)
        self.export(model, modes=["train"])
        with self.assertRaises(ExportError) as caught:
            self.export(model, modes=["train"], dtypes=["fp32", "bf16"])
        self.assertIn("the model cannot be copied for bf16", str(caught.exception))
        self.assertIn("--dtypes fp32", str(caught.exception))

    def test_operators_that_the_reader_refuses_are_refused_with_their_layer(self):
        model = Small()
        model.linear = torch.nn.utils.parametrizations.spectral_norm(model.linear)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        text = self.refused(model)
        self.assertRegex(text, r"of layer 'linear\.parametrizations\.weight.*': the operator aten\.div\.out writes into a tensor that is given")
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        text = self.refused(Small(lambda x: torch._unsafe_masked_index(x, x > 0, [torch.tensor([0, 1])], 0.0).mean()))
        self.assertIn("the operator aten._unsafe_masked_index.default is not among those that a graph may call", text)

    def test_the_reader_and_the_exporter_allow_the_same_operators(self):
        source = (pathlib.Path(__file__).parents[2] / "exported/allowed_operators.cpp").read_text()
        listed = re.search(r"kNames =(.*?);", source, re.DOTALL)[1]
        self.assertEqual(set("".join(re.findall(r'"(.*)"', listed)).split()), allowed_operators.NAMES)

    def test_an_input_of_one_number_is_told(self):
        class Scaled(Small):
            def forward(self, x, scale):
                return self.linear(x).mean() * scale

        self.export(Scaled(), {**BATCH, "scale": torch.tensor(2.0)})
        self.assertTrue(any(line.startswith("scale: a single number, which gannet train cannot read") for line in self.lines), self.lines)

    def test_attention_on_an_input_is_exported_with_its_relations(self):
        class Attention(Small):
            def forward(self, x):
                return self.linear(torch.nn.functional.scaled_dot_product_attention(x, x, x)).pow(2).mean()

        self.export(Attention(), {"x": torch.randn(2, 4, 5, 3)}, dtypes=["fp32", "bf16"])
        relations = self.graph("train.bf16")["relations"]
        self.assertTrue(all(len(one) == 3 for one in relations), relations)

    def test_a_folder_that_cannot_be_made_is_refused_before_the_trace(self):
        (self.folder / "file").write_text("")
        for out, found in ((self.folder / "file", "is a file"), (self.folder / "file" / "deep" / "model", "Not a directory"),
                           ("/proc/model", "/proc/model cannot be made: /proc: ")):
            with self.assertRaises(ExportError) as caught:
                folder.require_free(str(out))
            self.assertIn(found, str(caught.exception))
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        (self.folder / "file").unlink()
        with self.assertRaises(ExportError) as caught:
            folder.require_free(".")
        self.assertIn("the current folder", str(caught.exception))

    def test_an_error_while_writing_is_explained(self):
        class Full:
            def __getattr__(self, name):
                raise OSError(28, "No space left on device")

        with self.assertRaises(ExportError) as caught:
            folder.write(self.out, {}, Full(), None, None, {})
        self.assertIn(f"cannot write {self.out}: [Errno 28] No space left on device", str(caught.exception))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_command_line_explains_a_maker_that_cannot_be_called_and_a_missing_submodule(self):
        (self.folder / "mine.py").write_text("import torch\n\ndef make(width):\n    pass\n\nmodel = torch.nn.Linear(3, 4)\n")
        (self.folder / "other.py").write_text("import absent\n")
        numpy.savez(self.folder / "batch.npz", x=BATCH["x"].numpy())

        def run(name):
            return subprocess.run([sys.executable, "-m", "gannet_export", name, "--example", "batch.npz", "--out", "m"],
                                  cwd=self.folder, text=True, capture_output=True)

        for name, message in (("mine:make", "mine:make cannot be called without arguments: missing a required argument: 'width'"),
                              ("mine:model", "'model' of module 'mine' is a Linear"),
                              ("mine.sub:make", "there is no module 'mine.sub'")):
            done = run(name)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("No module named 'absent'", run("other:make").stderr)  # an error of the user's file keeps its traceback


if __name__ == "__main__":
    unittest.main()
