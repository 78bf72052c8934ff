"""Writes a metrics file as a run of fp16 with warm-up, skipped steps, a checkpoint and a resume would:

    python3 sample_metrics.py OUT [STEPS [SLOWER]]    # SLOWER: a loss that is higher by this much, a validation loss, memory by kind
"""
import json
import math
import random
import sys


def run(path, steps, slower=None):
    random.seed(7)
    out = open(path, "w")

    def write(line):
        out.write(json.dumps(line) + "\n")

    def head(started_at, done, lr):
        config = [
            ("train_batch_size", 16, "computed from train_micro_batch_size_per_gpu, gradient_accumulation_steps and the world size"),
            ("train_micro_batch_size_per_gpu", 4, "ds_config.json:2:3"), ("gradient_accumulation_steps", 2, "ds_config.json:3:3"),
            ("gradient_clipping", 1.0, "ds_config.json:4:3"), ("optimizer.type", "AdamW", "ds_config.json:6:5"),
            ("optimizer.params.lr", lr, "ds_config.json:7:16"), ("optimizer.params.betas", [0.9, 0.95], "ds_config.json:7:28"),
            ("scheduler.type", "WarmupCosineLR", "ds_config.json:10:5"), ("fp16.enabled", True, "ds_config.json:13:12"),
            ("fp16.initial_scale_power", 16, "default"), ("fp16.loss_scale_window", 1000, "default"),
            ("zero_optimization.stage", 2, "ds_config.json:14:25"), ("zero_optimization.reduce_bucket_size", 500000000, "default"),
            ("zero_optimization.overlap_comm", False, "default"), ("gannet.metrics.path", "run1/metrics.jsonl", "ds_config.json:16:25"),
            ("comm.type", "gloo", "auto: no accelerator here has a comm of its own")]
        write({"kind": "run", "schema": 1, "gannet": "0.1.0", "started_at": started_at, "world_size": 2, "global_step": done, "parameters": 124439808,
               "train_batch_size": 16, "micro_batch_size": 4, "gradient_accumulation_steps": 2, "zero_stage": 2, "dtype": "fp16",
               "config": [{"key": key, "value": value, "origin": origin} for key, value, origin in config],
               "plugins": [{"kind": "accelerator", "name": "cpu", "version": "0.1", "file": "lib/gannet/gannet_accelerator_cpu.so"},
                           {"kind": "optimizer", "name": "AdamW", "version": "1.0", "file": "lib/gannet/gannet_optimizer_adam.so"},
                           {"kind": "comm", "name": "gloo", "version": "0.1", "file": "lib/gannet/gannet_comm_gloo.so"}],
               "machine": {"host": "loom", "system": "Linux 6.1", "distribution": "Debian GNU/Linux 12", "processor": "a processor of 2 cores", "cores": 2,
                           "instruction_sets": ["avx2", "avx512f", "avx512_bf16"], "memory_bytes": 25769803776, "memory_limit_bytes": None}})

    warmup = max(1, steps // 20)
    scale = 65536.0
    time = 0.0

    def one(step, peak):
        nonlocal scale, time
        progress = step / steps
        lr = peak * (min(1, step / warmup) if step <= warmup else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))
        loss = 1.9 + 3.6 * math.exp(-6 * progress) + random.gauss(0, 0.12) * (0.4 + math.exp(-3 * progress))
        norm = 0.5 + 3 * math.exp(-10 * progress) + random.expovariate(5)
        overflow = step in (2, 3, max(4, int(steps * 0.36))) or (steps > 1000 and random.random() < 5e-4)
        phases = {"forward": 0.118, "backward": 0.231, "reduce": 0.022, "check": 0.004, "update": 0.031, "publish": 0.019, "offload": 0.012}
        phases = {name: value * random.uniform(0.93, 1.12) for name, value in phases.items()}
        if overflow:
            phases.pop("update"), phases.pop("publish"), phases.pop("offload")
        seconds = sum(phases.values()) + 0.015 * random.uniform(0.5, 2) + (0.8 if step % 50 == 1 and step > 1 else 0)
        time += seconds
        reason = ""
        if overflow:
            reason = (f"step {step} skipped: the gradient of 'transformer.h.0.attn.c_attn.weight' is inf at element {step * 31}; "
                      f"the loss scale goes from {scale:.0f} to {scale / 2:.0f}")
        validation, memory = {}, {}
        if slower is not None:
            loss += slower
            memory = {"memory": {"parameters": 57 << 20, "states": 114 << 20, "gradients": 57 << 20, "activations": int((1 + slower) * 2e8)}}
            if step % 20 == 1 and step > 1:
                validation["eval/loss"] = round(slower + 2 + 3.3 * math.exp(-6 * progress) + 0.5 * max(0, progress - 0.7), 4)
        write({"kind": "step", "step": step, "samples": 16 * step, "time": round(time, 4), "loss": "NaN" if overflow and step == 3 else round(loss, 5), "lr": [lr, lr * 0.1],
               "grad_norm": None if overflow else round(norm, 5), "loss_scale": scale, "applied": not overflow, "reason": reason, "seconds": round(seconds, 5),
               "phases": {name: round(value, 6) for name, value in phases.items()}, "counts": {"tokens": 4096},
               "memory_bytes": int(2.1e9 + 1e7 * min(step, 20) + random.uniform(0, 3e6)), "values": {"accuracy": round(0.55 - 0.45 * math.exp(-4 * progress) + random.gauss(0, 0.01), 4), **validation}, **memory})
        if overflow:
            scale /= 2
        elif step % min(1000, max(60, steps // 4)) == 0:
            scale *= 2

    def event(step, what, text):
        write({"kind": "event", "step": step, "time": round(time, 3), "what": what, "text": text})

    head("2026-03-14T09:26:53Z", 0, 3e-4)
    if steps < 10:
        for step in range(1, steps + 1):
            one(step, 3e-4)
        return
    saved, killed = int(steps * 0.5), int(steps * 0.62)
    for step in range(1, killed + 1):
        one(step, 3e-4)
        if step % max(1, steps // 4) == 0:
            event(step, "checkpoint", f"saved run1/global_step{step}, 1.5 GB in 0.8 s")
    head("2026-03-14T11:02:10Z", saved, 2e-4)
    time = 0.0
    event(saved, "resume", f"loaded run1/global_step{saved}")
    for step in range(saved + 1, steps + 1):
        one(step, 2e-4)
        if step % max(1, steps // 4) == 0:
            event(step, "checkpoint", f"saved run1/global_step{step}, 1.5 GB in 0.8 s")


run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200, float(sys.argv[3]) if len(sys.argv) > 3 else None)
