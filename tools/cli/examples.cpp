// Help footers, with examples and exit codes, for the commands whose definitions do not set
// one.
#include "cli/help.h"

namespace gannet::cli {
namespace {

struct HelpFooter {
  const char* path;
  const char* text;
};

constexpr HelpFooter kFooters[] = {
    {"gannet config check",
     R"(Reports every mistake with file:line:column and the next step; in text that is not JSON, only the first. Opens the
plugins that the config names and checks their params, as training would. A plugin whose device is not on this machine
is reported, but is not a mistake.

Examples:
  gannet config check ds_config.json
  gannet config check configs/*.json
  gannet config check ds_config.json --world-size 8 --set zero_optimization.stage=3

Exit code: 0 when the config is right, 2 when it is not, 71 when only a plugin that it names is at fault.)"},
    {"gannet config resolve", R"(Refuses what `gannet config check` refuses, with its exit codes.

Examples:
  gannet config resolve ds_config.json
  gannet config resolve ds_config.json --arguments training_arguments.json --updates 5000
  gannet config resolve ds_config.json --set 'optimizer.params.betas=[0.9, 0.98]' --json

Exit code: 0 when the config is right, 2 when it is not, 71 when only a plugin that it names is at fault.)"},
    {"gannet config keys", R"(Examples:
  gannet config keys zero_optimization
  gannet config keys --all

Exit code: 0, or 2 when there is no such key.)"},
    {"gannet schedule", R"(Examples:
  gannet schedule ds_config.json > lr.csv
  gannet schedule ds_config.json --steps 1000

Exit code: 0, or 2 when the config is not right.)"},
    {"gannet estimate", R"(Numbers of parameters are written 1.3B, 124M or 124439808, sizes 80GiB or 500MB.

Examples:
  gannet estimate --parameters 1.3B --ranks 8 --config ds_config.json
  gannet estimate --parameters 7B --ranks 8 --device-memory 80GiB --dtype bf16

Exit code: 0, whether it fits or not; 2 when an argument or the config is not right.)"},
    {"gannet train",
     R"(It also takes every training argument, under transformers' names (docs/training_arguments.md): --deepspeed CONFIG,
--set key=value, --output_dir, --max_steps, --num_train_epochs, --learning_rate, --eval_strategy, --save_strategy,
--resume_from_checkpoint and so on. The folder with the trained weights is again a model: `gannet model`, `gannet train`
and Python read it; that of a TorchScript file has the weights, for Python's load_state_dict.

Examples:
  gannet train --model model/ --data tokens.bin --seq_len 1024 --deepspeed ds_config.json --max_steps 1000 --output_dir out
  gannet train --model model/ --data train/ --eval_data test/ --eval_strategy epoch --num_train_epochs 3 --output_dir out
  gannet run --num_procs 2 gannet train --model model/ --data train/ --deepspeed ds_config.json --output_dir out
  gannet train --model script.pt --data train/ --max_steps 1000 --output_dir out             a TorchScript file

Exit code: 0; 2 for a mistake in the options, the config or the data, 3 for an environment's fault; as a program of
`gannet run` otherwise.)"},
    {"gannet model info", R"(Examples:
  gannet model info model/
  gannet model info script.pt                a TorchScript file

Exit code: 0, 2 when the folder is not one of gannet_export's or has an operator that is refused, 3 when a file of it is
damaged.)"},
    {"gannet model check",
     R"(It runs on the CPU, on one thread. fp32 graphs agree within 1e-5, bf16 graphs within 2e-2; the same LibTorch on the same
kind of processor gives the same bits.

Examples:
  gannet model check model/
  gannet model check script.pt               loads it: a TorchScript file has no batch to compare with

Exit code: 0, 2 when the folder is not one of gannet_export's or its numbers differ, 3 when a file of it is damaged.)"},
    {"gannet model cuts",
     R"(A line for each value that passes from one layer to the next; inputs of the batch that a later layer needs also pass. The
sizes are those of `gannet model info`. The cuts are those of activation_checkpointing and of pipelines; `loss` is the end of the
last layer, from which on the graph uses no parameter.

Examples:
  gannet model cuts model/
  gannet model cuts model/ --segments 4

Exit code: 0, 2 when the folder is not one of gannet_export's or has no batch of the export, 3 when a file of it is damaged.)"},
    {"gannet pipeline show",
     R"(The actions are F, B (a whole backward), I and W (the backwards of inputs and of weights), each written as part, kind and
micro-batch: 2F0. A CSV file may be one that PyTorch wrote.

Examples:
  gannet pipeline show --schedule zb-v --stages 4 --micro-batches 8
  gannet pipeline show --schedule interleaved --stages 4 --micro-batches 8 --chunks 4 --times 1,1.2,0.8 --link 0.1
  gannet pipeline show --schedule 1f1b --stages 4 --micro-batches 8 --svg > step.svg
  gannet pipeline show --schedule mine.csv

Exit code: 0, or 2 when the schedule or an option is not right.)"},
    {"gannet plugins list", R"(Examples:
  gannet plugins list -v
  GANNET_PLUGIN_PATH=build/lib gannet plugins list

Exit code: 0, whether files were rejected or not; `gannet doctor` judges them.)"},
    {"gannet plugins info", R"(Examples:
  gannet plugins info AdamW
  gannet plugins info scheduler/onecycle
  gannet plugins info ./build/gannet_optimizer_lion.so

Exit code: 0; 2 when there is no such plugin, 71 when its file ends the process that opens it.)"},
    {"gannet plugins check",
     R"(Runs every check of the contract, each in a process of its own, and prints what was expected, what was found and where.
A plugin of the pinned tier is opened with its LibTorch, which the system's loader must find (LD_LIBRARY_PATH).

Examples:
  gannet plugins check ./lion.so --params '{"lr": 0.01}'
  gannet plugins check ./lion.so --reference ./plain_lion.so --tolerance 1e-5
  gannet plugins check ./lion.so --exclusions lion.exclusions --json

Exit code: 0 when every check passes, is skipped or is excluded; 1 when one fails; 2 when the file or an option is not right.)"},
    {"gannet plugins bench",
     R"(Steps optimizers in turn on the host's memory, and prints each round and the medians: the time of a step, that time over the
one which its bytes take at the machine's bandwidth in the same run, and the ratio to AdamW where it is among the files.

Examples:
  gannet plugins bench ./lion.so
  gannet plugins bench ./lion.so lib/gannet/gannet_optimizer_adam.so --plugin Lion --plugin AdamW --dtype bf16
  gannet plugins bench ./lars.so --bytes 28

Exit code: 0; 2 when a file or an option is not right, 3 when memory runs out.)"},
    {"gannet plugins new",
     R"(Writes CMakeLists.txt, one source file and README.md. The project configures, builds and passes `gannet plugins check` as
it is; replace its rule by yours. In C99: optimizer, scheduler, offload.

Examples:
  gannet plugins new optimizer mine
  gannet plugins new scheduler mine --language c99 --folder plugins/mine

Exit code: 0; 2 when an argument is not right or the folder is not empty, 3 when it cannot be written. Nothing is overwritten.)"},
    {"gannet plugins trust",
     R"(A config with "plugins": {"trusted": true} opens only plugins whose SHA-256 is in this list, Gannet's own among them. It is a file
as sha256sum has them: `sha256sum --check` reads it. No code of a file is run.

Examples:
  gannet plugins trust build/lib/gannet/gannet_optimizer_mine.so
  gannet plugins trust /usr/local/lib/gannet
  gannet plugins trust --list
  gannet plugins trust --remove build/lib/gannet/gannet_optimizer_mine.so
  gannet plugins trust --trusted team.trusted ./mine.so

Exit code: 0; 2 when a file is not a plugin or the list is not right, 3 when the list cannot be written. Nothing is changed then.)"},
    {"gannet report",
     R"(The metrics file is what "gannet": {"metrics": {"path": ...}} in the config wrote; the run may still be in progress. Of
two to six files, the charts have a line for each run, and a table lists the config keys that differ.

Examples:
  gannet report run1/metrics.jsonl -o run1/report.html
  gannet report run1/metrics.jsonl --text
  gannet report run1/metrics.jsonl run2/metrics.jsonl -o compare.html

Exit code: 0, or that of the error.)"},
    {"gannet checkpoint list", R"(Examples:
  gannet checkpoint list run1

Exit code: 0 when every checkpoint is complete, 3 when one is not.)"},
    {"gannet checkpoint import", R"(A receipt lists what was imported, and what was not and why. Nothing in the files is executed.

Examples:
  gannet checkpoint import ds_run run1
  gannet checkpoint import ds_run run1 --tag global_step100_universal
  gannet checkpoint import pytorch_model.bin run1 --rename transformer.=
  gannet checkpoint import model.safetensors run1
  build/bin/gpt2 --save-checkpoint run1 --resume

Exit code: 0, or that of the error: nothing is written then.)"},
    {"gannet checkpoint verify", R"(Examples:
  gannet checkpoint verify run1
  gannet checkpoint verify run1 global_step100

Exit code: 0 when every byte matches its checksum, 3 when one does not.)"},
    {"gannet checkpoint show", R"(Examples:
  gannet checkpoint show run1
  gannet checkpoint show run1 global_step100 --json
  gannet checkpoint show pytorch_model.bin

Exit code: 0, or 2 when there is no such checkpoint.)"},
    {"gannet checkpoint export", R"(Examples:
  gannet checkpoint export run1 out --dtype bf16
  gannet checkpoint export run1 out --format pt
  gannet checkpoint export run1 weights.safetensors
  gannet checkpoint export ds_run pytorch_model.bin
  gannet checkpoint export run1 out --tag global_step100 --max-shard-size 2GiB
  gannet checkpoint export run1 back --format universal --tied lm_head.weight=transformer.wte.weight
  gannet checkpoint export run1 back --format deepspeed --stage 2 --ranks 8

Exit code: 0, 2 when there is no such checkpoint, 3 when it is damaged or `out` cannot be written.)"},
    {"gannet zero_to_fp32", R"(The arguments are those of DeepSpeed's script zero_to_fp32.py. Nothing in the files is executed.

Examples:
  gannet zero_to_fp32 ds_run pytorch_model.bin
  gannet zero_to_fp32 ds_run out --safe_serialization --max_shard_size 2GB
  gannet zero_to_fp32 run1 out -t global_step100

Exit code: 0, 2 when there is no such checkpoint, 3 when it is damaged or `out` cannot be written.)"},
    {"gannet bench nvme",
     R"(Writes --size bytes to files in the folder at each point of a sweep, reads them back, and removes them.

Examples:
  gannet bench nvme /local_nvme --quick
  gannet bench nvme /local_nvme --size 4G --block_size 1M --queue_depth 32

Exit code: 0, or 3 when the drive cannot be written.)"},
};

}  // namespace

const char* footer_of(const std::string& path) {
  for (const HelpFooter& footer : kFooters)
    if (path == footer.path) return footer.text;
  return "";
}

}  // namespace gannet::cli
