"""An exported program's FX graph as the JSON of graph.MODE.DTYPE.json (`values.py`, `shapes.py`, `operators.py`)."""
import torch
from torch.export.graph_signature import InputKind

from .errors import ExportError
from .operators import name_of
from .shapes import Symbols, relations_of, require_defined
from .values import encode, short
from .version import FORMAT, VERSION

MOST_NESTED = 8  # nested graphs; equal to the reader's limit
# Nodes without side effects, dropped if their value is unused.
PURE = ("py.", "getitem")


def layer_of(node, prefix):
    """The module path of a node, in the form of parameter names: 'transformer.h.0.attn'; '' at the top."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] if isinstance(entry, tuple) else "" for entry in stack.values()]
    path = paths[-1] if paths else ""
    if "_empty_nn_module_stack" in path:
        return ""
    path = path.split("@")[0]  # a module's second call
    return path.removeprefix(prefix) if path.startswith(prefix) else ("" if path == prefix.rstrip(".") else path)


class GraphWriter:
    """Walks the graphs of one program; nested graphs come before those that use them."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.graphs = []

    def write(self, module, name="main", depth=0):
        if depth > MOST_NESTED:
            raise ExportError(f"graphs are nested deeper than {MOST_NESTED} levels")
        inputs, nodes, outputs, nested = [], [], [], {}
        for node in module.graph.nodes:
            where = f"node '{node.name}'" + (f" of layer '{self.layer(node)}'" if self.layer(node) else "")
            if node.op == "placeholder":
                inputs.append(node.name)
            elif node.op == "get_attr":
                nested[node.name] = self._nested(module, node, name, depth, where)
            elif node.op == "call_function":
                written = self._call(node, nested, where)
                if written:
                    nodes.append(written)
            elif node.op == "output":
                outputs = encode(list(torch.utils._pytree.tree_leaves(node.args[0])), where)
            else:
                raise ExportError(f"{where}: a node of kind '{node.op}', which the format lacks")
        self.graphs.append({"name": name, "inputs": inputs, "nodes": _without_unused(nodes, outputs), "outputs": outputs})

    def layer(self, node):
        return layer_of(node, self.prefix)

    def _nested(self, module, node, name, depth, where):
        found = getattr(module, node.target, None)
        if not isinstance(found, torch.fx.GraphModule):
            raise ExportError(f"{where}: '{node.target}' is not a graph", "tensors of the model belong into parameters or buffers")
        label = node.target if name == "main" else f"{name}.{node.target}"
        if all(graph["name"] != label for graph in self.graphs):
            self.write(found, label, depth + 1)
        return label

    def _call(self, node, nested, where):
        op = name_of(node.target, where)
        if op is None:
            return None
        args = [self._argument(one, nested, where) for one in node.args]
        kwargs = {key: self._argument(one, nested, where) for key, one in node.kwargs.items()}
        if op == "nested.autocast":
            args[0] = {"device": "module"}  # of a device's name, as 'cpu'
        written = {"name": node.name, "op": op, "args": args}
        if kwargs:
            written["kwargs"] = kwargs
        if self.layer(node):
            written["layer"] = self.layer(node)
        return written

    def _argument(self, value, nested, where):
        if isinstance(value, torch.fx.Node) and value.name in nested:
            return {"graph": nested[value.name]}
        return encode(value, where)


def _references(value):
    if isinstance(value, dict):
        yield from (value[key] for key in ("ref",) if key in value)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


def _without_unused(nodes, outputs):
    used = set(_references(outputs))
    kept = []
    for node in reversed(nodes):
        if node["op"].startswith(PURE) and node["op"] != "py.assert" and node["name"] not in used:
            continue
        used.update(_references(node["args"]))
        used.update(_references(list(node.get("kwargs", {}).values())))
        kept.append(node)
    return kept[::-1]


def graph_of(program, mode, dtype, prefix, names, constants, own_name):
    """The whole JSON of one program.

    `names`: the batch's names, in the order of the program's inputs. `constants` gives a tensor its key in the file of
    constants. `own_name` maps a parameter's or buffer's name to the one under which its value is stored.
    """
    writer = GraphWriter(prefix)
    writer.write(program.graph_module)
    symbols = Symbols(program.range_constraints)
    placeholders, inputs = [], []
    fakes = [node.meta.get("val") for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, fake in zip(program.graph_signature.input_specs, fakes):
        target = (spec.target or "").removeprefix(prefix)
        if spec.kind == InputKind.USER_INPUT:
            if not isinstance(fake, torch.Tensor):
                raise ExportError(f"input '{spec.arg.name}' is not a tensor", "the example batch may only have tensors")
            target = names[len(inputs)]
            if prefix and target.isidentifier() and spec.arg.name != f"batch_{target}":
                raise ExportError(f"the trace calls input '{target}' '{spec.arg.name}'", "report this, with the version of PyTorch")
            inputs.append({"name": target, "dtype": short(fake.dtype), "shape": [symbols.size(dim) for dim in fake.shape]})
            placeholders.append(["input", target])
        elif spec.kind == InputKind.PARAMETER:
            placeholders.append(["parameter", own_name(target)])
        elif spec.kind == InputKind.BUFFER and spec.persistent:
            placeholders.append(["buffer", own_name(target)])
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            placeholders.append(["constant", constants.key(program.constants[spec.target])])
        else:
            raise ExportError(f"input '{spec.arg.name}' is a {spec.kind.name}, which the format lacks")
    require_defined(inputs, symbols)
    return {
        "format": FORMAT,
        "exported_by": {"gannet_export": VERSION, "torch": str(torch.__version__)},
        "mode": mode, "dtype": dtype,
        "symbols": symbols.to_json(), "inputs": inputs, "relations": relations_of(program, inputs),
        "placeholders": placeholders, "graphs": writer.graphs,
    }
