// The first program of docs/trainer.md needs one header: samples are gannet::Example.
#include <gannet/trainer.h>
// Nothing above this line.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "short_run.h"

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() { layer = register_module("layer", torch::nn::Linear(4, 3)); }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};

TEST(Trainer, TakesSamplesWithItsOwnHeaderAlone) {
  trainer_test::Removed folder;
  auto arguments = trainer_test::arguments_for(folder.path);
  std::vector<gannet::Example> train, held_out;
  for (int64_t i = 0; i < 8; ++i) {
    train.emplace_back(at::full({4}, static_cast<double>(i)), at::full({}, i % 3, at::kLong));
    held_out.push_back(train.back());
  }
  gannet::Trainer trainer(std::make_shared<NetImpl>(), arguments, {.train_dataset = train, .eval_dataset = held_out});
  EXPECT_EQ(trainer.train().global_step, 2);
}

}  // namespace
