"""Arguments of nodes as JSON.

    null, true, 3, "text", [...]       None, a bool, an int, a str, a list
    1.0                                a float; it always has a point or an exponent, so that it is not an int
    {"float": "inf"}                   a float that JSON lacks: inf, -inf, nan
    {"ref": "add_1"}                   the value of an earlier node or of an input
    {"graph": "submod_1"}              a nested graph
    {"dtype": "float32"}, {"layout": "strided"}, {"memory_format": "contiguous_format"}
    {"device": "module"}               the device of the module's parameters
"""
import math

import torch

from .errors import ExportError


def short(value):
    """'float32' for torch.float32."""
    return str(value).removeprefix("torch.")


def encode(value, where):
    """`where` names the node and its layer in the error for a value that the format cannot express."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, torch.fx.Node):
        return {"graph": value.target} if value.op == "get_attr" else {"ref": value.name}
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ExportError(f"{where}: the integer {value} does not fit into 64 bits")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [encode(one, where) for one in value]
    if isinstance(value, torch.dtype):
        return {"dtype": short(value)}
    if isinstance(value, torch.device):
        if value.type == "meta":
            raise ExportError(f"{where}: a tensor on the device 'meta', which has no values")
        return {"device": "module"}
    if isinstance(value, torch.layout):
        return {"layout": short(value)}
    if isinstance(value, torch.memory_format):
        return {"memory_format": short(value)}
    raise ExportError(f"{where}: an argument of type {type(value).__name__}, which the format lacks",
                      "complex numbers and objects cannot be arguments; rewrite that line of the model")
