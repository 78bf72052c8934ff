"""State of a model between calls: buffers and other attributes of its modules.

A graph keeps buffers of the state dict alone. Other attributes are constants of the trace.
"""
import collections
import contextlib
import hashlib

import torch

from .errors import ExportError
from .values import short

_OF_TORCH = set(torch.nn.Module().__dict__)  # parameters, buffers, submodules, hooks
_LISTS, _SETS = (list, tuple, collections.deque), (set, frozenset)


@contextlib.contextmanager
def buffers_restored(model):
    """Restores the values of buffers, and the tensors themselves where forward assigned others."""
    kept = [(module._buffers, name, buffer, buffer.detach().clone())
            for module in model.modules() for name, buffer in module._buffers.items() if buffer is not None]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffers, name, buffer, value in kept:
                if buffers[name] is not buffer:
                    buffers[name] = buffer
                buffer.copy_(value)


@contextlib.contextmanager
def restored(model):
    """Restores buffers, removes those that a call added, and restores attributes that were assigned."""
    kept = [(module, dict(module.__dict__), module._buffers, dict(module._buffers)) for module in model.modules()
            if not isinstance(module, torch.jit.ScriptModule)]  # these keep theirs in C++
    try:
        with buffers_restored(model):
            yield
    finally:
        for module, attributes, buffers, values in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            buffers.clear()
            buffers.update(values)


@contextlib.contextmanager
def only_buffers_written(model, prefix):
    """Refuses a call that writes into a parameter, or into a buffer outside of the state dict, which a graph has as a constant.
    Restores them; an error of the call comes first."""
    outside = {id(module._buffers[name]) for module in model.modules() for name in module._non_persistent_buffers_set}
    buffers = dict(model.named_buffers())
    constants = {**dict(model.named_parameters()), **{name: buffer for name, buffer in buffers.items() if id(buffer) in outside}}
    kept = {name: (tensor, tensor._version, tensor.detach().clone()) for name, tensor in constants.items()}
    yield
    now = dict(model.named_buffers())
    for name, buffer in buffers.items():
        if name in now and (now[name].shape, now[name].dtype) != (buffer.shape, buffer.dtype):
            raise ExportError(f"forward assigns {short(now[name].dtype)} {list(now[name].shape)} to the buffer '{name.removeprefix(prefix)}', "
                              f"which is {short(buffer.dtype)} {list(buffer.shape)}", "keep its shape and dtype")
    written = [name for name, (tensor, version, value) in kept.items()
               if tensor._version != version or not torch.equal(now.get(name, tensor), value)]
    with torch.no_grad():
        for name in written:
            kept[name][0].copy_(kept[name][2])
    if written:
        kind = "buffer outside of the state dict" if written[0] in buffers else "parameter"
        raise ExportError(f"forward writes into the {kind} '{written[0].removeprefix(prefix)}', and a graph writes only into buffers of the "
                          "state dict", "compute a new tensor instead" +
                          (", or register the buffer with persistent=True" if written[0] in buffers else "; embed without max_norm"))


def _digest(value, depth=0):
    """Equal for equal numbers, texts, tensors and containers of them; None for other objects."""
    if isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if type(value) is torch.Tensor and value.layout == torch.strided and not value.is_meta and not value.is_quantized:
        raw = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy() if value.numel() else b""
        return f"tensor {list(value.shape)} {value.dtype} {hashlib.sha256(raw).hexdigest()}"
    if isinstance(value, _LISTS) and depth < 4:
        return [_digest(one, depth + 1) for one in value]
    if isinstance(value, dict) and depth < 4:
        return [(repr(key), _digest(one, depth + 1)) for key, one in value.items()]
    return sorted(map(repr, value)) if isinstance(value, _SETS) else None


def added_buffers(model, known, prefix):
    """Names of buffers that are not in `known`. Refuses those of the state dict, whose first values a folder lacks."""
    added = [name for name, _ in model.named_buffers() if name not in known]
    for name in added:
        if name in model.state_dict():
            raise ExportError(f"forward adds the buffer '{name.removeprefix(prefix)}' to the state dict, or fills it where it was None",
                              "register it with its first values, as by register_buffer('mean', torch.zeros(3))")
    return added


def attributes_of(model):
    """The attributes of all modules, in a form that compares by value."""
    return {(path, name): _digest(value) for path, module in model.named_modules()
            for name, value in module.__dict__.items() if name not in _OF_TORCH}


def require_constant(before, after, prefix, what):
    """Refuses attributes that differ after two calls with one batch and one seed. What forward stores at its first call, or for a
    look at it later, is equal after both."""
    for (path, name), value in after.items():
        if before.get((path, name)) == value:
            continue
        path = path.removeprefix(prefix) if path.startswith(prefix) else ""
        raise ExportError(f"forward changes the attribute '{path + '.' * bool(path)}{name}' at each call ({what}), and an attribute becomes a "
                          "constant of the graph", "keep state between calls in a buffer of the state dict (register_buffer), and write "
                          "into it, as by self.calls.add_(1)")
