"""The Python side of exported_bench.py: Hugging Face's GPT-2, eager. Answers "eager ROWS LENGTH COUNT" as native_side.cpp does."""
import sys
import time

import torch
from transformers import GPT2LMHeadModel
from transformers.utils import logging


def main(folder):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    model = GPT2LMHeadModel.from_pretrained(folder)
    model.train()
    parameters = list(model.parameters())
    for line in sys.stdin:
        _, rows, length, count = line.split()
        rows, length = int(rows), int(length)
        tokens = (torch.arange(rows * length) * 7 + 3).remainder(model.config.vocab_size).view(rows, length)
        wall = cpu = 0
        loss = None
        for _ in range(int(count)):
            for one in parameters:
                one.grad = None
            loss = None
            wall_before, cpu_before = time.perf_counter(), time.process_time()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            cpu += time.process_time() - cpu_before
            wall += time.perf_counter() - wall_before
        norm = sum(one.grad.norm().item() ** 2 for one in parameters if one.grad is not None) ** 0.5
        print(f"{wall:.9f} {cpu:.9f} {loss.item():.9g} {norm:.9g}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
