"""The module to trace: wraps the user's model and returns only its loss."""
import torch

from .errors import ExportError


def loss_of(result):
    """Extracts the scalar loss from the model's result: the result itself, `.loss`, ["loss"], or the first element."""
    if isinstance(result, torch.Tensor):
        loss = result
    elif getattr(result, "loss", None) is not None:
        loss = result.loss
    elif isinstance(result, dict) and result.get("loss") is not None:
        loss = result["loss"]
    elif isinstance(result, (tuple, list)) and result and isinstance(result[0], torch.Tensor):
        loss = result[0]
    else:
        raise ExportError(f"the model's forward returned {type(result).__name__}, in which there is no loss",
                          "let it return a scalar loss, or an object with `.loss`; models of transformers do so where the batch has labels")
    if loss.dim() != 0 or not loss.dtype.is_floating_point:
        raise ExportError(f"the loss has shape {list(loss.shape)} and dtype {str(loss.dtype).removeprefix('torch.')}, "
                          "and a loss is a scalar of floating point", "reduce it in forward, as by loss.mean()")
    return loss


class LossOnly(torch.nn.Module):
    """Calls the model with the batch's entries as keyword arguments."""

    PREFIX = "model."  # prefix of the model's names inside this module

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, batch):
        return loss_of(self.model(**batch))


class ForTrace(LossOnly):
    """Writes what forward assigned to a buffer into that buffer: torch.export loses the assignment in a submodule."""

    def forward(self, batch):
        before = [(module._buffers, name, buffer) for module in self.modules() for name, buffer in module._buffers.items()
                  if name not in module._non_persistent_buffers_set]
        loss = super().forward(batch)
        for buffers, name, buffer in before:
            assigned = buffers[name]
            if assigned is not buffer and isinstance(buffer, torch.Tensor) and isinstance(assigned, torch.Tensor):
                buffer.copy_(assigned.detach())
                buffers[name] = buffer
        return loss
