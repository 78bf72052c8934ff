// Models in TorchScript files (torch_scripts/, make_torch_scripts.py): they compute and train as in Python, and what is no such
// model is refused with the way out.
#include <ATen/Parallel.h>
#include <gannet/gannet.h>
#include <gannet/torch_script.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace script_tests {
namespace {

using archive::below;
using archive::Tensors;
using gannet::Dict;
using gannet::ErrorCode;
using gannet::NamedBatch;
using gannet::TorchScriptModule;
using testing::AllOf;
using testing::HasSubstr;

std::string file(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/exported/torch_scripts/" + name; }

void expect_error(ErrorCode code, const testing::Matcher<std::string>& what, const std::function<void()>& body) {
  try {
    body();
    FAIL() << "nothing was thrown";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), what);
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

void expect_refused(const std::string& path, ErrorCode code, const testing::Matcher<std::string>& what) {
  expect_error(code, what, [&] { TorchScriptModule model(path); });
}

std::vector<std::string> names_of(const TorchScriptModule& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters()) names.push_back(entry.key());
  return names;
}

TEST(TorchScript, HasTheNamesOfThePythonModel) {
  const TorchScriptModule model(file("words.pt"));
  EXPECT_THAT(names_of(model),
              testing::UnorderedElementsAre("words.weight", "mix.weight", "mix.bias", "norm.weight", "norm.bias"));
  EXPECT_THAT(model.tied(), testing::ElementsAre(std::pair<std::string, std::string>("head.weight", "words.weight")));
  std::vector<std::string> buffers;
  for (const auto& entry : model.named_buffers()) buffers.push_back(entry.key());
  EXPECT_THAT(buffers,
              testing::UnorderedElementsAre("scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  ASSERT_EQ(model.inputs().size(), 3u);
  EXPECT_EQ(model.inputs()[0].name, "ids");
  EXPECT_TRUE(model.inputs()[1].is_needed);
  EXPECT_FALSE(model.inputs()[2].is_needed);
  EXPECT_GT(model.operators(), 4u);
}

TEST(TorchScript, ComputesWhatEagerPyTorchComputes) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors expected = gannet::load_safetensors(file("expected.safetensors"));
  for (const bool trains : {true, false}) {
    SCOPED_TRACE(trains ? "train" : "eval");
    const Tensors wanted = below(expected, trains ? "train." : "eval.");
    TorchScriptModule model(file("words.pt"));
    EXPECT_TRUE(model.is_training());
    model.train(trains);
    torch::manual_seed(7);
    const at::Tensor loss = model.forward(NamedBatch(below(wanted, "batch.")));
    EXPECT_TRUE(at::equal(loss, wanted.at("loss"))) << loss << wanted.at("loss");
    loss.backward();
    const Tensors gradients = below(wanted, "grad."), buffers = below(wanted, "buffer.");
    ASSERT_EQ(gradients.size(), model.named_parameters().size());
    for (const auto& entry : model.named_parameters())
      EXPECT_TRUE(at::equal(entry.value().grad(), gradients.at(entry.key()))) << entry.key();
    for (const auto& entry : model.named_buffers()) EXPECT_TRUE(at::equal(entry.value(), buffers.at(entry.key()))) << entry.key();
  }
  at::set_num_threads(threads);
}

TEST(TorchScript, TakesTheFirstElementOfATuple) {
  TorchScriptModule model(file("traced.pt"));
  const at::Tensor loss = model.forward({{"x", torch::ones({5, 4})}, {"label", torch::zeros({5}, at::kLong)}});
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_TRUE(loss.requires_grad());
}

// The masters after four steps, and the losses. The tied weight gets the gradients of both of its uses.
Tensors trained(const Dict& more) {
  Dict config = {{"train_micro_batch_size_per_gpu", 3}, {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  const auto model = std::make_shared<TorchScriptModule>(file("words.pt"));
  auto engine = gannet::initialize(model, {.config = config}).engine;
  Tensors found;
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    const at::Tensor ids = torch::randint(0, 20, {3, 4}, at::kLong);
    const at::Tensor loss = engine->forward(NamedBatch{{"ids", ids}, {"labels", ids}});
    engine->backward(loss);
    engine->step();
    found["loss " + std::to_string(step)] = loss.detach().clone();
  }
  for (const auto& [name, values] : engine->fp32_parameters()) found[name] = values.clone();
  return found;
}

TEST(TorchScript, TrainsAlikeAtEveryStage) {
  const Tensors plain = trained({});
  EXPECT_LT(plain.at("loss 3").item<float>(), plain.at("loss 0").item<float>());
  for (const int64_t stage : {1, 2, 3}) {
    const Tensors found = trained({{"zero_optimization", Dict{{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}});
    ASSERT_EQ(found.size(), plain.size());
    for (const auto& [name, values] : plain) EXPECT_TRUE(at::equal(found.at(name), values)) << name << " at stage " << stage;
  }
  const Tensors bf16 = trained({{"bf16", Dict{{"enabled", true}}}, {"data_types", Dict{{"buffer_dtype", "bf16"}}}});
  EXPECT_NEAR(bf16.at("loss 0").item<float>(), plain.at("loss 0").item<float>(), 0.2);
}

TEST(TorchScript, RefusesWhatIsNoFileOfItsKind) {
  const archive::Copy copy("gpt2");
  std::ofstream(copy.path + "/text.pt") << "weights, perhaps";
  expect_refused(copy.path + "/none.pt", ErrorCode::kNotFound, HasSubstr("there is no "));
  expect_refused(copy.path + "/text.pt", ErrorCode::kCorrupt,
                 AllOf(HasSubstr("text.pt: it is not a TorchScript file, or a damaged one"), HasSubstr("torch.jit.save")));
  const std::string whole = archive::read(file("words.pt"));
  std::ofstream(copy.path + "/cut.pt", std::ios::binary) << whole.substr(0, whole.size() / 2);
  expect_refused(copy.path + "/cut.pt", ErrorCode::kCorrupt, HasSubstr("or a damaged one"));
}

TEST(TorchScript, RefusesModelsThatCannotBeTrained) {
  expect_refused(file("frozen.pt"), ErrorCode::kUnsupported,
                 AllOf(HasSubstr("frozen.pt: the module has no parameters"), HasSubstr("torch.jit.freeze")));
  expect_refused(
      file("other.pt"), ErrorCode::kUnsupported,
      AllOf(HasSubstr("other.pt: Unknown builtin op: otherlib::twice"), HasSubstr("must be linked into this program")));
  expect_refused(file("number.pt"), ErrorCode::kUnsupported,
                 HasSubstr("the argument 'times' of forward is of type int and has no default"));
  expect_refused(
      file("counts.pt"), ErrorCode::kUnsupported,
      AllOf(HasSubstr("forward assigns the attribute 'calls', of type int"), HasSubstr("self.register_buffer('calls'")));
}

TEST(TorchScript, ChecksTheNamesOfABatch) {
  TorchScriptModule model(file("words.pt"));
  const at::Tensor ids = torch::zeros({2, 3}, at::kLong);
  expect_error(ErrorCode::kArgument,
               AllOf(HasSubstr("forward takes ids, labels, weight"), HasSubstr("missing in the batch: labels"),
                     HasSubstr("unknown: label")),
               [&] { model.forward({{"ids", ids}, {"label", ids}}); });
  expect_error(ErrorCode::kArgument, HasSubstr("words.pt: forward failed: "),
               [&] { model.forward({{"ids", ids}, {"labels", torch::zeros({4}, at::kLong)}}); });
  for (auto& parameter : model.parameters()) parameter.requires_grad_(false);
  expect_error(ErrorCode::kArgument, HasSubstr("the loss has no gradient"),
               [&] { model.forward({{"ids", ids}, {"labels", ids}}); });
}

}  // namespace
}  // namespace script_tests
