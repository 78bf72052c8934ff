"""Writes what gpt2_test.cpp expects of Hugging Face's GPT-2: make_gpt2_expected.py gpt2_tiny
(made with PyTorch 2.11.0 and transformers 5.23.0 on a CPU)."""
import json
import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

folder = sys.argv[1]
torch.manual_seed(7)
config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=256, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                    bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
model = GPT2LMHeadModel(config)
with torch.no_grad():  # so that a bias or a norm's weight in the wrong place is seen
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.05)
model.save_pretrained(folder)
os.remove(os.path.join(folder, "generation_config.json"))

i = torch.arange(2 * 25)
tokens = ((i * 37 + i * i * 11) % 256).view(2, 25)


def loss_of(model):
    logits = model(tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


expected = {"logits": model(tokens[:, :-1], use_cache=False).logits[1, 23, :8].tolist()}
model.train()
loss = loss_of(model)
loss.backward()
expected["loss"] = loss.item()
expected["gradient_norms"] = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}

half = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").train()
half_loss = loss_of(half)
half_loss.backward()
expected["bf16_loss"] = half_loss.item()
expected["bf16_gradient_norm"] = torch.cat([parameter.grad.float().flatten() for parameter in half.parameters()]).norm().item()

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
expected["adamw_losses"] = []
for _ in range(5):
    optimizer.zero_grad()
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    expected["adamw_losses"].append(loss.item())

with open(os.path.join(folder, "expected.json"), "w") as out:
    json.dump(expected, out, indent=1)
