"""Compares an exported program with the eager model, bit for bit: the loss, every gradient and
every buffer.

A trace can lose what autograd would have done: the backward of a custom torch.autograd.Function is replaced in silence by
the derivative of its forward. Only the gradients show it.
"""
import contextlib

import torch

from . import state
from .errors import ExportError
from .values import short


class Result:
    """Results of one forward and backward pass: `loss`, and `gradients` and `buffers` by name; the
    gradient of an unused parameter is None."""

    def __init__(self, loss, gradients, buffers):
        self.loss, self.gradients, self.buffers = loss, gradients, buffers

    def to_json(self):
        """Norms are computed in fp64, so that they depend little on the order of additions."""
        return {"loss": self.loss.double().item(),
                "gradient_norms": {name: grad.double().norm().item() for name, grad in self.gradients.items() if grad is not None},
                "buffer_norms": {name: buffer.double().norm().item() for name, buffer in self.buffers.items() if buffer.isfinite().all()}}


@contextlib.contextmanager
def one_thread():
    """Sums over several threads have no fixed order of additions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _gradients(loss, tensors):
    """By id. Uses backward() instead of autograd.grad(), which reentrant checkpoints refuse, and
    restores the previous gradients."""
    before = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        loss.backward()
        return {id(tensor): tensor.grad for tensor in tensors}
    finally:
        for tensor, grad in zip(tensors, before):
            tensor.grad = grad


def run(module, batch, seed, names, prefix, is_exported=False):
    """Runs `module` forward and backward once, and restores its buffers."""
    found = dict(module.named_parameters(remove_duplicate=False))
    aliases = {own: [own] + [other for other, first in names.tied if first == own] for own in names.parameters}
    tensors = {}  # by name, the distinct tensors that represent one parameter
    for own, all_names in aliases.items():
        same = {id(found[prefix + name]): found[prefix + name] for name in all_names if prefix + name in found}
        if names.parameters[own].requires_grad and same:
            tensors[own] = list(same.values())
    with state.buffers_restored(module):
        torch.manual_seed(seed)
        loss = module({name: tensor.clone() for name, tensor in batch.items()})
        gradients = _gradients_by_name(loss, tensors, is_exported)
        buffers = {name.removeprefix(prefix): buffer.detach().clone() for name, buffer in module.named_buffers()}
    return Result(loss.detach(), gradients, {name: buffer for name, buffer in buffers.items() if name in names.buffers})


def _gradients_by_name(loss, tensors, is_exported):
    if not loss.requires_grad and is_exported:
        raise ExportError("the loss of the exported program has no gradient, and the model's has one",
                          "a trace of torch.utils.checkpoint with use_reentrant=True has none: pass use_reentrant=False, or switch "
                          "checkpointing off, as by model.gradient_checkpointing_disable()")
    if not loss.requires_grad:
        raise ExportError("the loss has no gradient", "it depends on no parameter that requires one; was it computed under torch.no_grad()?")
    if not loss.isfinite():
        raise ExportError(f"the loss of the example batch is {loss.item()}", "give a batch and weights with a finite loss")
    try:
        grads = _gradients(loss, [tensor for one in tensors.values() for tensor in one])
    except RuntimeError as error:
        raise ExportError(f"the backward of {'the exported program' if is_exported else 'the model'} fails: {str(error).splitlines()[0]}",
                          "where forward uses a buffer and then assigns it (self.mean = ...), use self.mean.clone()" if is_exported else "") from error
    gradients = {}
    for own, same in tensors.items():
        parts = [grads[id(tensor)] for tensor in same if grads[id(tensor)] is not None]
        gradients[own] = sum(parts[1:], parts[0]) if parts else None
        if parts and (gradients[own].layout != torch.strided or not gradients[own].isfinite().all()):
            found = "not finite" if gradients[own].layout == torch.strided else "sparse"
            raise ExportError(f"the gradient of '{own}' is {found}",
                              "pass sparse=False to the embedding" if found == "sparse" else "give a batch and weights with finite gradients")
    return gradients


def difference(one, other):
    """The first difference, as 'what: how'; None if everything is equal."""
    def differs(a, b, what):
        if a is None or b is None:
            return None if a is b else f"{what}: {'none' if a is None else 'one'} eagerly, {'none' if b is None else 'one'} exported"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{what}: {short(a.dtype)} {list(a.shape)} eagerly, {short(b.dtype)} {list(b.shape)} exported"
        if torch.equal(a, b) or (torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())):
            return None
        return f"{what}: differs by at most {(a.double() - b.double()).abs().max().item():.3g}, norm {a.double().norm().item():.3g}"

    pairs = [(one.loss, other.loss, "the loss")]
    pairs += [(grad, other.gradients.get(name), f"the gradient of '{name}'") for name, grad in one.gradients.items()]
    pairs += [(buffer, other.buffers.get(name), f"the buffer '{name}'") for name, buffer in one.buffers.items()]
    return next(filter(None, (differs(*pair) for pair in pairs)), None)


def compare(module, program, batch, seed, names, prefix, what):
    """Returns the eager result. Raises ExportError with the first tensor that differs."""
    with one_thread():
        eager = run(module, batch, seed, names, prefix)
        before = state.attributes_of(module)
        again = difference(eager, run(module, batch, seed, names, prefix))
        state.require_constant(before, state.attributes_of(module), prefix, what)
        found = None if again else difference(eager, run(program.module(), batch, seed, names, prefix, is_exported=True))
    if again:
        raise ExportError(f"the model itself is not repeatable ({what}): run twice with the seed {seed}, {again.replace('exported', 'the second time')}",
                          "draw random numbers only with torch's generator, and keep no state between calls but buffers")
    if found:
        raise ExportError(f"the exported program differs from the model ({what}): {found}",
                          "a custom torch.autograd.Function loses its backward, and Python values of the example become constants; "
                          "write the part with operators of PyTorch")
    return eager
