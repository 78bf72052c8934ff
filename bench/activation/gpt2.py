"""Exports the GPT-2 of segments_bench: 8 layers, dropout 0.1, random weights.

    OMP_NUM_THREADS=1 PYTHONPATH=python VENV/bin/python bench/activation/gpt2.py FOLDER [WIDTH]
"""
import sys

import torch
import transformers

import gannet_export


def main(folder, width=256):
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=1000, n_positions=512, n_embd=int(width), n_layer=8, n_head=4,
                                                                 use_cache=False))
    ids = torch.randint(1, 1000, (2, 64))
    gannet_export.export_model(model, {"input_ids": ids, "labels": ids}, folder, dtypes=("fp32",), modes=("train",))


main(*sys.argv[1:])
