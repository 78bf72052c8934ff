"""Prints the losses of trainer_decay_test.cpp: what weight decay covers under transformers 5.23.0, with and without DeepSpeed 0.19.6
(accelerate 1.15.0, torch 2.11.0; CPU).

    python write_decay.py          # once for each line: DeepSpeed's process group lives as long as its process
"""
import os
import subprocess
import sys
import tempfile

os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29731", DS_ACCELERATOR="cpu",
                  CUDA_VISIBLE_DEVICES="")
PARAMS = {"lr": "auto", "weight_decay": "auto", "torch_adam": True}
SIZES = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
         "zero_optimization": {"stage": 1}}
CASES = {
    "plain": None,
    "config_auto": {**SIZES, "optimizer": {"type": "AdamW", "params": PARAMS}},
    "config_number": {**SIZES, "optimizer": {"type": "AdamW", "params": {**PARAMS, "weight_decay": 0.9}}},
    "config_without_optimizer": {**SIZES, "zero_allow_untested_optimizer": True},
}


def run(case):
    import transformers
    from write_histories import Tokens, sample
    transformers.logging.set_verbosity_error()
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), report_to="none", disable_tqdm=True, per_device_train_batch_size=4, learning_rate=0.02, weight_decay=0.9,
        max_steps=5, lr_scheduler_type="constant", save_strategy="no", logging_steps=1, train_sampling_strategy="sequential", optim="adamw_torch",
        use_cpu=CASES[case] is None, deepspeed=CASES[case])
    trainer = transformers.Trainer(Tokens(), arguments, train_dataset=[sample(i) for i in range(8)])
    trainer.train()
    losses = [round(entry["loss"], 6) for entry in trainer.state.log_history if "loss" in entry]
    print(case, losses, [(len(group["params"]), group["weight_decay"]) for group in trainer.optimizer.param_groups], flush=True)


if len(sys.argv) > 1:
    run(sys.argv[1])
else:
    for name in CASES:
        subprocess.run([sys.executable, __file__, name], check=True)
