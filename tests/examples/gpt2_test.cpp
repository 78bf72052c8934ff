// The example's GPT-2 against Hugging Face's: the numbers in data/gpt2_tiny were made by data/make_gpt2_expected.py.
#include <ATen/ATen.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model.h"
#include "model_io.h"
#include "ops.h"

namespace gpt2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kTiny = std::string(GANNET_SOURCE_DIR) + "/tests/examples/data/gpt2_tiny";

const nlohmann::ordered_json& expected() {
  static const auto numbers = nlohmann::ordered_json::parse(std::ifstream(kTiny + "/expected.json"));
  return numbers;
}

const Operators fast(/*plain=*/false);

at::Tensor tokens() {
  const auto i = at::arange(2 * 25, at::kLong);
  return ((i * 37 + i * i * 11) % 256).view({2, 25});
}

at::Tensor loss_of(Gpt& model) { return model->forward(tokens().narrow(1, 0, 24), tokens().narrow(1, 1, 24)); }

void expect_near_relative(double value, double reference, double tolerance, const std::string& what) {
  EXPECT_NEAR(value, reference, tolerance * std::abs(reference)) << what;
}

template <class Function>
std::string error_of(Function function, gannet::ErrorCode code) {
  try {
    function();
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// A copy of the tiny model's folder that a test may damage.
class Folder {
 public:
  Folder() {
    fs::create_directories(path_);
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(kTiny + "/" + name, path_ / name, fs::copy_options::overwrite_existing);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  void set(const std::string& key, const nlohmann::json& value) const {
    auto config = nlohmann::json::parse(std::ifstream(file("config.json")));
    config[key] = value;
    std::ofstream(file("config.json")) << config;
  }
  void change(const std::function<void(std::map<std::string, at::Tensor>&)>& edit) const {
    auto tensors = gannet::load_safetensors(file("model.safetensors"));
    edit(tensors);
    gannet::save_safetensors(file("model.safetensors"), {tensors.begin(), tensors.end()});
  }

 private:
  fs::path path_ = fs::temp_directory_path() / ("gannet-gpt2-" + std::to_string(::getpid()));
};

TEST(Gpt2, parameters_bear_the_names_and_the_order_that_hugging_face_saves) {
  auto model = load_model(kTiny).model;
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  std::vector<std::string> theirs;
  for (const auto& [name, norm] : expected()["gradient_norms"].items()) theirs.push_back(name);
  EXPECT_THAT(names, testing::ElementsAreArray(theirs));
}

TEST(Gpt2, logits_and_loss_equal_hugging_faces) {
  auto model = load_model(kTiny).model;
  const auto logits = model->logits(tokens().narrow(1, 0, 24));
  EXPECT_EQ(logits.sizes().vec(), (std::vector<int64_t>{2, 24, 256}));
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(logits[1][23][i].item<float>(), expected()["logits"][i].get<float>(), 5e-6);
  EXPECT_TRUE(at::allclose(model->forward(tokens().narrow(1, 0, 24)), logits.select(1, -1), 1e-5, 1e-6));
  expect_near_relative(loss_of(model).item<double>(), expected()["loss"], 1e-6, "loss");
}

TEST(Gpt2, every_gradient_equals_hugging_faces) {
  auto model = load_model(kTiny).model;
  loss_of(model).backward();
  for (const auto& item : model->named_parameters())
    expect_near_relative(item.value().grad().norm().item<double>(), expected()["gradient_norms"][item.key()], 1e-5, item.key());
}

TEST(Gpt2, bf16_agrees_with_hugging_faces_bf16) {
  auto model = load_model(kTiny).model;
  model->to(at::kBFloat16);
  auto loss = loss_of(model);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  double squares = 0;
  for (const auto& parameter : model->parameters()) squares += parameter.grad().to(at::kFloat).square().sum().item<double>();
  expect_near_relative(loss.item<double>(), expected()["bf16_loss"], 5e-4, "loss");
  expect_near_relative(std::sqrt(squares), expected()["bf16_gradient_norm"], 5e-3, "gradient norm");
}

TEST(Gpt2, plain_operators_round_where_hugging_face_does) {
  auto model = load_model(kTiny, /*plain_operators=*/true).model;
  model->to(at::kBFloat16);
  // A processor with other 16-bit instructions adds in another order: no bits are expected of the whole model.
  expect_near_relative(loss_of(model).item<double>(), expected()["bf16_loss"], 5e-5, "loss");

  const auto x = at::linspace(-4, 4, 1001).to(at::kBFloat16);
  const auto step_by_step = (x * 0.5) * (at::tanh((x + at::pow(x, 3.0) * 0.044715) * std::sqrt(2 / M_PI)) + 1.0);
  EXPECT_TRUE(at::equal(Operators(true).gelu_tanh(x), step_by_step));
  EXPECT_FALSE(at::equal(fast.gelu_tanh(x), step_by_step));
}

TEST(Gpt2, five_steps_of_adamw_follow_pytorch) {
  auto model = load_model(kTiny).model;
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  for (const auto& reference : expected()["adamw_losses"]) {
    optimizer.zero_grad();
    auto loss = loss_of(model);
    loss.backward();
    optimizer.step();
    expect_near_relative(loss.item<double>(), reference, 2e-5, "loss");
  }
}

TEST(Gpt2, the_chunked_head_equals_plain_operators_in_every_dtype) {
  at::manual_seed(3);
  // More rows than one chunk holds, and an uneven rest.
  const auto hidden = at::randn({200, 16}), weight = at::randn({11'000, 16}) * 0.1,
             targets = at::randint(0, 11'000, {200}, at::kLong);
  targets.fill_(5).narrow(0, 0, 100).copy_(at::arange(10'900, 11'000, at::kLong));  // repeated ones, and the last row
  for (auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-2;
    const auto h = hidden.to(dtype).detach().requires_grad_(), w = weight.to(dtype).detach().requires_grad_();
    const auto loss = fast.head_loss(h, w, targets);
    (loss * 3).backward();
    const auto h_plain = h.detach().to(at::kDouble).requires_grad_(), w_plain = w.detach().to(at::kDouble).requires_grad_();
    const auto plain = at::cross_entropy_loss(at::mm(h_plain, w_plain.t()), targets);
    (plain * 3).backward();
    expect_near_relative(loss.item<double>(), plain.item<double>(), tolerance / 10, "loss");
    EXPECT_LT((h.grad() - h_plain.grad()).norm().item<double>(), tolerance * h_plain.grad().norm().item<double>()) << dtype;
    EXPECT_LT((w.grad() - w_plain.grad()).norm().item<double>(), tolerance * w_plain.grad().norm().item<double>()) << dtype;
  }
}

TEST(Gpt2, a_padded_vocabulary_changes_neither_loss_nor_gradients) {
  at::manual_seed(5);
  for (const int64_t vocabulary : {100, 128, 257}) {
    const auto hidden = at::randn({40, 16}), weight = at::randn({vocabulary, 16}),
               targets = at::randint(0, vocabulary, {40}, at::kLong);
    for (auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const double tolerance = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : 1e-2;
      const auto h = hidden.to(dtype).detach().requires_grad_(), w = weight.to(dtype).detach().requires_grad_();
      const auto logits = padded_logits(h, w);
      EXPECT_EQ(logits.size(1), (vocabulary + 63) / 64 * 64);
      const auto loss = at::cross_entropy_loss(logits.to(at::kDouble), targets);
      loss.backward();
      const auto h_plain = h.detach().to(at::kDouble).requires_grad_(), w_plain = w.detach().to(at::kDouble).requires_grad_();
      const auto plain = at::cross_entropy_loss(at::mm(h_plain, w_plain.t()), targets);
      plain.backward();
      expect_near_relative(loss.item<double>(), plain.item<double>(), tolerance, "loss");
      EXPECT_EQ(w.grad().sizes(), weight.sizes());
      EXPECT_LT((h.grad() - h_plain.grad()).norm().item<double>(), 2 * tolerance * h_plain.grad().norm().item<double>()) << dtype;
      EXPECT_LT((w.grad() - w_plain.grad()).norm().item<double>(), 2 * tolerance * w_plain.grad().norm().item<double>()) << dtype;
    }
  }
}

TEST(Gpt2, the_padding_is_in_no_file) {
  GptOptions options{.vocabulary = 257, .positions = 8, .width = 16, .layers = 1, .heads = 2};
  Gpt model(options);
  model->to(at::kDouble);  // the operators that run on other devices
  const auto some = tokens().narrow(1, 0, 8);
  model->forward(some, some).backward();
  EXPECT_EQ(model->forward(some).sizes().vec(), (std::vector<int64_t>{2, 257}));
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["transformer.wte.weight"].sizes().vec(), (std::vector<int64_t>{257, 16}));
  const auto folder = (fs::temp_directory_path() / ("gannet-gpt2-padded-" + std::to_string(::getpid()))).string();
  gannet::NamedTensors written;
  for (const auto& item : parameters) written.emplace_back(item.key(), item.value());
  save_model(folder, options, "", written);
  EXPECT_EQ(gannet::load_safetensors(folder + "/model.safetensors").at("transformer.wte.weight").size(0), 257);
  EXPECT_EQ(load_model(folder).model->options().vocabulary, 257);
  fs::remove_all(folder);
}

TEST(Gpt2, products_are_widened_only_where_the_processor_lacks_them) {
  const ProductSupport none{}, dot{.bf16 = true}, all{.bf16 = true, .fp16 = true};
  EXPECT_EQ(product_dtype(at::kBFloat16, none), at::kFloat);
  EXPECT_EQ(product_dtype(at::kHalf, none), at::kFloat);
  EXPECT_EQ(product_dtype(at::kBFloat16, dot), at::kBFloat16);  // AMD's and Intel's dot products, and AMX
  EXPECT_EQ(product_dtype(at::kHalf, dot), at::kFloat);
  EXPECT_EQ(product_dtype(at::kHalf, all), at::kHalf);
  for (const auto& products : {none, dot, all})
    for (auto wide : {at::kFloat, at::kDouble}) EXPECT_EQ(product_dtype(wide, products), wide);
#if defined(__x86_64__)
  std::ifstream cpuinfo("/proc/cpuinfo");  // the kernel's own list
  const std::string text(std::istreambuf_iterator<char>(cpuinfo), {});
  EXPECT_EQ(products_here().bf16, text.find(" avx512_bf16") != std::string::npos);
  EXPECT_EQ(products_here().fp16, text.find(" avx512_fp16") != std::string::npos);
#endif
}

TEST(Gpt2, sixteen_bit_products_equal_those_of_wide_ones_rounded) {
  at::manual_seed(4);
  const auto x = at::randn({7, 12}), weight = at::randn({12, 5}), bias = at::randn({5}), grad = at::randn({7, 5});
  for (auto dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> ours, plain;
    for (const auto& tensor : {x, weight, bias}) {
      ours.push_back(tensor.to(dtype).detach().clone().requires_grad_());
      plain.push_back(ours.back().detach().to(at::kDouble).requires_grad_());
    }
    const auto y = fast.affine(ours[0], ours[1], ours[2]);
    EXPECT_EQ(y.scalar_type(), dtype);
    y.backward(grad.to(dtype));
    at::addmm(plain[2], plain[0], plain[1]).backward(grad.to(dtype).to(at::kDouble));
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(ours[i].grad().to(at::kDouble), plain[i].grad(), dtype == at::kDouble ? 1e-12 : 1e-2, 1e-2))
          << dtype << i;
  }
}

TEST(Gpt2, the_tied_weight_gets_one_dense_gradient) {
  auto model = load_model(kTiny).model;
  loss_of(model).backward();
  EXPECT_FALSE(model->named_parameters()["transformer.wte.weight"].grad().is_sparse());
}

TEST(Gpt2, the_gradients_of_query_key_and_value_are_put_together_once) {
  auto model = load_model(kTiny).model;
  std::map<std::string, int> nodes;
  std::set<torch::autograd::Node*> seen;
  const auto loss = loss_of(model);
  std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (!node || !seen.insert(node).second) continue;
    ++nodes[node->name()];
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  EXPECT_EQ(nodes["UnbindBackward0"], model->options().layers);
  EXPECT_EQ(nodes["SelectBackward0"], 0) << "each would add a tensor of all three";
}

TEST(Gpt2, a_saved_model_loads_as_it_was) {
  auto loaded = load_model(kTiny);
  const auto folder = (fs::temp_directory_path() / ("gannet-gpt2-saved-" + std::to_string(::getpid()))).string();
  gannet::NamedTensors parameters;
  for (const auto& item : loaded.model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  save_model(folder, loaded.model->options(), loaded.config_json, parameters);
  auto again = load_model(folder);
  for (const auto& item : again.model->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), loaded.model->named_parameters()[item.key()])) << item.key();
  EXPECT_EQ(again.config_json, loaded.config_json) << "keys that this program does not use are kept";
  fs::remove_all(folder);
}

TEST(Gpt2, older_names_shards_and_masks_are_understood) {
  Folder folder;
  auto tensors = gannet::load_safetensors(folder.file("model.safetensors"));
  gannet::NamedTensors first, second;
  nlohmann::json map;
  for (const auto& [name, tensor] : tensors) {
    const auto old = name.substr(std::string("transformer.").size());
    (first.size() < 5 ? first : second).emplace_back(old, tensor);
    map["weight_map"][old] = first.size() < 5 ? "a.safetensors" : "b.safetensors";
  }
  second.emplace_back("h.0.attn.bias", at::ones({1, 1, 64, 64}));
  second.emplace_back("lm_head.weight", tensors.at("transformer.wte.weight"));
  gannet::save_safetensors(folder.file("a.safetensors"), first);
  gannet::save_safetensors(folder.file("b.safetensors"), second);
  map["weight_map"]["h.0.attn.bias"] = "b.safetensors";
  map["weight_map"]["h.0.ln_1.bias"] = "a.safetensors";
  std::ofstream(folder.file("model.safetensors.index.json")) << map;
  fs::remove(folder.file("model.safetensors"));
  auto model = load_model(folder.path()).model;
  expect_near_relative(loss_of(model).item<double>(), expected()["loss"], 1e-6, "loss");
}

TEST(Gpt2, tensors_that_do_not_fit_the_config_are_listed) {
  Folder folder;
  folder.change([](auto& tensors) {
    tensors.erase("transformer.h.0.ln_1.weight");
    tensors["transformer.h.2.ln_1.weight"] = at::ones({32});
    tensors["transformer.wpe.weight"] = at::ones({32, 64});
  });
  const auto text = error_of([&] { load_model(folder.path()); }, gannet::ErrorCode::kMismatch);
  EXPECT_THAT(text, HasSubstr(folder.path()));
  EXPECT_THAT(text, HasSubstr("missing: transformer.h.0.ln_1.weight [32]"));
  EXPECT_THAT(text, HasSubstr("unexpected: transformer.h.2.ln_1.weight [32]"));
  EXPECT_THAT(text, HasSubstr("shape: transformer.wpe.weight is [32, 64] in the file, [64, 32] by config.json"));
  folder.set("n_layer", 5);
  EXPECT_THAT(error_of([&] { load_model(folder.path()); }, gannet::ErrorCode::kMismatch), HasSubstr("more"));
}

TEST(Gpt2, a_config_that_asks_for_something_else_is_refused) {
  const auto with = [](const std::string& key, const nlohmann::json& value, gannet::ErrorCode code) {
    Folder folder;
    folder.set(key, value);
    return error_of([&] { load_model(folder.path()); }, code);
  };
  EXPECT_THAT(with("model_type", "llama", gannet::ErrorCode::kUnsupported), HasSubstr("model_type is 'llama'"));
  EXPECT_THAT(with("activation_function", "swish", gannet::ErrorCode::kUnsupported), HasSubstr("'swish'"));
  EXPECT_THAT(with("tie_word_embeddings", false, gannet::ErrorCode::kUnsupported), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(with("n_layer", "two", gannet::ErrorCode::kCorrupt), HasSubstr("n_layer is \"two\""));
  EXPECT_THAT(with("n_head", 5, gannet::ErrorCode::kArgument), HasSubstr("width of 32 cannot be divided among 5 heads"));
  EXPECT_THAT(with("n_positions", 0, gannet::ErrorCode::kArgument), HasSubstr("positions is 0"));
  EXPECT_THAT(error_of([] { load_model("/nowhere"); }, gannet::ErrorCode::kNotFound), HasSubstr("/nowhere/config.json"));
}

TEST(Gpt2, a_sequence_longer_than_the_positions_is_refused) {
  auto model = load_model(kTiny).model;
  const auto long_one = at::zeros({1, 65}, at::kLong);
  EXPECT_THAT(error_of([&] { model->forward(long_one, long_one); }, gannet::ErrorCode::kArgument),
              HasSubstr("65 tokens in a model of 64 positions"));
}

}  // namespace
}  // namespace gpt2
