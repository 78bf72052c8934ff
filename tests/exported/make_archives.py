"""Writes the folders of archives/: small models as gannet_export writes them, and what eager PyTorch computes with them.

    python -m venv VENV && VENV/bin/pip install torch==2.11.0 torchvision==0.26.0 transformers==5.5.4 safetensors numpy
    OMP_NUM_THREADS=1 PYTHONPATH=python VENV/bin/python tests/exported/make_archives.py tests/exported/archives gpt2 odd residual
    OMP_NUM_THREADS=1 PYTHONPATH=python VENV/bin/python tests/exported/make_archives.py /tmp/archives        # all of them

The first command writes what is kept in the tree, the second what the six models of `exported/README.md` are compared with:
GANNET_ARCHIVES=/tmp/archives build/tests/exported_test. The models have random weights.

Each folder also has expected.safetensors, of three batches whose shapes are not the example's, for each graph:
  INDEX.GRAPH.batch.NAME      the batch, as graph 0.train.fp32 gets it
  INDEX.GRAPH.loss            after torch.manual_seed(INDEX + 7): dropout draws in the train graph
  INDEX.GRAPH.grad.NAME       of every parameter that has one
  INDEX.GRAPH.buffer.NAME     after the forward
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file

import gannet_export
from gannet_export import compare, trace
from gannet_export.loss import LossOnly
from gannet_export.weights import Names

SEED = 7  # and the batch's index


def transformers():
    import transformers
    transformers.logging.set_verbosity_error()
    return transformers


def gpt2():
    t = transformers()
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4, initializer_range=0.3, use_cache=False))


def llama():
    t = transformers()
    return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                            num_key_value_heads=2, max_position_embeddings=64, attention_dropout=0.1, use_cache=False))


def bert():
    t = transformers()
    return t.BertForMaskedLM(t.BertConfig(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                          max_position_embeddings=32))


def t5():
    t = transformers()
    return t.T5ForConditionalGeneration(t.T5Config(vocab_size=60, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=3,
                                                   relative_attention_num_buckets=8, relative_attention_max_distance=12, dropout_rate=0.1,
                                                   decoder_start_token_id=0, use_cache=False))


def vit():
    t = transformers()
    return t.ViTForImageClassification(t.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, image_size=16,
                                                   patch_size=4, num_labels=5, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))


class Classifier(torch.nn.Module):
    """An image classifier with its loss."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image, label):
        return torch.nn.functional.cross_entropy(self.net(image), label)


def resnet18():
    import torchvision
    return Classifier(torchvision.models.resnet18(num_classes=7))


