// A program of the Trainer for tests over several processes.
//   trainer_program --out FILE [--stage N] [--samples N] [--kill_at N | --term_at N] <training arguments>
//   --ask_at N: only the last rank's callback asks to stop, log, evaluate and save after update N; --stop_at N: only its loop
//   calls step.stop(). --limit N: the last rank is out of memory above N samples. --memory_mb N: each sample takes 64 MiB, and
//   the process may have N MiB beyond what it has. --uneven N: a stream of `samples` samples, on the last rank of N. --throw_on
//   N: that rank's metric throws. --fail_at N: the callback of the last rank, or of --fail_on, throws before the update after N;
//   the program catches it and lives on for a minute, or with --again trains with another Trainer. --metrics_by_rank: each rank's
//   metric is another.
//   --evaluate: evaluates and does not train;
//   --term_in_evaluation N: the last rank gets SIGTERM in batch N of it. --pipe N: stages of a pipeline; --schedule NAME;
//   --partition METHOD; --as_module 1: a pipe::Module of lazy layers, whose weights are others.
// Rank 0 writes the parameters and the losses as fp64; --kill_at ends the process by SIGKILL after that update, --term_at sends
// itself SIGTERM on the last rank only.
#include <gannet/lazy.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include "tokens.h"

namespace {

struct Die {
  int64_t kill_at, term_at;
  bool is_last_rank;
  void on_step_begin(const gannet::TrainerEvent& event) {
    if (event.state.global_step == kill_at) std::raise(SIGKILL);
    if (event.state.global_step == term_at && is_last_rank) std::raise(SIGTERM);
  }
};

struct Fail {
  int64_t at;
  void on_pre_optimizer_step(const gannet::TrainerEvent& event) const {
    if (event.state.global_step == at) throw std::runtime_error("the callback's disk is full");
  }
};

struct TermInEvaluation {
  int64_t at;
  int64_t batches = 0;
  void on_prediction_step(const gannet::TrainerEvent&) {
    if (++batches == at) std::raise(SIGTERM);
  }
};

struct Ask {
  int64_t at;
  void on_step_end(const gannet::TrainerEvent& event, gannet::TrainerControl& control) {
    if (event.state.global_step != at) return;
    control.should_log = control.should_evaluate = control.should_save = control.should_training_stop = true;
  }
};

// Above `limit` samples memory runs out in backward; with `is_heavy` each sample takes 64 MiB until then.
struct LimitedImpl : trainer_test::TokensImpl {
  at::Tensor logits(const at::Tensor& tokens) {
    at::Tensor x = TokensImpl::logits(tokens);
    if (is_heavy) x = x + 0 * (torch::zeros({tokens.size(0), 1 << 23}) * out->bias[0]).sum();
    if (tokens.size(0) > limit && x.requires_grad())
      x.register_hook([](const at::Tensor&) -> at::Tensor { TORCH_CHECK_WITH(OutOfMemoryError, false, "the card is full"); });
    return x;
  }
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    return torch::cross_entropy_loss(logits(tokens).flatten(0, 1), targets.flatten());
  }
  std::vector<gannet::Layer> layers() {
    const auto normalized = [this](const at::Tensor& x) { return torch::gelu(norm(x)); };
    return {gannet::layer_of("embedding", embedding), gannet::function("norm", {norm.ptr()}, normalized),
            gannet::layer_of("out", out)};
  }
  at::Tensor pipeline_loss(const at::Tensor& logits, const at::Tensor& targets) const {
    return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
  }
  int64_t limit = 1000;
  bool is_heavy = false;
};

// The same layers, built on their stages.
gannet::pipe::Module lazy_module() {
  using trainer_test::kClasses;
  return gannet::pipe::Module({gannet::layer<torch::nn::Embedding>("embedding", kClasses, 12),
                               gannet::layer<torch::nn::LayerNorm>("norm", torch::nn::LayerNormOptions({12})),
                               gannet::layer<torch::nn::Linear>("out", 12, kClasses)},
                              {.loss_fn = [](const at::Tensor& logits, const at::Tensor& labels) {
                                return torch::cross_entropy_loss(logits.flatten(0, 1), labels.flatten());
                              }});
}

