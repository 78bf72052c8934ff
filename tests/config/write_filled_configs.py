"""Writes tests/configs/documents/filled.json: what transformers 5.23.0 makes of each document's config, for documents_test.cpp.

Run in a virtual environment with transformers 5.23.0, accelerate and deepspeed 0.19.6:

    DS_ACCELERATOR=cpu python write_filled_configs.py

Each text is read as DeepSpeed reads it (hjson), and filled by HfTrainerDeepSpeedConfig for the arguments below on 2 ranks with a
hidden size of 512. By file:
    values        every value by its path, after filling
    filled        the paths that were "auto"
    mismatches    the paths that it lists as contradictions; what is filled is then not used
    contradicted  by filled path: whether another value there would be listed"""
import copy
import json
import pathlib
import re
import types

import hjson
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "configs/documents"
ARGUMENTS = dict(learning_rate=3e-5, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=3e-7, warmup_steps=500,
                 max_steps=5000, per_device_train_batch_size=8, gradient_accumulation_steps=2, max_grad_norm=0.7, fp16=True,
                 fp16_full_eval=False, bf16=False, bf16_full_eval=False)
RANKS, HIDDEN_SIZE = 2, 512
# Of these the document prints the inner part of a section alone, or a key in another section than DeepSpeed reads it from.
AMENDED = {"004_line_1097": lambda config: {"amp": config},
           "004_line_551": lambda config: {**config, "aio": config["zero_optimization"].pop("aio")}}


def leaves(tree, path=""):
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from leaves(value, here)
        else:
            yield here, value


def put(tree, path, value):
    *sections, last = path.split(".")
    for section in sections:
        tree = tree[section]
    tree[last] = value


def filled(config):
    """(the config, the paths that differ)"""
    arguments = types.SimpleNamespace(**ARGUMENTS, world_size=RANKS, save_on_each_node=False,
                                      get_warmup_steps=lambda steps: ARGUMENTS["warmup_steps"])
    model = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=HIDDEN_SIZE))
    made = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    made.trainer_config_process(arguments)
    try:
        made.trainer_config_finalize(arguments, model, ARGUMENTS["max_steps"])
    except ValueError as error:
        return made.config, re.findall(r"^- ds (\S+?)=", str(error), re.M)
    return made.config, []


def another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [0.5, *value[1:]]
    return value * 2 + 1


result = {}
for file in sorted(FOLDER.glob("0*.json")):
    config = json.loads(json.dumps(hjson.loads(file.read_text())))
    config = AMENDED.get(file.stem, lambda same: same)(config)
    autos = [path for path, value in leaves(config) if value == "auto"]
    after, mismatches = filled(config)
    values = dict(leaves(after))
    contradicted = {}
    for path in autos:
        if values[path] == "auto":
            continue
        changed = copy.deepcopy(config)
        put(changed, path, another(values[path]))
        contradicted[path] = path in filled(changed)[1]
    result[file.stem] = {"values": values, "filled": autos, "mismatches": mismatches, "contradicted": contradicted,
                         **({"amended": config} if file.stem in AMENDED else {})}
head = {"arguments": ARGUMENTS, "ranks": RANKS, "hidden_size": HIDDEN_SIZE}
lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
lines += [' "configs": {\n' + ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in result.items()) + "\n }"]
(FOLDER / "filled.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(sum(bool(case["filled"]) for case in result.values()), "of", len(result), "have an auto")