class Residual(torch.nn.Module):
    """A block of ResNet: convolutions, batch norms, ReLUs in place."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = (torch.nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = torch.nn.BatchNorm2d(width), torch.nn.BatchNorm2d(width)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm_one(self.one(x)))
        y = self.norm_two(self.two(y))
        y += x
        return self.relu(y)


def residual():
    return Classifier(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Residual(4), Residual(4), torch.nn.AdaptiveAvgPool2d(1),
                                          torch.nn.Flatten(), torch.nn.Linear(4, 5)))


class Odd(torch.nn.Module):
    """What the other models do not have: nested graphs, arithmetic on sizes, writes into parts, infinity, odd indices."""

    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
        self.frozen = torch.nn.Parameter(torch.randn(8), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("scale", torch.full((8,), 1.5), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, ids, weight):
        self.calls += 1
        x = self.words(ids) * self.scale.to(self.frozen.dtype) + self.frozen
        with torch.no_grad():
            mean = x.mean(-1, keepdim=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.matmul(x, x.transpose(1, 2))
        y = y.to(x.dtype).masked_fill(torch.ones_like(y, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        y = self.drop(y @ (x - mean))
        half = ids.shape[1] // 2
        z = torch.zeros_like(y)
        z[:, :half] = y[:, half:2 * half] * 2
        z[:, 0] += y[:, -1]
        z = torch.cond(weight.sum() > 0, lambda a: a * 2.0, lambda a: a - 1, (z,))
        picked = z[torch.arange(z.shape[0])[:, None], torch.tensor([0, 1])]
        logits = self.head(torch.cat([picked, z], 1))
        target = torch.nn.functional.pad(ids, (2, 0), value=3)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        return {"loss": (loss * weight.repeat_interleave(ids.shape[1] + 2)).mean() + y.var() / (ids.shape[0] + 1), "logits": logits}


def odd():
    return Odd()


def tokens(rows, length, vocabulary, seed, **more):
    generator = torch.Generator().manual_seed(seed)
    batch = {name: torch.randint(1, vocabulary, (rows, length if size is None else size), generator=generator) for name, size in more.items()}
    if "attention_mask" in batch:
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
        batch["attention_mask"][0, -2:] = 0
    return batch


def images(rows, height, width, labels, seed, name="image", label="label"):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(rows, 3, height, width, generator=generator), label: torch.randint(0, labels, (rows,), generator=generator)}


def odd_batch(rows, length, seed):
    batch = tokens(rows, length, 20, seed, ids=None)
    return {**batch, "weight": torch.randn(rows, generator=torch.Generator().manual_seed(seed)) - (seed % 2)}


TEXT = [(2, 8), (3, 5), (4, 12), (5, 9)]
LM = {"input_ids": None, "labels": None}
PIXELS = {"name": "pixel_values", "label": "labels"}
MODELS = {  # the example and three other batches
    "gpt2": (gpt2, [tokens(*shape, 40, i, **LM) for i, shape in enumerate(TEXT)]),
    "llama": (llama, [tokens(*shape, 60, i, attention_mask=None, **LM) for i, shape in enumerate(TEXT)]),
    "bert": (bert, [tokens(*shape, 60, i, attention_mask=None, **LM) for i, shape in enumerate(TEXT)]),
    "t5": (t5, [tokens(rows, length, 60, i, input_ids=None, attention_mask=None, labels=length - 2) for i, (rows, length) in enumerate(TEXT)]),
    "vit": (vit, [images(rows, 16, 16, 5, rows, **PIXELS) for rows in (2, 3, 4, 5)]),
    "resnet18": (resnet18, [images(*shape, 7, i) for i, shape in enumerate([(2, 40, 48), (3, 64, 40), (4, 36, 56), (5, 64, 76)])]),
    "residual": (residual, [images(*shape, 5, i) for i, shape in enumerate([(2, 6, 7), (3, 5, 5), (4, 8, 6), (2, 7, 9)])]),
    "odd": (odd, [odd_batch(*shape, i) for i, shape in enumerate(TEXT)]),
}


def expected_of(model, batches):
    """Names and tensors of expected.safetensors. Every call begins with the same weights and buffers."""
    found = {}
    for dtype in trace.DTYPES:
        cast = trace.in_dtype(model, dtype)
        names = Names.of_model(cast)
        for mode in ("train", "eval"):
            cast.train(mode == "train")
            for index, batch in enumerate(batches):
                given = trace.batch_in_dtype(batch, dtype)
                result = compare.run(LossOnly(cast), given, SEED + index, names, LossOnly.PREFIX)
                head = f"{index}.{mode}.{dtype}."
                found |= {f"{head}batch.{name}": tensor for name, tensor in given.items()}
                found[f"{head}loss"] = result.loss
                found |= {f"{head}grad.{name}": grad for name, grad in result.gradients.items() if grad is not None}
                found |= {f"{head}buffer.{name}": buffer for name, buffer in result.buffers.items()}
    return {name: tensor.detach().contiguous().clone() for name, tensor in found.items()}


def main(out, *chosen):
    torch.set_num_threads(1)
    for name in chosen or MODELS:
        make, (example, *others) = MODELS[name]
        torch.manual_seed(1)
        model = make()
        folder = pathlib.Path(out) / name
        print(f"== {name}", flush=True)
        (folder / "expected.safetensors").unlink(missing_ok=True)  # the exporter overwrites only its own files
        gannet_export.export_model(model, example, str(folder), say=lambda line: print("  ", line, flush=True))
        save_file(expected_of(model, others), folder / "expected.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
