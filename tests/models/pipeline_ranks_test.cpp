// The models as stages of a pipeline: pipeline_layers() and pipeline_loss().
#include <gannet/gannet.h>
#include <gannet/models/bert.h>
#include <gannet/models/bert_classifier.h>
#include <gannet/models/gpt2.h>
#include <gannet/models/llama.h>
#include <gannet/models/t5.h>
#include <gannet/pipe.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "comm/ranks.h"
#include "models/fixture.h"

namespace {

using gannet::Dict;
using gannet::pipe::MicroBatch;

// Texts of which every second one ends in padding.
MicroBatch texts(int64_t number, bool labels_are_inputs) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(70 + number));
  const at::Tensor tokens = torch::randint(1, 30, {4, 6}, generator, torch::kLong), mask = torch::ones({4, 6}, torch::kLong);
  mask.slice(0, 0, 4, 2).narrow(1, 4, 2).zero_();
  const at::Tensor labels = tokens.masked_fill(mask == 0, -100);
  if (labels_are_inputs) return {{tokens, labels, mask}, {labels}};
  return {{tokens, mask}, {labels}};
}

template <class Model>
void train(const std::string& name, const std::function<MicroBatch(int64_t)>& micro_batch) {
  const auto world = gannet::init_distributed();
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name));
  double expected = 0;
  if (world->size() == 1) {  // the loss of forward()
    const torch::NoGradGuard no_grad;
    model->eval();
    const MicroBatch one = micro_batch(0);
    expected = model->forward(one.inputs.front(), one.labels[0], one.inputs.back()).template item<double>();
    model->train();
  }
  const Dict config{{"train_micro_batch_size_per_gpu", 4},
                    {"gradient_accumulation_steps", 3},
                    {"gradient_clipping", 0.5},
                    {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}},
                    {"zero_optimization", Dict{{"stage", 1}}}};
  const auto engine =
      gannet::initialize(
          gannet::pipe::Module(model, {.num_stages = world->size(), .partition_method = "uniform", .seed_layers = true}),
          {.config = config})
          .engine;
  int64_t number = 0;
  const auto source = [&] { return micro_batch(number++); };
  const double evaluated = *engine->eval_batch(source, {.num_micro_batches = 1}).loss;
  if (world->size() == 1)
    ranks::expect(std::abs(evaluated - expected) <= 1e-6 * expected,
                  name + ": " + std::to_string(evaluated) + ", forward() has " + std::to_string(expected));
  for (int step = 0; step < 3; ++step) {
    const double loss = engine->train_batch(source);
    if (world->rank() == 0) std::cout << "figure: " << name << " " << std::setprecision(17) << loss << std::endl;
  }
}

RANK_BODY(models_in_stages) {
  torch::set_num_threads(1);
  const auto plain = [](int64_t number) { return texts(number, false); };
  train<gannet::models::Gpt2>("gpt2", plain);
  train<gannet::models::Llama>("llama", plain);
  train<gannet::models::Llama>("mistral", plain);
  train<gannet::models::Bert>("bert", plain);
  train<gannet::models::BertForSequenceClassification>("bert_class_single", [](int64_t number) {
    MicroBatch batch = texts(number, false);
    batch.labels = {batch.inputs[0].select(1, 0) % 2};
    return batch;
  });
  train<gannet::models::T5>("t5", [](int64_t number) { return texts(number, true); });
  train<gannet::models::T5>("mt5", [](int64_t number) { return texts(number, true); });
}

std::vector<std::pair<std::string, double>> figures(int count) {
  const auto outcomes = ranks::run_ranks("models_in_stages", count);
  ranks::expect_all_succeed(outcomes);
  std::vector<std::pair<std::string, double>> all;
  std::istringstream output(outcomes[0].output);
  for (std::string line; std::getline(output, line);)
    if (line.rfind("figure: ", 0) == 0) {
      std::istringstream words(line.substr(8));
      std::string name;
      double loss = 0;
      words >> name >> loss;
      all.emplace_back(name, loss);
    }
  return all;
}

TEST(ModelsInStages, TrainAsOnOneRank) {
  const auto whole = figures(1);
  ASSERT_EQ(whole.size(), 7u * 3);
  for (const int count : {2, 3}) {
    const auto found = figures(count);
    ASSERT_EQ(found.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(found[i].second, whole[i].second, 1e-5 * whole[i].second) << whole[i].first << " in " << count << " stages";
  }
}

}  // namespace
