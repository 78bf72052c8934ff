"""Converts an archive written by torch.export.save (.pt2); the original model is not needed."""
import os

import torch
from torch.export.graph_signature import InputKind, OutputKind

from . import folder, shapes
from .errors import ExportError
from .graph import graph_of
from .quiet import quiet
from .values import short
from .weights import Constants, Names

REEXPORT = "export the model again, best by python -m gannet_export MODULE:FUNCTION"


def _load(archive):
    if not os.path.isfile(archive):
        raise ExportError(f"{archive} is not an archive: there is no such file")
    try:
        with quiet():
            return torch.export.load(archive)
    except Exception as error:  # of zip files, of the schema
        lines = str(error).splitlines() or [""]
        raise ExportError(f"{archive} is not an archive that PyTorch {torch.__version__} reads: {type(error).__name__}: {lines[0]}",
                          "write it by torch.export.save of the same PyTorch") from None


def _require_loss(program):
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    if any(kind != OutputKind.USER_OUTPUT for kind in kinds):
        raise ExportError("the archive's program was made functional (run_decompositions), which parts it from its buffers",
                          "save what torch.export.export returned")
    output = next(node for node in program.graph_module.graph.nodes if node.op == "output")
    first = torch.utils._pytree.tree_leaves(output.args[0])[0]
    value = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.dim() != 0 or not value.dtype.is_floating_point:
        found = f"shape {list(value.shape)}, {short(value.dtype)}" if isinstance(value, torch.Tensor) else type(first).__name__
        raise ExportError(f"the program's first output is not a scalar loss: {found}", "export a module whose forward returns the loss")


def convert_archive(archive, out, mode="train", say=print):
    """Writes the folder for an archive. Nothing is compared, since the archive does not contain the eager model."""
    folder.require_free(out)
    program = _load(archive)
    _require_loss(program)
    names = Names([(name, tensor) for name, tensor in program.named_parameters()],
                  [(spec.target, program.state_dict[spec.target]) for spec in program.graph_signature.input_specs
                   if spec.kind == InputKind.BUFFER and spec.persistent], by_memory=True)
    dtypes = {tensor.dtype for tensor in names.parameters.values() if tensor.dtype.is_floating_point}
    if dtypes != {torch.float32}:
        raise ExportError(f"the archive's parameters are {', '.join(sorted(map(short, dtypes))) or 'none'}, and float32 is converted", REEXPORT)
    inputs = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    constants = Constants()
    graph = graph_of(program, mode, "fp32", "", inputs, constants, names.own)
    graph["graphs"][-1]["outputs"] = graph["graphs"][-1]["outputs"][:1]
    for line in shapes.constant_dims(graph["inputs"]):
        say(line)
    folder.write(out, {f"{mode}.fp32": graph}, names, constants, None, {})
    say(f"{out}: {len(names.parameters)} parameters, graph {mode}.fp32; nothing was compared with the model, which an archive does not have")
