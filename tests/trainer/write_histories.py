"""Writes histories.json: what Hugging Face's Trainer logs, saves and calls, for peer_test.cpp. Run in a virtual environment with
transformers 5.23.0, accelerate and LibTorch's CPU half:  python write_histories.py"""
import json
import pathlib
import shutil
import tempfile

import torch
from transformers import EarlyStoppingCallback, PretrainedConfig, Trainer, TrainerCallback, TrainingArguments

CLASSES, LENGTH = 11, 5


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = PretrainedConfig()
        self.embedding = torch.nn.Embedding(CLASSES, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.out = torch.nn.Linear(12, CLASSES)
        for number, parameter in enumerate(self.parameters()):
            values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) + number) * 0.5
            with torch.no_grad():
                parameter.copy_(values.view_as(parameter))

    def forward(self, input_ids, labels=None, num_items_in_batch=None, **kwargs):
        logits = self.out(torch.nn.functional.gelu(self.norm(self.embedding(input_ids))))
        if labels is None:
            return {"logits": logits}
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        count = num_items_in_batch if num_items_in_batch is not None else labels.ne(-100).sum()
        return {"loss": total / count, "logits": logits}


def sample(i):
    place = torch.arange(LENGTH)
    data = (place * place + 3 * i) % CLASSES
    target = (2 * data + i) % CLASSES
    target[: i % 4] = -100
    return {"input_ids": data, "labels": target}


class Recorder(TrainerCallback):
    def __init__(self):
        self.events = []


for event in ("train_begin epoch_begin step_begin substep_end pre_optimizer_step optimizer_step step_end log evaluate "
              "prediction_step save epoch_end train_end").split():
    def record(self, args, state, control, event=event, **kwargs):
        self.events.append(event)
    setattr(Recorder, "on_" + event, record)

base = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=0.02, save_strategy="no", logging_steps=1)
every = dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)
runs = {
    "epochs": dict(num_train_epochs=2),
    "short_update": dict(num_train_epochs=2, gradient_accumulation_steps=4),
    "one_micro_batch": dict(num_train_epochs=1, per_device_train_batch_size=8, gradient_accumulation_steps=1),
    "fraction_of_an_epoch": dict(num_train_epochs=1.4),
    "max_steps": dict(max_steps=7),
    "smoothing": dict(num_train_epochs=1, label_smoothing_factor=0.1),
    "decay_and_clipping": dict(num_train_epochs=1, weight_decay=0.3, max_grad_norm=0.05),
    "no_clipping": dict(num_train_epochs=1, max_grad_norm=0),
    "warmup_cosine": dict(num_train_epochs=2, lr_scheduler_type="cosine", warmup_steps=0.3),
    "warmup_constant": dict(num_train_epochs=1, lr_scheduler_type="constant_with_warmup", warmup_steps=3),
    "polynomial": dict(num_train_epochs=1, lr_scheduler_type="polynomial", lr_scheduler_kwargs={"power": 2.0}),
    "restarts": dict(num_train_epochs=2, lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 2}),
    "inverse_sqrt": dict(num_train_epochs=1, lr_scheduler_type="inverse_sqrt", warmup_steps=2),
    "min_lr": dict(num_train_epochs=1, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr": 0.001}),
    "stable_decay": dict(num_train_epochs=2, lr_scheduler_type="warmup_stable_decay", warmup_steps=2,
                         lr_scheduler_kwargs={"num_decay_steps": 4, "decay_type": "1-sqrt", "min_lr_ratio": 0.1}),
    "plateau": dict(num_train_epochs=2, learning_rate=0.3, lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="steps", eval_steps=1,
                    lr_scheduler_kwargs={"factor": 0.5, "patience": 0}),
    "logs_by_epoch": dict(num_train_epochs=2, logging_strategy="epoch", logging_first_step=True),
    "logs_by_fraction": dict(num_train_epochs=2, logging_steps=0.3),
    "evaluations": dict(num_train_epochs=2, **every),
    "evaluations_by_epoch": dict(num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch", eval_delay=1),
    "evaluation_first": dict(max_steps=3, eval_strategy="steps", eval_steps=2, eval_delay=2, eval_on_start=True),
    "limit": dict(num_train_epochs=2, save_total_limit=2, **every),
    "best": dict(num_train_epochs=2, learning_rate=0.3, load_best_model_at_end=True, save_total_limit=1, **every),
    "saves_best": dict(num_train_epochs=2, learning_rate=0.3, metric_for_best_model="loss", eval_strategy="steps", eval_steps=1,
                       save_strategy="best"),
    "early_stopping": dict(num_train_epochs=3, learning_rate=0.3, load_best_model_at_end=True, metric_for_best_model="loss", **every),
}

train = [sample(i) for i in range(22)]
held_out = [sample(4 * i) for i in range(7)]  # without masks: Hugging Face's mean over samples is that over labels, too


def write():
    written = {}
    for name, change in runs.items():
        folder = pathlib.Path(tempfile.mkdtemp())
        arguments = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, per_device_eval_batch_size=3,
                                      train_sampling_strategy="sequential", optim="adamw_torch", seed=1, **{**base, **change})
        recorder = Recorder()
        callbacks = [recorder] + ([EarlyStoppingCallback(1)] if name == "early_stopping" else [])
        trainer = Trainer(Tokens(), arguments, train_dataset=train, eval_dataset=held_out, callbacks=callbacks)
        trainer.train()
        keep = ("loss", "grad_norm", "learning_rate", "epoch", "step", "eval_loss", "train_loss")
        written[name] = {
            "arguments": {**base, **change},
            "log_history": [{key: entry[key] for key in keep if key in entry} for entry in trainer.state.log_history],
            "events": recorder.events,
            "folders": sorted(path.name for path in folder.iterdir() if path.name.startswith("checkpoint-")),
            "best_global_step": trainer.state.best_global_step,
            "best_metric": trainer.state.best_metric,
            "max_steps": trainer.state.max_steps,
        }
        shutil.rmtree(folder)
    pathlib.Path(__file__).with_name("histories.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    write()
