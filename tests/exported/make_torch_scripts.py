"""Writes the files of torch_scripts/: small TorchScript models, and what eager PyTorch computes with one of them.

    OMP_NUM_THREADS=1 VENV/bin/python tests/exported/make_torch_scripts.py tests/exported/torch_scripts

words.pt has a tied weight, dropout, a batch norm, a buffer that forward assigns, and an argument with a default; traced.pt returns a tuple. The others
are refused: frozen.pt (no parameters), number.pt (an argument that is an integer), counts.pt (an
attribute that forward assigns and that is no buffer), other.pt (an operator of another library).
expected.safetensors, of words.pt in train and eval mode, MODE.batch.NAME, MODE.loss, MODE.grad.NAME and MODE.buffer.NAME: after
torch.manual_seed(7).
"""
import pathlib
import sys
import warnings
from typing import Dict, Optional

import torch
from safetensors.torch import save_file
from torch import Tensor


class Words(torch.nn.Module):
    def __init__(self, drop: float = 0.2):
        super().__init__()
        self.words, self.mix = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8)
        self.drop, self.norm = torch.nn.Dropout(drop), torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.ones(()))

    def forward(self, ids: Tensor, labels: Tensor, weight: Optional[Tensor] = None) -> Dict[str, Tensor]:
        x = self.norm(self.drop(self.mix(self.words(ids))).flatten(0, 1)) * self.scale
        self.scale = self.scale * 0.95
        logits = self.head(x)
        loss = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="none")
        if weight is not None:
            loss = loss * weight.flatten()
        return {"logits": logits, "loss": loss.mean()}


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)

    def forward(self, x, label):
        y = self.net(x)
        return torch.nn.functional.cross_entropy(y, label), y


class Number(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor, times: int) -> Tensor:
        return self.net(x).sum() * times


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = torch.nn.Linear(4, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.net(x).sum() / self.calls


class Other(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.otherlib.twice(self.net(x)).sum()


def expected():
    found = {}
    for mode in ("train", "eval"):
        torch.manual_seed(1)
        model = Words().train(mode == "train")
        batch = {"ids": torch.randint(0, 20, (3, 5)), "labels": torch.randint(0, 20, (3, 5)), "weight": torch.rand(3, 5)}
        torch.manual_seed(7)
        loss = model(**batch)["loss"]
        loss.backward()
        found |= {f"{mode}.batch.{name}": tensor for name, tensor in batch.items()}
        found[f"{mode}.loss"] = loss.detach()
        found |= {f"{mode}.grad.{name}": one.grad for name, one in model.named_parameters()}
        found |= {f"{mode}.buffer.{name}": one.clone() for name, one in model.named_buffers()}
    return found


def main(out):
    warnings.simplefilter("ignore")
    out = pathlib.Path(out)
    out.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.jit.script(Words()).save(str(out / "words.pt"))
    save_file({name: tensor.contiguous() for name, tensor in expected().items()}, out / "expected.safetensors")
    torch.jit.trace(Pair(), (torch.randn(3, 4), torch.tensor([0, 1, 2]))).save(str(out / "traced.pt"))
    torch.jit.freeze(torch.jit.script(Pair().eval())).save(str(out / "frozen.pt"))
    torch.jit.script(Number()).save(str(out / "number.pt"))
    torch.jit.script(Counts()).save(str(out / "counts.pt"))
    library = torch.library.Library("otherlib", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    torch.jit.script(Other()).save(str(out / "other.pt"))


if __name__ == "__main__":
    main(*sys.argv[1:])
