"""What the exporter's tests share: small models, and a test case that exports into a temporary folder."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

try:
    import torch

    import gannet_export
    from gannet_export import ExportError
except (ImportError, OSError) as error:
    print(f"skipped: {error}")
    sys.exit(77)


class Small(torch.nn.Module):
    def __init__(self, loss=lambda x: x.mean()):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.loss = loss

    def forward(self, x):
        return self.loss(self.linear(x))


BATCH = {"x": torch.arange(6.0).reshape(2, 3)}


class ExporterCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-export-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out, self.lines = str(self.folder / "model"), []

    def export(self, model, batch=BATCH, **options):
        gannet_export.export_model(model, batch, self.out, say=self.lines.append, **{"dtypes": ["fp32"], **options})

    def refused(self, model, batch=BATCH, **options):
        with self.assertRaises(ExportError) as caught:
            self.export(model, batch, **options)
        self.assertFalse(pathlib.Path(self.out).exists(), "something was written")
        return str(caught.exception)

    def graph(self, name="train.fp32"):
        return json.loads((pathlib.Path(self.out) / f"graph.{name}.json").read_text())

    def operators(self, name="train.fp32"):
        return [node["op"] for graph in self.graph(name)["graphs"] for node in graph["nodes"]]
