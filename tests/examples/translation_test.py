"""The translation example on 1 and 2 ranks, from the T5 that transformers wrote (data/t5_tiny).

    python3 translation_test.py GANNET TRANSLATION SOURCE_FOLDER
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

GANNET, TRANSLATION, SOURCE = sys.argv[1:4]
EXAMPLE = pathlib.Path(SOURCE, "examples", "translation")
TINY = pathlib.Path(SOURCE, "tests", "examples", "data", "t5_tiny")
EXPECTED = json.loads((TINY / "expected.json").read_text(encoding="utf-8"))
COMMON = ["--dataset_name", EXAMPLE / "numbers", "--dataset_config", "ro-en", "--source_lang", "en", "--target_lang", "ro",
          "--source_prefix", "translate English to Romanian: ", "--use_cpu"]
GENERATE = ["--predict_with_generate", "--max_target_length", "12"]


def run(model, out, *arguments, ranks=1, code=0):
    command = [TRANSLATION, "--model_name_or_path", model, "--output_dir", out, *COMMON, *arguments]
    if ranks > 1:
        command = [GANNET, "run", "--num_procs", str(ranks), *command]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200)
    if done.returncode != code:
        sys.exit(f"FAILED: exit code {done.returncode} in place of {code} of {command}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(is_true, *what):
    if not is_true:
        sys.exit("FAILED: " + " ".join(map(str, what)))


def read(folder, name):
    return json.loads((pathlib.Path(folder) / name).read_text(encoding="utf-8"))


def predictions(folder):
    return (pathlib.Path(folder) / "generated_predictions.txt").read_text(encoding="utf-8").split("\n")


def from_transformers(work):
    """ZeRO inference of the folder that transformers wrote: its loss, and its texts."""
    few = ["--do_eval", "--do_predict", "--max_eval_samples", "9", "--max_predict_samples", "7", *GENERATE]
    greedy, beams = work / "greedy", work / "beams"
    run(TINY, greedy, *few)
    run(TINY, beams, *few, "--num_beams", "3", "--deepspeed", EXAMPLE / "ds_config_inference.json", "--per_device_eval_batch_size", "2",
        ranks=2)
    check(predictions(greedy) == EXPECTED["predictions"]["1"], predictions(greedy))
    check(predictions(beams) == EXPECTED["predictions"]["3"], predictions(beams))
    for folder in (greedy, beams):
        found = read(folder, "eval_results.json")
        check(abs(found["eval_loss"] - EXPECTED["eval_loss"]) < 1e-5, found, EXPECTED["eval_loss"])
        check(found["eval_samples"] == 9 and found["eval_bleu"] > 1 and 1 < found["eval_gen_len"] <= 11, found)
        check({"eval_exact_match", "eval_runtime", "eval_samples_per_second", "predict_loss", "predict_bleu", "predict_samples"}
              <= set(read(folder, "all_results.json")), read(folder, "all_results.json"))


def trains(work, stage):
    """The other direction, which is new to the model: loss falls, results are there, the folder is a model again."""
    out = work / f"stage{stage}"
    back = ["--source_lang", "ro", "--target_lang", "en", "--source_prefix", "translate Romanian to English: "]
    arguments = [*back, "--do_train", "--do_eval", "--do_predict", *GENERATE, "--max_train_samples", "96", "--max_eval_samples", "8",
                 "--max_predict_samples", "8", "--per_device_train_batch_size", "4", "--num_train_epochs", "2", "--learning_rate", "2e-3",
                 "--warmup_steps", "2", "--logging_steps", "1", "--save_steps", "10", "--deepspeed", EXAMPLE / f"ds_config_zero{stage}.json"]
    run(TINY, out, *arguments, ranks=2)
    losses = [entry["loss"] for entry in read(out, "trainer_state.json")["log_history"] if "loss" in entry]
    check(len(losses) == 24 and sum(losses[-6:]) < 0.7 * sum(losses[:6]), "losses", losses)
    results = read(out, "all_results.json")
    check(results["train_samples"] == 96 and math.isclose(results["train_loss"], sum(losses) / 24, rel_tol=1e-5), results)
    first = predictions(out)
    # Back to from_pretrained, whole and on one rank; a checkpoint's folder is a model, too.
    again = work / f"again{stage}"
    run(out, again, *back, "--do_predict", *GENERATE, "--max_predict_samples", "8")
    check(len(first) == 8 and predictions(again) == first, first, predictions(again))
    check({"config.json", "model.safetensors", "spiece.model"} <= {file.name for file in (out / "checkpoint-20").iterdir()})
    if stage < 3:
        return losses
    # Ended after its first checkpoint and started again, it is the undisturbed run.
    undisturbed = (out / "model.safetensors").read_bytes()
    state = (out / "trainer_state.json").read_bytes()
    shutil.rmtree(out / "checkpoint-20")
    shutil.rmtree(out / "checkpoint-24", ignore_errors=True)
    (out / "model.safetensors").unlink()
    check("after update 10" in run(TINY, out, *arguments, ranks=2), "it resumes")
    check((out / "model.safetensors").read_bytes() == undisturbed and (out / "trainer_state.json").read_bytes() == state, "the same run")
    return losses


def stops(work):
    """The checkpoint that SIGTERM makes is a folder of the model, too."""
    out = work / "stopped"
    command = [TRANSLATION, "--model_name_or_path", TINY, "--output_dir", out, *COMMON, "--do_train", "--max_steps", "100000",
               "--logging_steps", "1", "--per_device_train_batch_size", "2"]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            if "update 2:" in line:
                process.terminate()
        code = process.wait(timeout=100)
    made = list(out.glob("checkpoint-*"))
    check(code == 85 and len(made) == 1, code, made)
    run(made[0], work / "of_stopped", "--do_predict", *GENERATE, "--max_predict_samples", "2")
    check(len(predictions(work / "of_stopped")) == 2, "predicts")


def trains_a_vocabulary(work):
    """A folder without spiece.model, on two ranks; smoothing, 16 bits and padding beside it."""
    bare, out = work / "bare", work / "vocabulary"
    shutil.copytree(TINY, bare)
    (bare / "spiece.model").unlink()
    check("no spiece.model" in run(bare, out, "--do_eval", code=2), "evaluation alone has no vocabulary")
    said = run(bare, out, "--do_train", "--overwrite_output_dir", "--max_steps", "3", "--bf16", "--label_smoothing_factor", "0.1",
               "--pad_to_max_length", "--max_source_length", "40", "--max_target_length", "30", "--per_device_train_batch_size", "2",
               "--cache_dir", "x", ranks=2)
    check("a vocabulary was trained on the pairs" in said and "--cache_dir has no effect here" in said, said)
    run(out, work / "evaluated", "--do_eval", *GENERATE, "--max_eval_samples", "4")
    check("eval_bleu" in read(work / "evaluated", "eval_results.json"), "evaluated")
    said = run(bare, work / "bare", "--do_train", code=2)
    check("--overwrite_output_dir" in said, said)
    (bare / "tokenizer.json").write_text("{}")
    said = run(bare, work / "other", "--do_train", code=2)
    check("has a tokenizer.json, which is not read, and no spiece.model" in said, said)


def refuses(work):
    said = run(TINY, work / "x", "--do_evl", "--predict_with_generat", "--num_beams", "0", code=2)
    for part in ("did you mean 'do_eval'?", "did you mean 'predict_with_generate'?"):
        check(part in said, said)
    check("--dataset_name FOLDER" not in said and "Options of this program" in run(TINY, work / "x", "--help"), "help")


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    from_transformers(work)
    two, three = trains(work, 2), trains(work, 3)
    check(all(abs(a - b) < 2e-3 for a, b in zip(two, three)), "stages differ", two, three)
    stops(work)
    trains_a_vocabulary(work)
    refuses(work)
