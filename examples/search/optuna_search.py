"""A search for hyperparameters: Optuna proposes them, each trial is a program on its own, as examples/trial.

    pip install optuna
    python3 examples/search/optuna_search.py FOLDER build/bin/trial --max_length "100 batches" --validation_period "20 batches"

Any number of these programs, on any number of machines that share FOLDER, search together; one that was ended is started again and
continues with the results of all. A trial that Optuna prunes gets SIGTERM, and saves a checkpoint before it exits.
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


def objective(trial):
    folder = pathlib.Path(FOLDER) / f"trial{trial.number}"
    chosen = {"lr": trial.suggest_float("lr", 1e-4, 1e-1, log=True), "width": trial.suggest_categorical("width", [32, 64])}
    options = [word for name, value in chosen.items() for word in ("--hparam", f"{name}={value}")]
    with open(f"{folder}.log", "w") as log:
        process = subprocess.Popen([*PROGRAM, *options, "--output_dir", folder], stdout=log, stderr=log)
    seen = 0
    while True:
        ended = process.poll() is not None
        lines = (folder / "trial.jsonl").read_text().splitlines() if (folder / "trial.jsonl").exists() else []
        losses = [line["metrics"]["loss"] for line in map(json.loads, lines) if line["kind"] == "validation"]
        for loss in losses[seen:]:
            trial.report(loss, seen)
            seen += 1
        if ended:
            break
        if trial.should_prune():
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise optuna.TrialPruned()
        time.sleep(0.1)
    if process.returncode != 0:
        raise RuntimeError(f"{folder} has ended with exit code {process.returncode}")
    return losses[-1]


FOLDER, *PROGRAM = sys.argv[1:]
pathlib.Path(FOLDER).mkdir(parents=True, exist_ok=True)
study = optuna.create_study(study_name="search", storage=JournalStorage(JournalFileBackend(f"{FOLDER}/journal")), load_if_exists=True)
study.optimize(objective, n_trials=8, catch=(RuntimeError,))
print(f"best of {len(study.trials)} trials: {study.best_params}, loss {study.best_value:.4f}")
