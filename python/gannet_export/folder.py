"""Writes the output folder atomically."""
import json
import os
import re
import shutil
import tempfile

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from .errors import ExportError
from .version import FORMAT, VERSION

MODEL_TYPE = "gannet_exported"
PYTHON_CONFIG = "python_config.json"  # `gannet checkpoint export` writes it as config.json beside the weights
WRITTEN = re.compile(r"config\.json|python_config\.json|graph\.(train|eval)\.(fp32|bf16)\.json|(model|constants|probe)\.safetensors|probe\.json")


def _is_ours(folder):
    try:
        with open(os.path.join(folder, "config.json")) as file:
            return json.load(file).get("model_type") == MODEL_TYPE
    except (OSError, ValueError, AttributeError):
        return False


def _foreign(folder):
    """Files that an export does not write. The output folder of a training also has its config.json."""
    names = sorted(os.listdir(folder))
    return [name for name in names if not WRITTEN.fullmatch(name) or os.path.isdir(os.path.join(folder, name))] if _is_ours(folder) else names


def require_free(folder):
    """Refuses an output folder that holds something else, or that cannot be written, before any work is done."""
    parent = os.path.dirname(os.path.abspath(folder))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".gannet_export-", dir=parent))
    except OSError as error:
        raise ExportError(f"{folder} cannot be made: {parent}: {error.strerror}", "name another folder, or allow writing there") from error
    if os.path.realpath(folder) == os.getcwd() or os.path.ismount(folder):
        raise ExportError(f"{folder} is the current folder or a mount point, which cannot be replaced", "name a folder in it")
    foreign = _foreign(folder) if os.path.isdir(folder) else []
    if foreign:
        raise ExportError(f"{folder} has files that this command did not write, such as '{foreign[0]}'",
                          "name an empty folder, or one that does not exist; checkpoints and trained weights are not overwritten")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ExportError(f"{folder} is a file", "name a folder")


def _write_json(path, value, indent=None):
    with open(path, "w") as file:
        json.dump(value, file, indent=indent, allow_nan=False, separators=None if indent else (",", ":"))
        file.write("\n")


def python_config_of(model):
    """The config.json from which transformers can rebuild the model; None for a model of another library."""
    to_text = getattr(getattr(model, "config", None), "to_json_string", None)
    if to_text is None or not hasattr(model, "from_pretrained"):
        return None
    config = json.loads(to_text())
    config.pop("_name_or_path", None)  # where the weights came from, possibly a private path
    return {**config, "architectures": [type(model).__name__]}


def write(folder, *contents):
    """Arguments of _write()."""
    try:
        _write(folder, *contents)
    except (OSError, SafetensorError) as error:
        raise ExportError(f"cannot write {folder}: {error}", "check the disk and the folder's permissions") from error


def _write(folder, graphs, names, constants, probe, batch, python_config=None):
    """`graphs`: {"train.fp32": JSON}. `probe`: {"seed": 0, "results": {"train.fp32": ...}}, or None."""
    parent = os.path.dirname(os.path.abspath(folder))
    os.makedirs(parent, exist_ok=True)
    new = tempfile.mkdtemp(prefix=".gannet_export-", dir=parent)
    try:
        _write_json(os.path.join(new, "config.json"),
                    {"model_type": MODEL_TYPE, "format": FORMAT, "exporter": VERSION, "graphs": sorted(graphs), **names.to_json()}, indent=1)
        if python_config:
            _write_json(os.path.join(new, PYTHON_CONFIG), python_config, indent=1)
        for name, graph in graphs.items():
            _write_json(os.path.join(new, f"graph.{name}.json"), graph)
        save_file(names.tensors(), os.path.join(new, "model.safetensors"), {"format": "pt"})
        save_file(constants.tensors, os.path.join(new, "constants.safetensors"), {"format": "pt"})
        if probe:
            apart = {name: one.clone(memory_format=torch.contiguous_format) for name, one in batch.items()}  # labels may alias input_ids
            save_file(apart, os.path.join(new, "probe.safetensors"), {"format": "pt"})
            _write_json(os.path.join(new, "probe.json"), probe, indent=1)
        for name in os.listdir(new):  # safetensors creates files that only their owner can read
            os.chmod(os.path.join(new, name), 0o644)
        os.chmod(new, 0o755)
        if os.path.isdir(folder):
            require_free(folder)  # again: the trace takes minutes
            old = tempfile.mkdtemp(prefix=".gannet_export-", dir=parent)
            os.replace(folder, os.path.join(old, "old"))
            os.replace(new, folder)
            shutil.rmtree(old)
        else:
            os.replace(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
