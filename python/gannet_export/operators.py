"""Names of operators in the format: of Python, of nested graphs, of the dispatcher."""
import math
import operator

import torch

from .allowed_operators import is_allowed
from .errors import ExportError

# On symbolic integers and numbers derived from them.
PYTHON = {
    operator.getitem: "getitem",
    operator.add: "py.add", operator.sub: "py.sub", operator.mul: "py.mul", operator.truediv: "py.truediv",
    operator.floordiv: "py.floordiv", operator.mod: "py.mod", operator.pow: "py.pow", operator.neg: "py.neg",
    operator.eq: "py.eq", operator.ne: "py.ne", operator.lt: "py.lt", operator.le: "py.le", operator.gt: "py.gt",
    operator.ge: "py.ge", operator.and_: "py.and", operator.or_: "py.or", operator.not_: "py.not",
    math.floor: "py.floor", math.ceil: "py.ceil", math.trunc: "py.trunc",
    torch.sym_float: "py.float", torch.sym_int: "py.int", torch.sym_max: "py.max", torch.sym_min: "py.min",
    torch.sym_not: "py.not", torch.sym_ite: "py.if_else",
}
if hasattr(torch, "sym_sum"):
    PYTHON[torch.sym_sum] = "py.sum"
DISPATCHED = {
    "aten.sym_size.int": "py.size", "aten.sym_numel.default": "py.numel", "aten.sym_stride.int": "py.stride",
    "aten._assert_scalar.default": "py.assert",
}
NESTED = {"wrap_with_set_grad_enabled": "nested.grad_mode", "wrap_with_autocast": "nested.autocast", "cond": "nested.cond"}
# Checks of dtypes and ranges at trace time. They are dropped: the reader checks inputs itself, and
# dtypes may differ under autocast.
DROPPED = {"aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default",
           "aten.sym_constrain_range_for_size.default", "aten._assert_async.msg"}


def _require_allowed(target, name, where):
    """As the reader does, exported/operands.cpp."""
    if target.namespace != "aten":
        raise ExportError(f"{where}: the operator {name} belongs to another library than PyTorch", "write that line with PyTorch's operators")
    if any(argument.is_out for argument in target._schema.arguments):
        raise ExportError(f"{where}: the operator {name} writes into a tensor that is given to it (out=)",
                          "call it without out=, and copy_() the result; torch's spectral_norm has such a call in train mode")
    if not is_allowed(name.split(".")[1]):
        raise ExportError(f"{where}: the operator {name} is not among those that a graph may call",
                          "a graph computes from tensors and does nothing else; write that line with other operators")


def name_of(target, where):
    """The format's name for a node's target, or None for a check that is dropped."""
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
        if name in DROPPED or name in DISPATCHED:
            return DISPATCHED.get(name)
        _require_allowed(target, name, where)
        return name
    if isinstance(target, torch._ops.HigherOrderOperator):
        if target.name() in NESTED:
            return NESTED[target.name()]
        raise ExportError(f"{where}: the operator '{target.name()}' of nested graphs is not supported",
                          "supported are torch.no_grad, torch.autocast and torch.cond")
    if target in PYTHON:
        return PYTHON[target]
    raise ExportError(f"{where}: Python's {getattr(target, '__name__', target)} on a size is not supported")
