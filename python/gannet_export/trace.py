"""Traces a model with torch.export; every dimension of every input may vary unless the model fixes it."""
import contextlib
import copy

import torch

from .errors import ExportError
from .loss import LossOnly
from .quiet import quiet

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def require_batch(batch):
    """Refuses an example whose sizes PyTorch would treat as constants."""
    if not batch:
        raise ExportError("the example batch is empty", "give an array for each argument of the model's forward")
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"'{name}' of the example batch is a {type(tensor).__name__}, not a tensor")
        if tensor.dim() and tensor.shape[0] < 2:
            raise ExportError(f"'{name}' of the example batch has {tensor.shape[0]} row: PyTorch takes a size of 0 or 1 for a constant, "
                              "so that the graph would accept no other batch", "give an example of at least 2 rows")


def in_dtype(model, dtype):
    """A bf16 copy of the model. Buffers outside the state dict keep their dtype, as in
    transformers' from_pretrained."""
    if dtype == "fp32":
        return model
    cast = copy.deepcopy(model)
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


def _require_runs(module, batch, dtype):
    """Attributes an error to the model if eager execution raises it as well; an error only in bf16 has a workaround."""
    try:
        saved = {name: buffer.clone() for name, buffer in module.named_buffers()}
        module(batch)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                buffer.copy_(saved[name])
    except (RuntimeError, TypeError) as error:
        if dtype == "fp32":
            raise
        raise ExportError(f"the model does not run in {dtype}: {str(error).splitlines()[0]}",
                          "pass --dtypes fp32, and train it in fp32 or under torch_autocast; of the model's tensors, "
                          "buffers outside of its state dict stay fp32") from error


def trace(model, batch, mode, dtype):
    """Returns the traced module, its ExportedProgram, and the number of checkpoints that were flattened."""
    model.train(mode == "train")
    module = LossOnly(model)
    auto = torch.export.Dim.AUTO
    dims = {name: {dim: auto for dim in range(tensor.dim())} for name, tensor in batch.items()}
    _require_runs(module, batch, dtype)
    with count_checkpoints() as count, quiet():
        try:
            program = torch.export.export(module, (batch,), dynamic_shapes=(dims,))
        except ExportError:
            raise
        except Exception as error:  # torch.export raises many types
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise ExportError(f"torch.export cannot trace the model ({mode}, {dtype}): {type(error).__name__}: {lines[0] if lines else ''}",
                              "docs/python-models.md lists what a model may not do; for a model that runs in fp32 alone, "
                              "pass --dtypes fp32" if dtype == "bf16" else "docs/python-models.md lists what a model may not do") from error
    return module, program, count[0]
