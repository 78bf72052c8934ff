"""Traces a model with torch.export; every dimension of every input may vary unless the model fixes it."""
import contextlib
import copy
import inspect
import os
import traceback

import torch

from . import state
from .errors import ExportError
from .loss import ForTrace, LossOnly
from .quiet import quiet
from .values import short
from .weights import STORABLE

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def require_batch(batch):
    """Refuses an example whose sizes PyTorch would treat as constants."""
    if not batch:
        raise ExportError("the example batch is empty", "give an array for each argument of the model's forward")
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"'{name}' of the example batch is a {type(tensor).__name__}, not a tensor")
        if tensor.dtype not in STORABLE:
            raise ExportError(f"'{name}' of the example batch has dtype {short(tensor.dtype)}, and a folder of samples lacks it",
                              "convert it: integers to int64, complex numbers by torch.view_as_real")
        if tensor.dim() and tensor.shape[0] < 2:
            raise ExportError(f"'{name}' of the example batch has {tensor.shape[0]} row: PyTorch takes a size of 0 or 1 for a constant, "
                              "so that the graph would accept no other batch", "give an example of at least 2 rows")


def in_dtype(model, dtype):
    """A bf16 copy of the model. Buffers outside the state dict keep their dtype, as in
    transformers' from_pretrained."""
    if dtype == "fp32":
        return model
    try:
        cast = copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:  # of tensors that were computed, as by the old torch.nn.utils.weight_norm
        raise ExportError(f"the model cannot be copied for {dtype}: {str(error).splitlines()[0]}",
                          "pass --dtypes fp32, or use torch.nn.utils.parametrizations in place of the old weight_norm and spectral_norm, and "
                          "prune.remove") from error
    kept = [(module, name, module._buffers[name]) for module in cast.modules() for name in module._non_persistent_buffers_set]
    cast.to(DTYPES[dtype])
    for module, name, buffer in kept:
        module._buffers[name] = buffer
    return cast


def batch_in_dtype(batch, dtype):
    """Converts floating-point inputs to the dtype of the parameters."""
    return {name: one.to(DTYPES[dtype]) if one.dtype == torch.float32 else one for name, one in sorted(batch.items())}


@contextlib.contextmanager
def count_checkpoints():
    """Counts calls of torch.utils.checkpoint. A trace flattens them, so that every activation is kept."""
    from torch.utils import checkpoint
    count = [0]
    name = "_checkpoint_without_reentrant_generator"
    name += "_impl" if hasattr(checkpoint, name + "_impl") else ""  # since PyTorch 2.15
    generator, function = getattr(checkpoint, name), checkpoint.CheckpointFunction.apply

    def counted(original):
        def call(*args, **kwargs):
            count[0] += 1
            return original(*args, **kwargs)
        return call

    setattr(checkpoint, name, counted(generator))
    checkpoint.CheckpointFunction.apply = counted(function)
    try:
        yield count
    finally:
        setattr(checkpoint, name, generator)
        del checkpoint.CheckpointFunction.apply  # it shadowed that of autograd.Function


def _line_of(error):
    """' (FILE:LINE)' of the innermost call outside of PyTorch and of this package."""
    others = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, __file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _arguments_of(model):
    try:
        return ", ".join(inspect.signature(model.forward).parameters) or "none"
    except (TypeError, ValueError):  # compiled
        return "others"


def _require_runs(model, module, batch, mode, dtype):
    """Refuses a model that raises in eager execution, before an error of the trace would hide it, and one that writes what a graph
    may not write."""
    try:
        for _ in range(2):  # again where the first call added a buffer, as for a mask that is computed once
            known = dict(module.named_buffers())
            with state.buffers_restored(module), state.only_buffers_written(module, LossOnly.PREFIX):
                module({name: tensor.clone() for name, tensor in batch.items()})
            if not state.added_buffers(module, known, LossOnly.PREFIX):
                break
    except ExportError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}{_line_of(error)}"
        if dtype != "fp32":
            raise ExportError(f"the model does not run in {dtype}: {found}",
                              "pass --dtypes fp32, and train it in fp32 or under torch_autocast; of the model's tensors, "
                              "buffers outside of its state dict stay fp32") from error
        raise ExportError(f"the model does not run on the example batch ({mode}): {found}",
                          f"the batch has {', '.join(batch)}, by name; forward takes {_arguments_of(model)}") from error


def trace(model, batch, mode, dtype):
    """Returns the traced module, its ExportedProgram, and the number of checkpoints that were flattened."""
    model.train(mode == "train")
    module = LossOnly(model)
    auto = torch.export.Dim.AUTO
    dims = {name: {dim: auto for dim in range(tensor.dim())} for name, tensor in batch.items()}
    _require_runs(model, module, batch, mode, dtype)
    with count_checkpoints() as count, quiet():
        try:
            program = torch.export.export(ForTrace(model), (batch,), dynamic_shapes=(dims,))
        except ExportError:
            raise
        except Exception as error:  # torch.export raises many types
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise ExportError(f"torch.export cannot trace the model ({mode}, {dtype}): {type(error).__name__}: {lines[0] if lines else ''}",
                              "docs/python-models.md lists what a model may not do; for a model that runs in fp32 alone, "
                              "pass --dtypes fp32" if dtype == "bf16" else "docs/python-models.md lists what a model may not do") from error
    return module, program, count[0]
