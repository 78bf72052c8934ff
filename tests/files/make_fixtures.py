"""Writes tests/files/data: files of the real torch.save, and expected.json with what is in them. Needs torch; the tests do not.

  python3 tests/files/make_fixtures.py        (torch 2.11 wrote the committed ones)
"""
import collections
import enum
import json
import pathlib
import sys
import types

import torch

folder = pathlib.Path(__file__).parent / "data"
folder.mkdir(exist_ok=True)
expected = {}


def bits(tensor):
    """The bytes of a tensor's elements in logical order, as hexadecimal text."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.flatten().view(torch.uint8).numpy().tobytes().hex() if plain.numel() else ""


def describe(value):
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "bits": bits(value)}
    if isinstance(value, dict):
        return {"dict": [[str(key), describe(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"sequence": [describe(item) for item in value]}
    if isinstance(value, (bool, int, float, str)) or value is None:
        return {"value": value}
    return {"other": type(value).__name__}


def save(name, value, **options):
    torch.save(value, folder / name, **options)
    expected[name.removesuffix(".pt").removesuffix("_legacy").split("_protocol")[0]] = describe(value)


def of_dtype(dtype):
    raw = torch.arange(48, dtype=torch.uint8)
    if dtype == torch.bool:
        return (raw % 3 == 0)
    return raw.view(dtype).clone()


dtypes = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex128, torch.complex64, torch.complex32, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]
all_dtypes = {str(dtype).split(".")[1]: of_dtype(dtype) for dtype in dtypes}
save("dtypes.pt", all_dtypes)
save("dtypes_legacy.pt", all_dtypes, _use_new_zipfile_serialization=False)

base = torch.arange(24.0).reshape(4, 6)
views = {
    "whole": base,
    "row": base[1],
    "column": base[:, 2],
    "transposed": base.t(),
    "stepped": base[::2, 1::2],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "overlapping": base.flatten().as_strided((5, 4), (2, 1), 3),
    "permuted": torch.arange(60, dtype=torch.int16).reshape(3, 4, 5).permute(2, 0, 1),
    "scalar": torch.tensor(7),
    "of_expanded_scalar": torch.tensor(2.5).expand(3, 2),
    "empty": torch.empty(0),
    "empty_rows": torch.empty(3, 0, 2, dtype=torch.int64),
    "one_of_many": base[3:4, 5:6],
}
save("views.pt", views)
save("views_legacy.pt", views, _use_new_zipfile_serialization=False)

tied = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
state = collections.OrderedDict([("wte.weight", tied), ("lm_head.weight", tied), ("norm.bias", torch.zeros(3))])
state._metadata = collections.OrderedDict([("", {"version": 1})])
nested = {
    "module": state,
    "epoch": 3,
    "loss": 0.1 + 0.2,
    "name": "gpt \u00e9 \U0001f600 \"quoted\"\n",
    "flags": [True, False, None, (1, (2, (3,))), []],
    "sizes": torch.Size([2, 3]),
    "seed": 2**63,
    "large": [2**31 - 1, -(2**31), 2**40, -1, 255, 256, 65535, 65536, -(2**63)],
    "rng": torch.arange(5, dtype=torch.uint8),
    "set": {3},
    "bytes": b"\x00\xff raw",
    "by_number": {0: "zero", 1: "one"},
    "default": collections.defaultdict(dict, {"a": 1}),
    "dtype": torch.bfloat16,
    "device": torch.device("cuda", 1),
    "many": list(range(1100)),  # picklers write a thousand at a time
}
for protocol in (2, 3, 4, 5):
    save(f"nested_protocol{protocol}.pt", nested, pickle_protocol=protocol)
    save(f"nested_protocol{protocol}_legacy.pt", nested, pickle_protocol=protocol, _use_new_zipfile_serialization=False)

attributed = torch.ones(2)
attributed.ds_id = 5
with_state = torch.nn.Parameter(torch.ones(2), requires_grad=False)
with_state.ds_id = 6
save("attributes.pt", {"tensor": attributed, "parameter": with_state})


def module(name, **members):
    made = types.ModuleType(name)
    for key, value in members.items():
        value.__module__ = name
        value.__qualname__ = key
        setattr(made, key, value)
    for depth in range(1, name.count(".") + 2):
        sys.modules.setdefault(".".join(name.split(".")[:depth]), types.ModuleType(name))
    sys.modules[name] = made
    return made


class LossScaler:
    def __init__(self):
        self.cur_scale, self.dynamic, self.dtype = 65536.0, True, torch.float16


class Slotted:
    __slots__ = ("numel", "start")

    def __init__(self, numel, start):
        self.numel, self.start = numel, start


fragment_address = collections.namedtuple("fragment_address", ["numel", "start"])
Stage = enum.Enum("Stage", {"weights": 3})
module("deepspeed.runtime.fp16.loss_scaler", DynamicLossScaler=LossScaler)
module("deepspeed.utils.tensor_fragment", fragment_address=fragment_address, Slotted=Slotted)
module("deepspeed.runtime.zero.config", ZeroStageEnum=Stage)
save("deepspeed.pt", {
    "optimizer_state_dict": {
        "loss_scaler": LossScaler(),
        "param_slice_mappings": [collections.OrderedDict([("w", fragment_address(numel=6, start=0))])],
        "zero_stage": Stage.weights,
        "slotted": Slotted(4, 2),
        "single_partition_of_fp32_groups": [torch.arange(4.0)],
    },
    "ds_version": "0.19.6",
})

class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], tuple(self.call[1:])


import os  # noqa: E402

for name, value in {
    "refused_system": Evil(os.system, "true"),
    "refused_eval": Evil(eval, "1"),
    "refused_load": Evil(torch.load, "other.pt"),
    "refused_from_bytes": Evil(torch.storage._load_from_bytes, b""),
    "refused_numpy": __import__("numpy").arange(3),
    "refused_quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "refused_sparse": torch.eye(2).to_sparse(),
    "refused_meta": torch.empty(2, device="meta"),
    "refused_conjugate": torch.tensor([1 + 2j]).conj(),
    "refused_module": torch.nn.Linear(1, 1),
}.items():
    torch.save({"value": value}, folder / f"{name}.pt")

(folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
