"""Exports a model: trace, compare, write, for each mode and dtype."""
import numpy
import torch

from . import compare, folder, shapes, state, trace
from .errors import ExportError
from .graph import graph_of
from .loss import LossOnly
from .weights import Constants, Names


def read_batch(path):
    """The arrays of an .npz file as tensors. Pickled objects are refused."""
    try:
        with numpy.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name]) for name in file.files}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ExportError(f"{path} is not an .npz file of arrays: {error}", "write it by numpy.savez('batch.npz', input_ids=..., labels=...)") from None


def _require(names, known, option):
    for name in names:
        if name not in known:
            raise ExportError(f"{option} has '{name}'", f"choose of {', '.join(known)}")


def export_model(model, batch, out, dtypes=("fp32", "bf16"), modes=("train", "eval"), seed=0, say=print):
    """Writes `model` to the folder `out` after comparing the exported programs with it.

    model   a torch.nn.Module on the CPU in fp32. Its forward takes the entries of `batch` by name and returns a scalar
            loss, or a value that has one as `.loss`, ["loss"] or its first element
    batch   tensors by name, at least 2 rows each; sizes may vary later unless a line given to `say` names them as constant
    seed    of the random numbers in the comparison and in the probe

    Raises ExportError, with the first gradient that differs from the model's, and writes nothing then.

        gannet_export.export_model(model, {"input_ids": ids, "labels": ids}, "model/")
    """
    _require(dtypes, ("fp32", "bf16"), "--dtypes")
    _require(modes, ("train", "eval"), "--modes")
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    folder.require_free(out)
    trace.require_batch(batch)
    names = Names.of_model(model)
    names.require_plain()
    was_training, constants, graphs, results = model.training, Constants(), {}, {}
    flattened, told = 0, set()
    try:
        for dtype in dtypes:
            cast, inputs = trace.in_dtype(model, dtype), trace.batch_in_dtype(batch, dtype)
            own = Names.of_model(cast)
            for mode in modes:
                what = f"{mode}.{dtype}"
                with state.restored(cast):
                    module, program, checkpoints = trace.trace(cast, inputs, mode, dtype)
                    results[what] = compare.compare(module, program, inputs, seed, own, LossOnly.PREFIX, what).to_json()
                graphs[what] = graph_of(program, mode, dtype, LossOnly.PREFIX, list(inputs), constants, own.own)
                flattened = max(flattened, checkpoints)
                for line in shapes.constant_dims(graphs[what]["inputs"]):
                    if line not in told:
                        say(line)
                        told.add(line)
                say(f"{what}: {sum(len(graph['nodes']) for graph in graphs[what]['graphs'])} nodes; loss, "
                    f"{len(results[what]['gradient_norms'])} gradients and {len(own.buffers)} buffers are bit-equal to the model's")
    finally:
        model.train(was_training)
    for name, tensor in batch.items():
        if not tensor.dim():
            say(f"{name}: a single number, which gannet train cannot read from --data; a C++ program can pass it. Give it a value for each row")
    if flattened:
        say(f"torch.utils.checkpoint was called {flattened} times and is not in the graph: all activations are kept")
    batch = dict(sorted(batch.items()))
    for name in names.not_among(model.state_dict()):
        say(f"'{name}' of the state dict is neither a parameter nor a buffer: it is not exported, and load_state_dict of the "
            "trained weights needs strict=False")
    folder.write(out, graphs, names, constants, {"seed": seed, "results": results}, batch, folder.python_config_of(model))
    say(f"{out}: {len(names.parameters)} parameters, {len(names.buffers)} buffers, {len(names.tied)} tied names, "
        f"{len(constants.tensors)} constants, graphs {', '.join(graphs)}")
