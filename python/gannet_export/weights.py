"""Writes a model's tensors to files: parameters and buffers by name, tied ones once, constants by content."""
import hashlib

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
        """Gradients are floating point, and files hold fp32."""
        for name, tensor in self.parameters.items():
            if tensor.dtype != torch.float32:
                raise ExportError(f"parameter '{name}' has dtype {short(tensor.dtype)}, and parameters are exported as float32",
                                  "call model.float() before, or keep what is not a weight in a buffer")
        for name, tensor in self.buffers.items():
            if tensor.dtype not in STORABLE:
                raise ExportError(f"buffer '{name}' has dtype {short(tensor.dtype)}, which safetensors lacks")

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
