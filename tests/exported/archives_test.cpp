// Exported models compute what eager PyTorch computes, bit for bit: loss, every gradient, every buffer, at shapes that the export
// did not see, with and without dropout. expected.safetensors has PyTorch's numbers (make_archives.py).
#include <ATen/Parallel.h>
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "exported/archive.h"

namespace {

using archive::are_equal;
using archive::below;
using gannet::ExportedModule;
using gannet::NamedBatch;
using Tensors = std::map<std::string, at::Tensor>;

std::shared_ptr<ExportedModule> load(const std::string& folder, const std::string& graph) {
  auto model = gannet::from_pretrained<ExportedModule>(
      folder, {.dtype = graph.ends_with("bf16") ? "bfloat16" : "float32", .strict = true});
  model->train(graph.starts_with("train"));
  return model;
}

void expect_as_eager(const std::string& folder, const Tensors& expected, int index, const std::string& graph) {
  SCOPED_TRACE(std::to_string(index) + "." + graph);
  const Tensors wanted = below(expected, std::to_string(index) + "." + graph + ".");
  ASSERT_TRUE(wanted.contains("loss"));
  const auto model = load(folder, graph);
  torch::manual_seed(static_cast<uint64_t>(7 + index));
  const at::Tensor loss = model->forward(NamedBatch(below(wanted, "batch.")));
  EXPECT_TRUE(are_equal(loss.detach(), wanted.at("loss"))) << loss << wanted.at("loss");
  loss.backward();
  const Tensors grads = below(wanted, "grad."), buffers = below(wanted, "buffer.");
  size_t compared = 0;
  for (const auto& entry : model->named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    ASSERT_EQ(entry.value().grad().defined(), grads.contains(entry.key())) << entry.key();
    if (!grads.contains(entry.key())) continue;
    EXPECT_TRUE(are_equal(entry.value().grad(), grads.at(entry.key()))) << entry.key();
    ++compared;
  }
  EXPECT_EQ(compared, grads.size());
  for (const auto& entry : model->named_buffers()) EXPECT_TRUE(are_equal(entry.value(), buffers.at(entry.key()))) << entry.key();
  EXPECT_EQ(model->named_buffers().size(), buffers.size());
}

class Archive : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }
  int threads_ = at::get_num_threads();
};

TEST_P(Archive, ComputesWhatEagerPyTorchComputes) {
  const Tensors expected = gannet::load_safetensors(GetParam() + "/expected.safetensors");
  for (const char* graph : {"train.fp32", "eval.fp32", "train.bf16", "eval.bf16"})
    for (int index = 0; index < 3; ++index) expect_as_eager(GetParam(), expected, index, graph);
}

TEST_P(Archive, AgreesWithItsProbe) {
  const gannet::ExportedCheck check = gannet::check_exported(GetParam());
  EXPECT_EQ(check.rows.size(), 4u);
  for (const auto& row : check.rows) {
    EXPECT_TRUE(row.agrees && row.is_bit_equal)
        << row.graph << ": " << row.loss_there << " " << row.loss_here << " " << row.worst;
    EXPECT_GT(row.gradients, 0u);
  }
}

// A call has no state in the module: what another thread computes meanwhile changes nothing.
TEST_P(Archive, TwoThreadsMayCallForwardAtOnce) {
  const Tensors expected = gannet::load_safetensors(GetParam() + "/expected.safetensors");
  const auto model = load(GetParam(), "eval.fp32");
  const auto run = [&](int index) {
    at::set_num_threads(1);
    const Tensors wanted = below(expected, std::to_string(index) + ".eval.fp32.");
    for (int i = 0; i < 5; ++i)
      if (!are_equal(model->forward(NamedBatch(below(wanted, "batch."))).detach(), wanted.at("loss"))) return false;
    return true;
  };
  bool is_equal = false;
  std::thread other([&] { is_equal = run(1); });
  EXPECT_TRUE(run(0));
  other.join();
  EXPECT_TRUE(is_equal);
}

INSTANTIATE_TEST_SUITE_P(, Archive, testing::ValuesIn(archive::all()), [](const auto& info) {
  return std::filesystem::path(info.param).filename().string() + "_" + std::to_string(info.index);
});

}  // namespace