// The values of all stages, in the order of their names.
std::vector<double> values_of(gannet::EngineBase& engine) {
  std::string mine;  // for each tensor its name, a zero byte, the number of its elements and these
  for (const auto& [name, value] : engine.fp32_parameters()) {
    const at::Tensor whole = value.to(torch::kDouble).contiguous();
    const int64_t elements = whole.numel();
    if (engine.rank() != 0) continue;
    mine += name + '\0';
    mine.append(reinterpret_cast<const char*>(&elements), sizeof elements);
    mine.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  }
  std::map<std::string, std::vector<double>> all;
  for (const std::string& bytes : engine.process_group()->gather(mine))
    for (size_t at = 0; at < bytes.size();) {
      std::vector<double>& values = all[bytes.c_str() + at];
      at = bytes.find('\0', at) + 1;
      int64_t elements = 0;
      std::memcpy(&elements, bytes.data() + at, sizeof elements);
      values.resize(static_cast<size_t>(elements));
      std::memcpy(values.data(), bytes.data() + at + sizeof elements, values.size() * sizeof(double));
      at += sizeof elements + values.size() * sizeof(double);
    }
  std::vector<double> numbers;
  for (const auto& [name, values] : all) numbers.insert(numbers.end(), values.begin(), values.end());
  return numbers;
}

// The process may take so much memory beyond what it has.
void limit_memory(int64_t megabytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (megabytes << 20));
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

// Samples that come one after another, as many as there are, in every epoch.
struct Stream {
  std::vector<gannet::Example> samples;
  struct Iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = gannet::Example;
    using difference_type = std::ptrdiff_t;
    const gannet::Example* at;
    gannet::Example operator*() const { return *at; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    void operator++(int) { ++at; }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {samples.data()}; }
  Iterator end() const { return {samples.data() + samples.size()}; }
};

// The program's own options.
struct Own {
  std::map<std::string, std::string> given;
  bool has(const char* name) const { return given.contains(name); }
  int64_t number(const char* name, int64_t fallback) const { return has(name) ? std::stoll(given.at(name)) : fallback; }
};

// Keeps the engine that the events name.
struct KeepEngine {
  gannet::EngineBase** engine;
  void on_train_begin(const gannet::TrainerEvent& event) const { *engine = event.engine; }
};

