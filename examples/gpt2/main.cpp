// Trains a GPT-2 from a ds_config.json.
//
//   gpt2                                                              a small one from scratch, on text from this machine
//   gannet run --num_procs 2 gpt2 --deepspeed_config ds_config.json   the same on two processes
//   gannet run --num_procs 2 --max-restarts 3 gpt2 --save-checkpoint run1 --checkpoint-every 100 --resume
//   gannet run --num_procs 2 gpt2 --prompt "The " --prompt "This "    at the end each process generates its own text
//   gannet run --num_procs 2 gpt2 --pipeline 2                        each process trains half of the layers
//   gpt2 --model DIR --tokens FILE --token-bytes 2 --seq-len 256 --steps 100 --deepspeed_config ds_config.json --save-model OUT
//
// The order of the samples: after `seen` samples in earlier steps, micro-batch a of a step on rank
// r of W takes the samples seen + (a W + r) B ... + B - 1, where B is the micro-batch size. Samples
// are not shuffled, so runs with the same total batch size see the same samples in each step.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gannet/gannet.h>
#include <gannet/pipe.h>
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "data.h"
#include "generate.h"
#include "model.h"
#include "model_io.h"
#include "options.h"
#include "report.h"

namespace gpt2 {
namespace {

// Every step allocates and frees tens of megabytes of activations. By default, the C library
// returns each block to the system, which zeroes the next block again page by page. Retaining freed
// memory fragments the heap: a large model then needs about a fifth more memory.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// Gives every larger block its own pages, which are returned to the system when the block is freed.
// By default the C library raises the size threshold for this over time, and the process then keeps
// freed blocks that are between blocks in use.
void give_freed_memory_back() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
}

LoadedModel make_model(const Options& options) {
  at::manual_seed(options.seed);
  return options.model.empty() ? LoadedModel{Gpt(options.architecture), ""}
                               : load_model(options.model, options.architecture.plain_operators);
}

// Trains in steps of `take_step(samples seen, report)`, which fills in the report. Returns false if
// a signal requested a stop; the checkpoint to resume from has then been saved.
bool train(gannet::EngineBase& engine, const Options& options,
           const std::function<void(int64_t seen, StepReport& report)>& take_step) {
  const bool is_first = engine.process_group()->rank() == 0;
  const int64_t first_step = engine.global_steps(), last_step = options.resume ? options.steps : first_step + options.steps;
  MetricsFile metrics(is_first ? options.metrics : "", /*append=*/first_step > 0);
  if (first_step >= last_step && is_first)
    std::cout << "nothing to do: the checkpoint is of step " << first_step << ", and --steps is " << options.steps << std::endl;
  Progress progress(first_step, last_step, engine.train_batch_size() * options.sequence_length, is_first);
  const bool saves = !options.save_checkpoint.empty();
  std::optional<gannet::StopSignals> stop;
  if (saves) stop.emplace();
  bool is_stopped = false;

  for (int64_t step = first_step; step < last_step && !is_stopped; ++step) {
    const auto began = std::chrono::steady_clock::now();
    const std::vector<double> rates = engine.get_lr();  // one per parameter group; empty if the optimizer has no learning rate
    StepReport report{.step = step + 1, .lr = rates.empty() ? 0 : rates[0], .loss_scale = engine.loss_scale()};
    take_step(engine.global_samples(), report);
    report.grad_norm = engine.get_global_grad_norm();
    report.skipped = !engine.was_step_applied();
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    metrics.write(report);
    progress.update(report);
    is_stopped = stop && stop->requested_on_any(engine);
    const bool is_due = options.checkpoint_every > 0 && (step + 1) % options.checkpoint_every == 0;
    if (saves && (is_due || is_stopped || step + 1 == last_step)) engine.save_checkpoint(options.save_checkpoint);
  }
  progress.finish();
  engine.wait_for_checkpoint();
  return !is_stopped;
}

void load(gannet::EngineBase& engine, const Options& options) {
  if (!options.load_checkpoint.empty())
    engine.load_checkpoint(options.load_checkpoint, {.lock_folder = options.load_checkpoint == options.save_checkpoint});
  if (options.resume) engine.load_checkpoint(options.save_checkpoint, {.if_present = true});
}

int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

void introduce(const gannet::EngineBase& engine, int64_t parameters, const Tokens& text, const Options& options) {
  const uint32_t processes = engine.process_group()->size();
  std::cout << engine.plugin_table() << '\n'
            << parameters << " parameters, " << text.size() << " tokens from " << text.source() << ", " << processes << " process"
            << (processes == 1 ? "" : "es") << ", " << engine.train_batch_size() << " samples of " << options.sequence_length
            << " tokens a step" << std::endl;
}

void show_validation(double loss, const Tokens& text) {
  std::cout << "validation loss " << loss << ", unigram entropy of the text " << text.unigram_entropy() << " (nats per token)"
            << std::endl;
}

// One step of micro-batches: forward, backward and step for each.
void take_step(gannet::Engine<GptImpl>& engine, const Tokens& tokens, int64_t length, int64_t seen, StepReport& report) {
  const int64_t accumulation = engine.gradient_accumulation_steps(), batch = engine.train_micro_batch_size_per_gpu();
  at::Tensor losses = at::zeros({}, at::TensorOptions(at::kDouble).device(engine.device()));
  for (int64_t micro_batch = 0; micro_batch < accumulation; ++micro_batch) {
    const Batch samples = tokens.batch(seen + (micro_batch * engine.world_size() + engine.rank()) * batch, batch, length);
    const at::Tensor loss = engine.forward(samples.inputs.to(engine.device()), samples.targets.to(engine.device()));
    engine.backward(loss);
    engine.count("tokens", batch * length);
    engine.step();
    losses += loss.detach();  // read once per step, since reading a scalar waits for the device
  }
  report.loss = engine.mean(losses.item<double>() / static_cast<double>(accumulation));
}

// Returns the mean loss over the held-out tokens; each rank evaluates a share of the samples.
double validate(gannet::Engine<GptImpl>& engine, const Tokens& tokens, int64_t length) {
  at::NoGradGuard no_grad;
  engine.eval();
  const int64_t ranks = engine.world_size(), batch = engine.train_micro_batch_size_per_gpu();
  const int64_t rounds = std::max<int64_t>(1, tokens.size() / (length * batch * ranks));
  at::Tensor losses = at::zeros({}, at::TensorOptions(at::kDouble).device(engine.device()));
  for (int64_t round = 0; round < rounds; ++round) {
    const Batch samples = tokens.batch((round * ranks + engine.rank()) * batch, batch, length);
    losses += engine.forward(samples.inputs.to(engine.device()), samples.targets.to(engine.device()));
  }
  engine.train();
  return engine.mean(losses.item<double>() / static_cast<double>(rounds));
}

// Each rank generates its own text; the texts are printed in rank order.
void show_text(gannet::Engine<GptImpl>& engine, const Options& options) {
  at::NoGradGuard no_grad;
  engine.eval();
  const uint32_t rank = engine.rank(), ranks = engine.world_size();
  const std::string prompt = options.prompts.empty() ? "" : options.prompts[rank % options.prompts.size()];
  std::vector<int64_t> tokens;
  for (const unsigned char byte : prompt.empty() ? std::string("\n") : prompt) tokens.push_back(byte);
  const GptOptions& architecture = engine.module()->options();
  const auto next_logits = [&](const at::Tensor& context) { return engine.forward(context.to(engine.device())); };
  const auto written = generate(next_logits, architecture.positions, tokens, options.generate, options.seed + rank);
  for (uint32_t turn = 0; turn < ranks; ++turn) {
    if (turn == rank)
      std::cout << (ranks > 1 ? "text that rank " + std::to_string(rank) + " wrote:\n" : "text it wrote:\n") << prompt
                << to_text(written, architecture.vocabulary) << std::endl;
    engine.mean(0);  // makes the next rank wait until this text is printed
  }
}

// Rejects an unwritable folder now rather than at the first checkpoint.
void check_folders(const Options& options, const torch::nn::Module& model) {
  uint64_t parameters = 0;
  for (const auto& parameter : model.parameters()) parameters += static_cast<uint64_t>(parameter.numel());
  if (!options.save_checkpoint.empty())
    gannet::check_folder(options.save_checkpoint, 12 * parameters);  // fp32 parameters, with Adam's two states
  if (!options.save_model.empty()) gannet::check_folder(options.save_model, 4 * parameters);
}

// A micro-batch with which the partition methods "time" and "memory" measure the layers.
gannet::pipe::MicroBatch sample_of(const Options& options, const Tokens& training) {
  const gannet::Value size = options.config.whole_config().get("train_micro_batch_size_per_gpu").value;
  const Batch samples = training.batch(0, size.is_int() ? size.as_int() : 1, options.sequence_length);
  return {{samples.inputs}, {samples.targets}};
}

// Trains in stages that pass activations and gradients to one another.
int run_pipeline(const Options& options, const LoadedModel& loaded, const Tokens& training, const Tokens& held_out,
                 const Tokens& text) {
  const Gpt& model = loaded.model;
  const GptOptions architecture = model->options();
  const int64_t parameters = count_parameters(*model);
  const gannet::pipe::Module stages(model, {.num_stages = options.pipeline,
                                            .sample = sample_of(options, training),
                                            .seed_layers = true,
                                            .base_seed = static_cast<int64_t>(options.seed)});
  const auto engine = gannet::initialize(stages, {.config = options.config.config, .overwrite = options.config.overrides}).engine;
  const bool first_rank = engine->process_group()->rank() == 0;
  if (first_rank) introduce(*engine, parameters, text, options);
  load(*engine, options);
  const int64_t batch = engine->train_micro_batch_size_per_gpu(), ranks = engine->world_size();
  // Micro-batches from sample `first` on, dealt out round-robin to the data-parallel ranks.
  const auto samples_from = [&](const Tokens& tokens, int64_t first) {
    return [&, first = first + engine->rank() * batch]() mutable {
      const Batch samples = tokens.batch(std::exchange(first, first + ranks * batch), batch, options.sequence_length);
      return gannet::pipe::MicroBatch{{samples.inputs}, {samples.targets}};
    };
  };
  const auto step = [&](int64_t seen, StepReport& report) { report.loss = engine->train_batch(samples_from(training, seen)); };
  if (!train(*engine, options, step)) return gannet::kStoppedExitCode;
  if (held_out.size() > 0) {
    const int64_t rounds = std::max<int64_t>(1, held_out.size() / (options.sequence_length * batch * ranks));
    const auto result = engine->eval_batch(samples_from(held_out, 0), {.num_micro_batches = rounds});
    if (first_rank) show_validation(*result.loss, text);
  }
  if (!options.save_model.empty()) {
    engine->save_fp32_model(options.save_model);
    if (first_rank) {
      save_config(options.save_model, architecture, loaded.config_json);
      std::cout << "saved the model to " << options.save_model << std::endl;
    }
  }
  return 0;
}

int run(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  LoadedModel loaded = make_model(options);
  if (options.config.estimate) {
    const char* rank = std::getenv("RANK");
    const auto loss_of = [&](int64_t samples) {  // token values do not matter
      const at::Tensor tokens = at::zeros({samples, options.sequence_length}, at::kLong);
      return loaded.model->forward(tokens, tokens);
    };
    if (!rank || rank == std::string("0"))
      std::cout << gannet::estimate(*loaded.model, options.config.whole_config(),
                                    {.ranks = *options.config.estimate, .forward = loss_of});
    return 0;
  }
  check_folders(options, *loaded.model);
  const GptOptions architecture = loaded.model->options();
  const Tokens text =
      options.tokens.empty() ? Tokens::from_this_machine() : Tokens::from_file(options.tokens, options.token_bytes);
  text.check(architecture.vocabulary);
  const auto [training, held_out] = text.split(options.validation_fraction);

  if (options.pipeline > 1) return run_pipeline(options, loaded, training, held_out, text);
  auto [engine, optimizer, loader, scheduler] =
      gannet::initialize(loaded.model, {.config = options.config.config, .overwrite = options.config.overrides});
  at::manual_seed(options.seed + 1 + engine->rank());  // so that dropout differs between ranks
  const bool first_rank = engine->rank() == 0;
  if (first_rank) introduce(*engine, count_parameters(*loaded.model), text, options);
  load(*engine, options);
  const auto step = [&, &engine = *engine, &training = training](int64_t seen, StepReport& report) {
    take_step(engine, training, options.sequence_length, seen, report);
  };
  if (!train(*engine, options, step)) return gannet::kStoppedExitCode;

  if (held_out.size() > 0) {
    const double loss = validate(*engine, held_out, options.sequence_length);
    if (first_rank) show_validation(loss, text);
  }
  if (!options.save_model.empty()) {
    const auto weights = engine->fp32_parameters();  // gathered from all ranks if ZeRO shards them
    if (first_rank) {
      save_model(options.save_model, architecture, loaded.config_json, weights);
      std::cout << "saved the model to " << options.save_model << std::endl;
    }
  }
  if (options.generate > 0) show_text(*engine, options);
  return 0;
}

}  // namespace
}  // namespace gpt2

int main(int argc, char** argv) {
  try {
    const gpt2::Options options = gpt2::parse_options(argc, argv);
    options.give_memory_back ? gpt2::give_freed_memory_back() : gpt2::keep_freed_memory();
    return gpt2::run(options);
  } catch (const std::exception& error) {
    const auto ours = gannet::error_of(error);
    std::cerr << "gpt2: " << (ours ? ours->what() : error.what()) << '\n';
    return ours ? ours->exit_code() : 70;
  }
}
