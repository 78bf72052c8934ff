"""Writes the folders beside it: small random models as transformers saves them, and what transformers computes with them.

    python -m venv VENV && VENV/bin/pip install torch==2.11.0 transformers==5.23.0 safetensors numpy
    VENV/bin/python tests/models/make_fixtures.py [NAME...]          # all of them, or those folders

Each folder has config.json, model.safetensors, and expected.safetensors:
  tokens, mask     [2, T] int64: the second row is padded on its left (on its right for BERT and T5), mask 0 there
  logits           of tokens under mask; of T5 with `labels` as the decoder's
  loss, grad.*     of labels (-100 where masked)
  prompt.*         1-D int64, prompts of different lengths; greedy.*, beams.*: what generate() appends, its stop token last
  stop             [1]
gpt2_shards and gpt2_bin are the GPT-2 again, in several files with an index.
Those of GENERATED have generated.safetensors too: CASE.greedy.*, CASE.beams.*, as above under the options of that case, each
prompt alone; mt5 has a generation_config.json as well, and configured.*, what generate() writes under it.
The folders bert_class_* have a head for sequence classification, and "types", the token types.
"""
import json
import pathlib
import shutil
import sys

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
BERT_CLASS = {**COMMON, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
              "max_position_embeddings": 32, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
              "hidden_act": "swish", "type_vocab_size": 3}
MODELS |= {
    "mt5": (t.MT5ForConditionalGeneration, t.MT5Config(**{**T5, "initializer_factor": 0.8})),
    "bert_class_single": (t.BertForSequenceClassification, t.BertConfig(
        **BERT_CLASS, id2label={0: "no", 1: "maybe", 2: "yes"}, problem_type="single_label_classification")),
    "bert_class_number": (t.BertForSequenceClassification, t.BertConfig(**BERT_CLASS, num_labels=1)),
    "bert_class_multi": (t.BertForSequenceClassification, t.BertConfig(**BERT_CLASS, num_labels=4)),
}
CLASSES = {"bert_class_single": torch.tensor([2, 0]), "bert_class_number": torch.tensor([0.7, -1.2]),
           "bert_class_multi": torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])}
GENERATED = ("gpt2", "mistral", "t5", "mt5")
CASES = {
    "penalty": {"repetition_penalty": 1.3},
    "reward": {"repetition_penalty": 0.8},
    "ngram": {"no_repeat_ngram_size": 2},
    "token": {"no_repeat_ngram_size": 1},
    "new": {"min_new_tokens": 8},
    "length": {"min_length": 9},
    "all": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 6},
    "limit": {"max_length": 11, "max_new_tokens": None},
}
CONFIGURED = {"num_beams": 3, "length_penalty": 0.8, "no_repeat_ngram_size": 2, "min_length": 4, "max_length": 11,
              "repetition_penalty": 1.1, "early_stopping": True}
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
    tokens, mask = batch(pads_left=name != "bert" and not is_t5)
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


def generated_alone(model, stop, prompt, **how):
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
                         **({"max_new_tokens": NEW_TOKENS} | how), eos_token_id=stop, pad_token_id=0)
    row = out[0, 1 if model.config.is_encoder_decoder else len(prompt):].tolist()
    return row[: row.index(stop) + 1] if stop in row else row


def generated_cases(model, stop):
    found = {}
    for case, how in CASES.items():
        for kind, more in (("greedy", {}), ("beams", {"num_beams": BEAMS})):
            for i, prompt in enumerate(PROMPTS):
                found[f"{case}.{kind}.{i}"] = torch.tensor(generated_alone(model, stop, prompt, do_sample=False, **how, **more))
    return found


def configured(folder, stop):
    """By the folder alone, as transformers reads it."""
    config = t.GenerationConfig(**CONFIGURED, eos_token_id=stop, pad_token_id=0, decoder_start_token_id=0)
    config.save_pretrained(folder)
    model = t.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    found = {}
    for i, prompt in enumerate(PROMPTS):
        row = model.generate(torch.tensor([prompt]))[0, 1:].tolist()
        found[f"configured.{i}"] = torch.tensor(row[: row.index(stop) + 1] if stop in row else row)
    return found


def classified(name, model):
    model.eval()
    tokens, mask = batch(pads_left=False)
    types = (torch.arange(tokens.size(1)) >= 4).long().expand_as(tokens) * mask
    out = model(input_ids=tokens, attention_mask=mask, token_type_ids=types, labels=CLASSES[name])
    out.loss.backward()
    found = {"tokens": tokens, "mask": mask, "types": types, "labels": CLASSES[name], "logits": out.logits,
             "loss": out.loss.reshape(1)}
    found |= {f"grad.{key}": p.grad for key, p in model.named_parameters()}
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
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    torch.manual_seed(number + 10)
    folder = HERE / name
    model = kind(config)
    with torch.no_grad():  # values that a fresh model has at 0 or 1 would hide mistakes
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
        if name == "mt5":  # the published ones have an output layer of their own, which transformers 5 keeps where it differs
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight) * 0.3)
            model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in CLASSES:
        save_file(classified(name, model), folder / "expected.safetensors")
        continue
    found = expected(name, model)
    save_file(found, folder / "expected.safetensors")
    if name in GENERATED:
        cases = generated_cases(model, found["stop"].item())
        if name == "mt5":
            cases |= configured(folder, found["stop"].item())
        save_file(cases, folder / "generated.safetensors")
    if name == "gpt2":
        model.save_pretrained(HERE / "gpt2_shards", max_shard_size="16KB")
        (HERE / "gpt2_shards" / "generation_config.json").unlink(missing_ok=True)
        in_bin_shards(folder, HERE / "gpt2_bin")