template <class Model>
int train(const Model& model, const gannet::TrainingArguments& arguments, const Own& own, const gannet::Dataset<>& samples,
          std::vector<gannet::TrainerCallback> callbacks) {
  const auto world = gannet::init_distributed();
  const bool is_last = world->rank() + 1 == world->size();
  gannet::EngineBase* engine = nullptr;
  callbacks.push_back(KeepEngine{&engine});
  gannet::TrainerBase* trained = nullptr;
  gannet::Trainer trainer(model, arguments,
                          {.train_dataset = samples,
                           .eval_dataset = trainer_test::make_samples(13, 100),
                           .compute_metrics = [&](const gannet::EvalPrediction& p) -> gannet::Metrics {
                             if (own.number("--throw_on", -1) == world->rank()) throw std::runtime_error("no such metric");
                             if (own.has("--metrics_by_rank")) {  // the best is after update 1 on rank 0, and 3 on rank 1
                               const int64_t step = trained->state().global_step;
                               const double best = step == 1 + 2 * world->rank() ? 10 : 1.0 / static_cast<double>(step);
                               return {{"accuracy", best}};
                             }
                             return {{"accuracy", trainer_test::accuracy_of(p)}, {"samples", double(p.predictions.size(0))}};
                           },
                           .callbacks = callbacks});
  trained = &trainer;
  if (is_last && own.has("--memory_mb")) limit_memory(own.number("--memory_mb", 0));
  if (own.has("--evaluate")) {
    trainer.evaluate();
    trainer.predict();
    return 0;
  }
  std::vector<double> numbers;
  if (own.has("--fail_at")) {
    try {
      trainer.train();
    } catch (const std::runtime_error& error) {
      std::cerr << "caught: " << error.what() << std::endl;
      if (own.has("--again")) {  // with another engine, at once
        gannet::Trainer second(std::make_shared<LimitedImpl>(), arguments, {.train_dataset = samples});
        second.train();
      }
      if (is_last) std::this_thread::sleep_for(std::chrono::minutes(1));
      throw;
    }
  }
  for (auto& step : trainer.steps()) {
    numbers.push_back(step.loss());
    numbers.push_back(step.grad_norm().value_or(-1));
    if (is_last && step.global_step() == own.number("--stop_at", -1)) step.stop();
  }
  if (own.has("--metrics_by_rank")) std::cerr << "best: " << trainer.state().best_model_checkpoint << std::endl;
  if (arguments.do_eval)
    for (const auto& [name, value] : trainer.evaluate()) numbers.push_back(value);
  const std::vector<double> values = values_of(*engine);
  numbers.insert(numbers.end(), values.begin(), values.end());
  trainer.save_state();
  if (world->rank() == 0)
    std::ofstream(own.given.at("--out"), std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  return 0;
}

int run(int argc, char** argv) {
  auto arguments = gannet::parse_training_arguments(argc, argv,
                                                    {.leave = {"--out",
                                                               "--stage",
                                                               "--samples",
                                                               "--kill_at",
                                                               "--term_at",
                                                               "--patience",
                                                               "--ask_at",
                                                               "--stop_at",
                                                               "--uneven",
                                                               "--throw_on",
                                                               "--limit",
                                                               "--memory_mb",
                                                               "--fail_at",
                                                               "--again",
                                                               "--metrics_by_rank",
                                                               "--evaluate",
                                                               "--term_in_evaluation",
                                                               "--pipe",
                                                               "--schedule",
                                                               "--partition",
                                                               "--fail_on",
                                                               "--as_module"}});
  Own own;
  for (int i = 1; i + 1 < argc; i += 2) own.given[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name, int64_t fallback) { return own.number(name, fallback); };
  gannet::Dict config{{"zero_optimization", gannet::Dict{{"stage", number("--stage", 0)}}}};
  if (own.has("--pipe")) config["pipeline"] = gannet::Dict{{"stages", number("--pipe", 1)}};
  if (own.has("--partition")) config["pipeline"].as_dict()["partition"] = own.given["--partition"];
  if (own.has("--schedule")) config["gannet"] = gannet::Dict{{"pipeline", gannet::Dict{{"schedule", own.given["--schedule"]}}}};
  arguments.deepspeed = config;
  auto world = gannet::init_distributed({.timeout_seconds = 120});

  std::vector<gannet::TrainerCallback> callbacks = {
      Die{number("--kill_at", -1), number("--term_at", -1), world->rank() + 1 == world->size()}};
  if (own.has("--patience")) callbacks.push_back(gannet::EarlyStopping{.patience = number("--patience", 1)});
  const bool is_last = world->rank() + 1 == world->size();
  callbacks.push_back(Ask{is_last ? number("--ask_at", -1) : -1});
  const bool fails = own.has("--fail_on") ? number("--fail_on", 0) == world->rank() : is_last;
  callbacks.push_back(Fail{fails ? number("--fail_at", -1) : -1});
  callbacks.push_back(TermInEvaluation{is_last ? number("--term_in_evaluation", -1) : -1});
  torch::manual_seed(3);
  auto model = std::make_shared<LimitedImpl>();
  if (is_last) model->limit = number("--limit", 1000);
  model->is_heavy = own.has("--memory_mb");
  gannet::Dataset<> samples(trainer_test::make_samples(number("--samples", 40)));
  if (own.has("--uneven")) {
    // Rank 0 has the first samples, the last rank those behind them.
    const int64_t all = number("--samples", 40), last = number("--uneven", 0);
    samples = gannet::Dataset<>(
        Stream{is_last ? trainer_test::make_samples(last, all - last) : trainer_test::make_samples(all - last)});
  }
  if (own.has("--as_module")) return train(lazy_module(), arguments, own, samples, callbacks);
  return train(model, arguments, own, samples, callbacks);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const gannet::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
