"""Writes transformers_arguments.json: names and defaults of TrainingArguments. Run in a virtual environment with transformers 5.23.0."""
import dataclasses
import json
import pathlib

from transformers import TrainingArguments

out = {}
for field in dataclasses.fields(TrainingArguments):
    default = field.default
    if default is dataclasses.MISSING:
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    out[field.name] = getattr(default, "value", default)
pathlib.Path(__file__).with_name("transformers_arguments.json").write_text(json.dumps(out, indent=1))
