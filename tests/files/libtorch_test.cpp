// Files of LibTorch's torch::save in C++: parameters are read from its data, and none of its code
// is run or even unpacked.
#include <ATen/ATen.h>
#include <gannet/checkpoint.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include "files/pt_file.h"
#include "files/state_dict.h"
#include "files/support.h"
#include "files/weight_files.h"

namespace gannet::files {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Pair : torch::nn::Module {
  Pair() {
    first = register_module("first", torch::nn::Linear(3, 2));
    second = register_module("second", torch::nn::Linear(2, 2));
    scale = register_buffer("scale", at::randn({3}));
  }
  torch::nn::Linear first = nullptr, second = nullptr;
  torch::Tensor scale;
};

class LibTorchFiles : public FolderTest {};

TEST_F(LibTorchFiles, a_module_is_loaded_by_name) {
  const auto saved = std::make_shared<Pair>(), loaded = std::make_shared<Pair>();
  torch::save(saved, file("module.pt"));
  EXPECT_EQ(load_weights(*loaded, file("module.pt")), 5);
  for (const auto& entry : saved->named_parameters())
    EXPECT_TRUE(at::equal(entry.value(), loaded->named_parameters()[entry.key()])) << entry.key();
  EXPECT_TRUE(at::equal(saved->scale, loaded->scale));
}

TEST_F(LibTorchFiles, a_vector_and_a_tensor_are_read_under_their_numbers) {
  const std::vector<torch::Tensor> tensors = {at::randn({2, 3}), at::arange(4)};
  torch::save(tensors, file("vector.pt"));
  StateDict vector;
  add_state_dict(file("vector.pt"), vector);
  ASSERT_EQ(vector.order, (std::vector<std::string>{"0", "1"}));
  for (size_t i = 0; i < 2; ++i) {
    const auto& tensor = vector.tensors.at(std::to_string(i));
    EXPECT_TRUE(at::equal(tensor.file->read(tensor.stored), tensors[i]));
  }
  torch::save(tensors[0], file("tensor.pt"));
  EXPECT_EQ(open_weight_files(file("tensor.pt")).tensors.size(), 1u);
}

TEST_F(LibTorchFiles, an_archive_in_archives_is_read_by_dotted_names) {
  torch::serialize::OutputArchive all, inner;
  inner.write("w", at::ones({2}));
  inner.write("count", c10::IValue(int64_t{3}));
  all.write("net", inner);
  all.write("epoch", c10::IValue(int64_t{7}));
  all.save_to(file("archive.pt"));
  const WeightFiles weights = open_weight_files(file("archive.pt"));
  ASSERT_EQ(weights.tensors.size(), 1u);
  EXPECT_EQ(weights.tensors[0].name, "net.w");
  EXPECT_EQ(weights.not_tensors, 2u);
}

TEST_F(LibTorchFiles, a_dict_of_pickle_save_is_read_by_its_keys) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a.weight", at::randn({2, 3}));
  const std::vector<char> bytes = torch::pickle_save(dict);
  write_text(file("dict.pt"), {bytes.begin(), bytes.end()});
  const WeightFiles weights = open_weight_files(file("dict.pt"));
  ASSERT_EQ(weights.tensors.size(), 1u);
  at::Tensor read = at::empty({2, 3});
  weights.tensors[0].bytes->copy_out(0, read.nbytes(), static_cast<char*>(read.data_ptr()));
  EXPECT_TRUE(at::equal(read, dict.at("a.weight")));
}

TEST_F(LibTorchFiles, what_holds_no_weights_is_told_with_the_lines_that_help) {
  Pair net;
  torch::optim::Adam adam(net.parameters(), 1e-3);
  for (const auto& parameter : net.parameters()) parameter.mutable_grad() = at::ones_like(parameter);
  adam.step();
  torch::save(adam, file("optimizer.pt"));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { load_weights(net, file("optimizer.pt")); }),
              HasSubstr("it is an optimizer"));
  torch::serialize::OutputArchive empty;
  empty.write("epoch", c10::IValue(int64_t{7}));
  empty.save_to(file("empty.pt"));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { load_weights(net, file("empty.pt")); }),
              AllOf(HasSubstr("holds no weights"), HasSubstr("torch::load(module"), HasSubstr("gannet::save_weights(*module")));
}

TEST_F(LibTorchFiles, compressed_code_is_no_obstacle) {
  const WeightFiles weights = open_weight_files(data("libtorch_module.pt"));  // its code/__torch__.py is deflated
  std::vector<std::string> names;
  for (const auto& tensor : weights.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"}));
  EXPECT_EQ(open_weight_files(data("libtorch_vector.pt")).tensors.size(), 2u);
}

}  // namespace
}  // namespace gannet::files
