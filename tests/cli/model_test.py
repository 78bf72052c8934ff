"""gannet model info | check | cuts as a person runs them."""
import json
import pathlib
import shutil
import unittest

from support import Case

ARCHIVES = pathlib.Path(__file__).resolve().parent.parent / "exported" / "archives"
SCRIPTS = ARCHIVES.parent / "torch_scripts"


class Model(Case):
    def copied(self, name):
        shutil.copytree(ARCHIVES / name, self.folder / name)
        return self.folder / name

    def test_info_tells_graphs_inputs_and_sizes(self):
        text = self.gannet("model", "info", str(ARCHIVES / "gpt2"), code=0)
        self.assertRegex(text, r"28 parameters with \d+ elements, 0 of them frozen; 0 buffers; 1 tied names")
        self.assertRegex(text, r"train\.fp32 +\d+ +PyTorch 2\.11\S* +input_ids int64\[s0, s1\], labels int64\[s2, s3\]")
        self.assertIn("every graph takes sizes with s1 * s0 == s2 * s3", text)
        self.assertIn("lm_head.weight: another name of transformer.wte.weight", text)

    def test_a_torch_script_file_is_told_and_loaded_and_not_cut(self):
        text = self.gannet("model", "info", str(SCRIPTS / "words.pt"), code=0)
        self.assertIn("5 parameters with 248 elements, 0 of them frozen; 4 buffers; 1 tied names", text)
        self.assertRegex(text, r"saved in train mode; forward has \d+ operators and takes ids, labels, weight \(has a default\)")
        self.assertIn("head.weight: another name of words.weight", text)
        self.assertRegex(self.gannet("model", "check", str(SCRIPTS / "words.pt"), code=0), r"loads, with all \d+ operators of forward")
        self.assertIn("otherlib::twice", self.gannet("model", "check", str(SCRIPTS / "other.pt"), code=2))
        self.assertIn("does not divide into layers", self.gannet("model", "cuts", str(SCRIPTS / "words.pt"), code=2))

    def test_info_tells_the_relations_of_every_graph(self):
        folder = self.copied("gpt2")
        graph = folder / "graph.eval.bf16.json"
        values = json.loads(graph.read_text())
        values["relations"] = [["<=", "s1", 32]]
        graph.write_text(json.dumps(values))
        text = self.gannet("model", "info", str(folder), code=0)
        self.assertIn("\neval.bf16 takes sizes with s1 <= 32\n", text)
        self.assertIn("\neval.fp32, train.bf16, train.fp32 take sizes with s1 * s0 == s2 * s3\n", text)

    def test_check_agrees_with_the_exporter(self):
        text = self.gannet("model", "check", str(ARCHIVES / "residual"), code=0)
        self.assertRegex(text, r"(?m)^train\.fp32 .*(bit-equal|agrees \(\S+\))$")

    def test_check_takes_no_gradient_for_a_gradient_of_zeros(self):
        """PyTorch's cond gives zeros to the parameters of the branch that was not taken."""
        folder = self.copied("odd")
        probe = json.loads((folder / "probe.json").read_text())
        for result in probe["results"].values():
            result["gradient_norms"]["unused"] = 0.0
        (folder / "probe.json").write_text(json.dumps(probe))
        self.gannet("model", "check", str(folder), code=0)
        probe["results"]["train.fp32"]["gradient_norms"]["unused"] = 0.5
        (folder / "probe.json").write_text(json.dumps(probe))
        self.assertIn("'unused' has a gradient there and none here", self.gannet("model", "check", str(folder), code=3))

    def test_a_folder_of_transformers_is_to_be_exported(self):
        (self.folder / "theirs").mkdir()
        self.write("theirs/config.json", '{"model_type": "gpt2"}')
        for command in ("info", "check", "cuts"):
            text = self.gannet("model", command, "theirs", code=2)
            self.assertIn("model_type is 'gpt2'", text)
            self.assertIn("export the model from Python, by python -m gannet_export", text)

    def test_check_finds_one_changed_constant(self):
        folder = self.copied("gpt2")
        graph = folder / "graph.eval.fp32.json"
        graph.write_text(graph.read_text().replace("0.044715", "0.045715", 1))
        text = self.gannet("model", "check", str(folder), code=2)
        self.assertRegex(text, r"(?m)^eval\.fp32 .*differs$")
        self.assertNotRegex(text, r"(?m)^train\.fp32 .*differs$")
        self.assertIn("does not compute what its exporter saw\n  (", text)

    def test_cuts_lists_layers_and_what_crosses(self):
        text = self.gannet("model", "cuts", str(ARCHIVES / "gpt2"), code=0)
        self.assertIn("5 parts of the graph train.fp32; the first is 'transformer.wte'", text)
        for line in (r"transformer\.h\.0 +layer_norm +dropout +\[s0, s1, 16\] +float32 +1024",
                     r"transformer\.h\.1 +layer_norm_2 +add_7 +\[s0, s1, 16\] +float32 +1024",
                     r"lm_head +linear +slice_7 +\[s0, s1, 16\] +float32 +1024",
                     r"loss +to_3 +linear +\[s0, s1, 40\] +float32 +2560"):
            self.assertRegex(text, "(?m)^" + line)
        self.assertNotIn("labels", text)

    def test_the_decoder_of_t5_has_three_values_crossing(self):
        text = self.gannet("model", "cuts", str(ARCHIVES / "t5"), code=0)
        rows = text.split("\ndecoder.block.1 ", 1)[1].split("\ndecoder.final_layer_norm ", 1)[0].splitlines()
        values = [row for row in rows if "(input)" not in row]
        self.assertEqual(len(values), 3, rows)
        self.assertRegex("\n".join(rows), r"\[s\d, s3, 16\] +float32")

    def test_hidden_states_alone_cross_between_the_blocks_of_llama(self):
        text = self.gannet("model", "cuts", str(ARCHIVES / "llama"), code=0)
        rows = [row.split() for row in text.split("bytes\n", 1)[1].split("\n\n", 1)[0].splitlines() if "(input)" not in row]
        self.assertEqual([row[0] for row in rows], ["model.layers.0", "model.layers.1", "model.norm", "lm_head", "loss"])
        for row in rows[:-1]:
            self.assertEqual(row[3:], ["[s0,", "s1,", "16]", "float32", "1024"])

    def test_cuts_of_some_segments(self):
        text = self.gannet("model", "cuts", str(ARCHIVES / "gpt2"), "--segments", "2", code=0)
        self.assertIn("2 parts of the graph train.fp32", text)
        self.assertRegex(text, r"(?m)^transformer\.ln_f +layer_norm_4 +add_11 ")
        self.assertNotIn("transformer.h.1", text)
        self.gannet("model", "cuts", str(ARCHIVES / "gpt2"), "--segments", "0", code=2)

    def test_cuts_needs_the_batch_of_the_export(self):
        folder = self.copied("gpt2")
        (folder / "probe.safetensors").unlink()
        self.assertRegex(self.gannet("model", "cuts", str(folder), code=2), r"there is no \S+/probe\.safetensors, so that there is no batch")

    def test_a_folder_of_another_kind_and_a_graph_that_acts_are_refused(self):
        self.assertIn("there is no ", self.gannet("model", "info", ".", code=2))
        folder = self.copied("odd")
        graph = folder / "graph.train.fp32.json"
        graph.write_text(graph.read_text().replace("aten.softmax.int", "aten.from_file.default", 1))
        text = self.gannet("model", "info", str(folder), code=2)
        self.assertRegex(text, r"graph\.train\.fp32\.json: graph 'main', node 'softmax': the operator aten\.from_file\.default is not among those")


if __name__ == "__main__":
    unittest.main()
