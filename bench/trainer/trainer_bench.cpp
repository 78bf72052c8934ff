// The Trainer's loop against a hand-written loop with the same engine, data and config: a small GPT
// in fp32, updates of two micro-batches. Also measures how long a resume takes to skip a million
// samples, and how many samples it reads.
//
//   trainer_bench [ROUNDS]
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gannet/trainer.h>
#include <torch/data/example.h>

#include <cstdlib>
#include <filesystem>

#include "common/gpt.h"
#include "common/rounds.h"

namespace {

constexpr int64_t kLength = 128, kBatch = 2, kAccumulation = 2, kUpdatesPerRound = 4;

std::vector<gannet::Example> make_samples(int64_t vocabulary) {
  std::vector<gannet::Example> samples;
  for (int i = 0; i < 64; ++i)
    samples.emplace_back(at::randint(vocabulary, {kLength}, at::kLong), at::randint(vocabulary, {kLength}, at::kLong));
  return samples;
}

// Counts the samples that are read.
struct Million {
  std::shared_ptr<int64_t> reads = std::make_shared<int64_t>(0);
  size_t size() const { return 1'000'008; }
  gannet::Example get(size_t index) const {
    ++*reads;
    const at::Tensor value = at::full({1}, static_cast<int64_t>(index));
    return {value, value};
  }
};

void skip() {
  const Million data;
  const auto loader = gannet::make_loader(gannet::Dataset<>(data), {.batch_size = 8, .workers = 0});
  gannet::DataCursor cursor = loader->cursor();
  cursor.micro_batches = 125'000;
  cursor.samples = 1'000'000;
  const int64_t before = *data.reads;
  const double time = gannet::bench::seconds([&] {
    loader->seek(cursor);
    loader->begin();
  });
  std::printf("{\"figure\": \"samples_skipped\", \"skipped\": 1000000, \"read\": %lld, \"bar_s\": 1, \"seconds\": %.4f}\n",
              static_cast<long long>(*data.reads - before), time);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  gpt2::GptOptions size = gannet::bench::gpt_of_30m();
  size.vocabulary = 2048;
  size.width = 256;
  size.layers = 4;
  at::manual_seed(1);
  const auto samples = make_samples(size.vocabulary);
  const gannet::Dict config{
      {"train_micro_batch_size_per_gpu", kBatch},
      {"gradient_accumulation_steps", kAccumulation},
      {"gradient_clipping", 1.0},
      {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 5e-5}, {"weight_decay", 0.0}}}}}};

  const std::string folder = std::filesystem::temp_directory_path() / "gannet_trainer_bench";
  gannet::TrainingArguments arguments;
  arguments.output_dir = folder;
  arguments.per_device_train_batch_size = kBatch;
  arguments.gradient_accumulation_steps = kAccumulation;
  arguments.max_steps = 1'000'000;
  arguments.save_strategy = "no";
  arguments.disable_tqdm = true;
  arguments.dataloader_num_workers = 1;
  arguments.deepspeed = config;
  gpt2::Gpt ours(size), theirs(size);
  gannet::Trainer trainer(ours, arguments, {.train_dataset = samples});
  auto steps = trainer.steps();
  auto step = steps.begin();

  auto by_hand = gannet::initialize(theirs, {.config = config, .training_data = samples});
  gannet::RepeatingLoader endless(by_hand.loader);
  const auto times = gannet::bench::alternate({{"trainer",
                                                [&] {
                                                  for (int64_t i = 0; i < kUpdatesPerRound; ++i) ++step;
                                                }},
                                               {"by_hand",
                                                [&] {
                                                  for (int64_t i = 0; i < kUpdatesPerRound * kAccumulation; ++i) {
                                                    auto& batch = endless.next();
                                                    by_hand.engine->backward(by_hand.engine->forward(batch.data, batch.target));
                                                    by_hand.engine->step();
                                                  }
                                                }}},
                                              rounds);
  gannet::bench::print_figure("trainer_loop", times, "trainer", "by_hand", {{"bar", 1.01}});
  skip();
  std::filesystem::remove_all(folder);
}
