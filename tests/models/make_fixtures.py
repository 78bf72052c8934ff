"""Writes the folders beside it: small random models as transformers saves them, and what transformers computes with them.

    python -m venv VENV && VENV/bin/pip install torch==2.11.0 transformers==5.23.0 safetensors numpy
    VENV/bin/python tests/models/make_fixtures.py

Each folder has config.json, model.safetensors, and expected.safetensors:
  tokens, mask     [2, T] int64: the second row is padded on its left (on its right for BERT and T5), mask 0 there
  logits           of tokens under mask; of T5 with `labels` as the decoder's
  loss, grad.*     of labels (-100 where masked)
  prompt.*         1-D int64, prompts of different lengths; greedy.*, beams.*: what generate() appends, its stop token last
  stop             [1]
gpt2_shards and gpt2_bin are the GPT-2 again, in several files with an index.
"""
import json
import pathlib
import shutil

import torch
import transformers as t
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
COMMON = {"vocab_size": 60, "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
ROPE3 = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16}
LLAMA = {**COMMON, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64}
T5 = {**COMMON, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.0,
      "decoder_start_token_id": 0, "initializer_factor": 1.35}
MODELS = {
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(**COMMON, n_embd=16, n_layer=2, n_head=4, n_positions=64, embd_pdrop=0.0,
                                             resid_pdrop=0.0, attn_pdrop=0.0)),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=ROPE3)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA, tie_word_embeddings=True)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=4, head_dim=6)),
    "bert": (t.BertForMaskedLM, t.BertConfig(**COMMON, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                             num_attention_heads=4, max_position_embeddings=32, hidden_dropout_prob=0.0,
                                             attention_probs_dropout_prob=0.0)),
    "t5": (t.T5ForConditionalGeneration, t.T5Config(**T5)),
    "t5_gated": (t.T5ForConditionalGeneration, t.T5Config(**{**T5, "initializer_factor": 0.8},
                                                             feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "llama_linear": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                       rope_parameters={"rope_type": "linear", "rope_theta": 10000.0,
                                                                        "factor": 2.0})),
    "qwen2_window": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4,
                                                       max_window_layers=1)),
}
PROMPTS = [[5, 17, 3, 44, 9, 21, 30], [12, 7, 51], [33]]
NEW_TOKENS, BEAMS = 12, 3


def batch(pads_left):
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(2, 60, (2, 10), generator=generator)
    mask = torch.ones_like(tokens)
    if pads_left:
        mask[1, :3] = 0
    else:
        mask[1, -3:] = 0
    return torch.where(mask == 1, tokens, 0), mask


def generated(model, stop, **how):
    """What follows each prompt, the prompts padded into one batch."""
    longest = max(map(len, PROMPTS))
    is_t5 = model.config.is_encoder_decoder
    pad = (lambda n: (0, n)) if is_t5 else (lambda n: (n, 0))
    tokens = torch.stack([torch.nn.functional.pad(torch.tensor(p), pad(longest - len(p))) for p in PROMPTS])
    mask = torch.stack([torch.nn.functional.pad(torch.ones(len(p), dtype=torch.long), pad(longest - len(p))) for p in PROMPTS])
    out = model.generate(tokens, attention_mask=mask, max_new_tokens=NEW_TOKENS, eos_token_id=stop, pad_token_id=0, **how)
    texts = []
    for row in out[:, 1 if is_t5 else longest:].tolist():
        texts.append(row[: row.index(stop) + 1] if stop in row else row[:NEW_TOKENS])
    return texts


def expected(name, model):
    model.eval()
    found = {}
    is_t5 = model.config.is_encoder_decoder
    tokens, mask = batch(pads_left=name not in ("bert", "t5", "t5_gated"))
    labels = torch.where(mask == 1, tokens, -100)
    labels[:, 1:][mask[:, :-1] == 0] = -100  # nothing real predicts the first token after padding
    if is_t5:
        labels = labels[:, :7].contiguous().flip(0)
        labels[0, -2:] = -100
    # Under left padding positions count from the first token that is none, as generate() has them.
    more = {} if name == "bert" or is_t5 else {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    out = model(input_ids=tokens, attention_mask=mask, labels=labels, **more)
    out.loss.backward()
    found |= {"tokens": tokens, "mask": mask, "labels": labels, "logits": out.logits, "loss": out.loss.reshape(1)}
    found |= {f"grad.{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    if name != "bert":
        free = generated(model, 59, do_sample=False)
        stop = next((x for i, x in enumerate(free[1]) if i >= 3 and x not in free[1][:i]), free[1][3])
        found["stop"] = torch.tensor([stop])
        for kind, how in (("greedy", {}), ("beams", {"num_beams": BEAMS})):
            for i, text in enumerate(generated(model, stop, do_sample=False, **how)):
                found[f"{kind}.{i}"] = torch.tensor(text)
                print(name, kind, i, text, "stop", stop)
        for i, prompt in enumerate(PROMPTS):
            found[f"prompt.{i}"] = torch.tensor(prompt)
    return {key: value.detach().clone().contiguous() for key, value in found.items()}


def in_bin_shards(source, folder):
    folder.mkdir(exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    names, half = list(tensors), len(tensors) // 2
    where = {}
    for i, some in enumerate((names[:half], names[half:]), 1):
        file = f"pytorch_model-{i:05}-of-00002.bin"
        torch.save({name: tensors[name] for name in some}, folder / file)
        where |= {name: file for name in some}
    total = sum(x.numel() * x.element_size() for x in tensors.values())
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1) + "\n")
    shutil.copy(source / "config.json", folder)


for number, (name, (kind, config)) in enumerate(MODELS.items()):
    torch.manual_seed(number + 10)
    folder = HERE / name
    model = kind(config)
    with torch.no_grad():  # values that a fresh model has at 0 or 1 would hide mistakes
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(expected(name, model), folder / "expected.safetensors")
    if name == "gpt2":
        model.save_pretrained(HERE / "gpt2_shards", max_shard_size="16KB")
        (HERE / "gpt2_shards" / "generation_config.json").unlink(missing_ok=True)
        in_bin_shards(folder, HERE / "gpt2_bin")
