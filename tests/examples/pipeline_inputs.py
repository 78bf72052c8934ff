"""Writes the model and the tokens of the pipeline parity runs: pipeline_inputs.py FOLDER

FOLDER/model is a GPT-2 in Hugging Face's format with biases and norms that are not 0 and 1; FOLDER/tokens.bin has one byte per
token. Only the standard library is used, and `random.Random.random`, whose sequence Python guarantees, so that every machine
writes the same bytes. Both programs, DeepSpeed's and ours, read these files.
"""
import array
import json
import pathlib
import random
import struct
import sys

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH, SEED = 4, 64, 4, 256, 32, 7


def shapes():
    """{name: (shape, centre, deviation)} in the order of the file."""
    weights = {"wte.weight": ([VOCABULARY, WIDTH], 0, 0.08), "wpe.weight": ([LENGTH, WIDTH], 0, 0.04)}
    for layer in range(LAYERS):
        for name, size, out in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH), ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            weights[f"h.{layer}.{name}.weight"] = ([size, out], 0, 0.08)
            weights[f"h.{layer}.{name}.bias"] = ([out], 0, 0.05)
        for name in ("ln_1", "ln_2"):
            weights[f"h.{layer}.{name}.weight"], weights[f"h.{layer}.{name}.bias"] = ([WIDTH], 1, 0.05), ([WIDTH], 0, 0.05)
    weights["ln_f.weight"], weights["ln_f.bias"] = ([WIDTH], 1, 0.05), ([WIDTH], 0, 0.05)
    return {f"transformer.{name}": weight for name, weight in weights.items()}


def write_model(folder, generator):
    folder.mkdir(parents=True, exist_ok=True)
    header, values = {"__metadata__": {"format": "pt"}}, array.array("f")
    for name, (shape, centre, deviation) in shapes().items():
        begin, numel = 4 * len(values), shape[0] * (shape[1] if len(shape) > 1 else 1)
        width = deviation * 12 ** 0.5  # of a uniform distribution of this deviation
        values.extend(centre + width * (generator.random() - 0.5) for _ in range(numel))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(values)]}
    if sys.byteorder == "big":
        values.byteswap()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_layer": LAYERS, "n_embd": WIDTH,
              "n_head": HEADS, "vocab_size": VOCABULARY, "n_positions": LENGTH, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def write_tokens(file, generator, count=12_000):
    """Words of 2 to 5 letters out of a list of 60, so that there is something to learn."""
    words = [bytes(97 + int(26 * generator.random()) for _ in range(2 + int(4 * generator.random()))) for _ in range(60)]
    text = bytearray()
    while len(text) < count:
        text += words[int(60 * generator.random() * generator.random())] + b" "
    file.write_bytes(bytes(text[:count]))


def write(folder):
    generator, folder = random.Random(SEED), pathlib.Path(folder)
    write_model(folder / "model", generator)
    write_tokens(folder / "tokens.bin", generator)


if __name__ == "__main__":
    write(sys.argv[1])
