"""Writes a PyTorch model as data that Gannet trains natively: gannet::ExportedModule reads the folder.

    python -m gannet_export my_module:make_model --example batch.npz --out model/
    python -m gannet_export convert model.pt2 --out model/
    python -m gannet_export data train.parquet --out train/

or from a program:

    import gannet_export
    gannet_export.export_model(model, {"input_ids": ids, "labels": labels}, "model/")

`docs/python-models.md` describes the steps and the limits.
"""
from .errors import ExportError
from .export import export_model
from .version import VERSION as __version__

__all__ = ["ExportError", "export_model", "__version__"]
