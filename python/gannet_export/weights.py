"""Writes a model's tensors to files: parameters and buffers by name, tied ones once, constants by content."""
import hashlib
import itertools

import torch

from .errors import ExportError
from .values import short

STORABLE = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
            torch.uint8, torch.bool}


class Constants:
    """Tensors of a graph that are neither parameters nor persistent buffers; equal ones are stored once."""

    def __init__(self):
        self.tensors, self._by_content = {}, {}

    def key(self, tensor):
        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype not in STORABLE:
            raise ExportError(f"a constant of the graph has dtype {short(tensor.dtype)}, which safetensors lacks",
                              "let the model compute it in forward, or hold its real and imaginary parts")
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        content = (short(tensor.dtype), tuple(tensor.shape), hashlib.sha256(raw).digest())
        if content not in self._by_content:
            self._by_content[content] = f"c{len(self.tensors)}"
            self.tensors[self._by_content[content]] = tensor.clone()
        return self._by_content[content]


def _overlap(one, other):
    """Whether two tensors of one storage, neither of them empty, have an element in common."""
    def positions(tensor):
        at = torch.zeros((), dtype=torch.int64) + tensor.data_ptr()
        for size, stride in zip(tensor.shape, tensor.stride()):
            at = at[..., None] + torch.arange(size) * stride * tensor.element_size()
        return at.reshape(-1)

    def end(tensor):
        return tensor.data_ptr() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) * tensor.element_size()

    if one.data_ptr() == other.data_ptr() or end(one) < other.data_ptr() or end(other) < one.data_ptr():
        return one.data_ptr() == other.data_ptr()
    return torch.isin(positions(one), positions(other)).any().item()


class Names:
    """The names of a state dict's tensors, and which names share a tensor."""

    def __init__(self, parameters, buffers, by_memory=False):
        """`parameters`, `buffers`: (name, tensor) pairs with every name, in the model's order.

        `by_memory`: tensors of equal memory, shape and strides are one, as those of an archive that was read back.
        """
        first, self.tied = {}, []

        def identity(tensor):
            if by_memory and tensor.numel():
                return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
            return id(tensor)

        self.parameters, self.buffers = {}, {}
        for names, pairs in ((self.parameters, parameters), (self.buffers, buffers)):
            for name, tensor in pairs:
                owner = first.setdefault(identity(tensor), name)
                if owner == name:
                    names[name] = tensor
                else:
                    self.tied.append([name, owner])
        self._own = dict(self.tied)

    @classmethod
    def of_model(cls, model):
        persistent = set(model.state_dict(keep_vars=True))
        return cls(list(model.named_parameters(remove_duplicate=False)),
                   [(name, buffer) for name, buffer in model.named_buffers(remove_duplicate=False) if name in persistent])

    def own(self, name):
        return self._own.get(name, name)

    def not_among(self, state_dict):
        """State-dict keys that this object lacks, such as the result of get_extra_state()."""
        known = {*self.parameters, *self.buffers, *self._own}
        return [name for name in state_dict if name not in known]

    def require_plain(self):
        """Gradients are floating point, files hold fp32, and a graph has neither hooks nor shared memory."""
        for name, tensor in self.parameters.items():
            if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                raise ExportError(f"parameter '{name}' has no size yet", "call the model once with a batch before the export")
            if tensor.is_meta:
                raise ExportError(f"parameter '{name}' is on the device 'meta' and has no values", "make the model on the CPU")
            if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
                raise ExportError(f"parameter '{name}' has a hook (register_hook, register_post_accumulate_grad_hook), and a graph has none",
                                  "remove the hook; to scale a gradient, multiply in forward or set the learning rate of its group")
            if tensor.dtype != torch.float32:
                raise ExportError(f"parameter '{name}' has dtype {short(tensor.dtype)}, and parameters are exported as float32",
                                  "hold its real and imaginary parts in float32, and join them in forward by torch.view_as_complex"
                                  if tensor.is_complex() else "call model.float() before, or keep what is not a weight in a buffer")
        for name, tensor in self.buffers.items():
            if tensor.dtype not in STORABLE:
                raise ExportError(f"buffer '{name}' has dtype {short(tensor.dtype)}, which safetensors lacks")
        self._require_own_memory()

    def _require_own_memory(self):
        """Training would part tensors that share memory, such as the result of `a.weight.data = b.weight.data`."""
        by_storage = {}
        for name, tensor in {**self.parameters, **self.buffers}.items():
            if tensor.numel():
                by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))
        for sharing in by_storage.values():
            for (name, tensor), (other_name, other) in itertools.combinations(sharing, 2):
                if not (name in self.buffers and other_name in self.buffers) and _overlap(tensor, other):
                    raise ExportError(f"'{other_name}' shares memory with '{name}', and is another tensor",
                                      "to tie them, assign the Parameter itself, as in head.weight = words.weight; otherwise clone() one")

    def to_json(self):
        return {
            "parameters": [{"name": name, "shape": list(tensor.shape), "requires_grad": tensor.requires_grad}
                           for name, tensor in self.parameters.items()],
            "buffers": [{"name": name, "shape": list(tensor.shape), "dtype": short(tensor.dtype)}
                        for name, tensor in self.buffers.items()],
            "tied": self.tied,
        }

    def tensors(self):
        """The contents of model.safetensors. Two names of one memory that are not ties (a view) are
        stored as two tensors."""
        return {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
                for name, tensor in {**self.parameters, **self.buffers}.items()}
