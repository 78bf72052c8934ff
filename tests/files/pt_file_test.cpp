// Files of the real torch.save, in both formats and all protocols, against what Python says is in them.
#include "files/pt_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <nlohmann/json.hpp>

#include "files/support.h"

namespace gannet::files {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using ObjectKind = Object::Kind;

const json& expected() {
  static const auto* all = new json(json::parse(read_text(data("expected.json"))));
  return *all;
}

std::string bits(const at::Tensor& tensor) {
  std::string text;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", bytes[i]);
    text += hex;
  }
  return text;
}

// A key as Python's str() has it.
std::string key_text(const Object& key) { return key.kind == ObjectKind::kInt ? std::to_string(key.integer) : key.text; }

void expect_same(const PtFile& file, const Object& found, const json& wanted, const std::string& where) {
  SCOPED_TRACE(where);
  if (wanted.contains("bits")) {
    ASSERT_EQ(found.kind, ObjectKind::kTensor);
    EXPECT_EQ(found.tensor.sizes, wanted["shape"].get<std::vector<int64_t>>());
    const at::Tensor values = file.read(found.tensor);
    EXPECT_TRUE(values.is_contiguous());
    EXPECT_EQ(bits(values), wanted["bits"]) << c10::toString(values.scalar_type());
  } else if (wanted.contains("dict")) {
    ASSERT_EQ(found.kind, ObjectKind::kDict);
    ASSERT_EQ(found.entries.size(), wanted["dict"].size());
    for (size_t i = 0; i < found.entries.size(); ++i) {
      EXPECT_EQ(key_text(*found.entries[i].first), wanted["dict"][i][0]);
      expect_same(file, *found.entries[i].second, wanted["dict"][i][1], where + "/" + key_text(*found.entries[i].first));
    }
  } else if (wanted.contains("sequence") && found.kind != ObjectKind::kRecord) {
    ASSERT_TRUE(found.kind == ObjectKind::kList || found.kind == ObjectKind::kTuple);
    ASSERT_EQ(found.items.size(), wanted["sequence"].size());
    for (size_t i = 0; i < found.items.size(); ++i)
      expect_same(file, *found.items[i], wanted["sequence"][i], where + "/" + std::to_string(i));
  } else if (wanted.contains("value") && found.kind != ObjectKind::kRecord) {
    const json& value = wanted["value"];
    if (value.is_null()) EXPECT_EQ(found.kind, ObjectKind::kNone);
    if (value.is_boolean()) EXPECT_TRUE(found.kind == ObjectKind::kBool && found.boolean == value);
    if (value.is_number_integer()) EXPECT_TRUE(found.kind == ObjectKind::kInt && found.integer == value.get<int64_t>()) << value;
    if (value.is_number_float()) EXPECT_TRUE(found.kind == ObjectKind::kNumber && found.number == value);
    if (value.is_string()) EXPECT_TRUE(found.kind == ObjectKind::kString && found.text == value);
  }
}

class EveryFile : public testing::TestWithParam<std::string> {};

TEST_P(EveryFile, reads_as_python_wrote_it) {
  const std::string name = GetParam();
  const PtFile file = PtFile::open(data(name + ".pt"));
  std::string what = name.substr(0, name.find("_legacy"));
  expect_same(file, file.root(), expected().at(what.substr(0, what.find("_protocol"))), name);
}

INSTANTIATE_TEST_SUITE_P(PtFile, EveryFile,
                         testing::Values("dtypes", "dtypes_legacy", "views", "views_legacy", "nested_protocol2",
                                         "nested_protocol2_legacy", "nested_protocol3", "nested_protocol3_legacy",
                                         "nested_protocol4", "nested_protocol4_legacy", "nested_protocol5",
                                         "nested_protocol5_legacy", "attributes"),
                         [](const auto& info) { return info.param; });

TEST(PtFile, a_dtype_is_the_one_that_python_names) {
  const PtFile file = PtFile::open(data("dtypes.pt"));
  const std::map<std::string, at::ScalarType> names = {{"float64", at::kDouble},
                                                       {"bfloat16", at::kBFloat16},
                                                       {"bool", at::kBool},
                                                       {"complex64", at::kComplexFloat},
                                                       {"uint16", at::kUInt16},
                                                       {"float8_e5m2", at::kFloat8_e5m2},
                                                       {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                       {"complex32", at::kComplexHalf}};
  for (const auto& [name, dtype] : names) EXPECT_EQ(file.root().find(name)->tensor.dtype, dtype) << name;
}

TEST(PtFile, tied_tensors_name_one_storage_and_parameters_say_so) {
  const PtFile file = PtFile::open(data("nested_protocol2.pt"));
  const Object& state = *file.root().find("module");
  EXPECT_EQ(state.find("wte.weight")->tensor.storage, state.find("lm_head.weight")->tensor.storage);
  EXPECT_NE(state.find("wte.weight")->tensor.storage, state.find("norm.bias")->tensor.storage);
  EXPECT_TRUE(state.find("wte.weight")->tensor.is_parameter);
  EXPECT_TRUE(state.find("wte.weight")->tensor.requires_grad);
  EXPECT_FALSE(state.find("norm.bias")->tensor.is_parameter);
}

TEST(PtFile, what_no_kind_of_value_holds_becomes_a_record_or_bytes) {
  const PtFile file = PtFile::open(data("nested_protocol4.pt"));
  const Object& root = file.root();
  EXPECT_EQ(root.find("seed")->text, "builtins.int");
  EXPECT_EQ(root.find("seed")->items.at(0)->text, std::string("\0\0\0\0\0\0\0\x80\0", 9));
  EXPECT_EQ(root.find("dtype")->text, "torch.bfloat16");
  EXPECT_EQ(root.find("device")->text, "torch.device");
  EXPECT_EQ(root.find("device")->items.at(1)->integer, 1);
  EXPECT_EQ(root.find("set")->kind, ObjectKind::kSet);
  for (const int protocol : {2, 3, 5}) {
    const PtFile other = PtFile::open(data("nested_protocol" + std::to_string(protocol) + ".pt"));
    EXPECT_EQ(other.root().find("bytes")->kind, ObjectKind::kBytes);
    EXPECT_EQ(other.root().find("bytes")->text, std::string("\0\xff raw", 6)) << protocol;
  }
}

TEST(PtFile, objects_of_deepspeed_are_records_with_their_attributes) {
  const PtFile file = PtFile::open(data("deepspeed.pt"));
  const Object& state = *file.root().find("optimizer_state_dict");
  const Object& scaler = *state.find("loss_scaler");
  EXPECT_EQ(scaler.kind, ObjectKind::kRecord);
  EXPECT_EQ(scaler.text, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler");
  EXPECT_EQ(scaler.find("cur_scale")->number, 65536);
  EXPECT_EQ(scaler.find("dtype")->text, "torch.float16");
  const Object& fragment = *state.find("param_slice_mappings")->items.at(0)->find("w");
  EXPECT_EQ(fragment.text, "deepspeed.utils.tensor_fragment.fragment_address");
  EXPECT_EQ(fragment.items.at(0)->integer, 6);
  EXPECT_EQ(state.find("zero_stage")->items.at(0)->integer, 3);
  EXPECT_EQ(state.find("slotted")->find("numel")->integer, 4);
}

TEST(PtFile, any_range_of_any_tensor_is_what_the_whole_holds_there) {
  for (const std::string name : {"views.pt", "views_legacy.pt"}) {
    const PtFile file = PtFile::open(data(name));
    for (const auto& [key, object] : file.root().entries) {
      const at::Tensor whole = file.read(object->tensor).flatten();
      for (int64_t begin = 0; begin <= whole.numel(); ++begin)
        for (int64_t end = begin; end <= whole.numel(); end += 1 + (end - begin) / 4) {
          const at::Tensor into = at::empty({end - begin}, whole.scalar_type());
          file.read(object->tensor, begin, into);
          ASSERT_TRUE(at::equal(into, whole.slice(0, begin, end))) << key << " " << begin << " " << end;
        }
    }
  }
}

TEST(PtFile, a_range_outside_of_the_tensor_or_another_dtype_is_refused) {
  const PtFile file = PtFile::open(data("views.pt"));
  const StoredTensor& whole = file.root().find("whole")->tensor;
  error_of(ErrorCode::kArgument, [&] { file.read(whole, 20, at::empty({5})); });
  error_of(ErrorCode::kArgument, [&] { file.read(whole, -1, at::empty({5})); });
  error_of(ErrorCode::kArgument, [&] { file.read(whole, 0, at::empty({5}, at::kDouble)); });
}

TEST(PtFile, what_may_not_be_read_is_named_with_the_next_step) {
  // Next to a tensor, in the position of a weight.
  const std::map<std::string, std::string> reasons = {
      {"quantised", "dequantize()"},
      {"conjugate", "resolve_conj()"},
  };
  for (const auto& [name, reason] : reasons) {
    const std::string message = error_of(ErrorCode::kUnsupported, [&] { PtFile::open(data("refused_" + name + ".pt")); });
    EXPECT_THAT(message, HasSubstr(reason)) << name;
    EXPECT_THAT(message, HasSubstr("refused_" + name + ".pt")) << name;
  }
}

TEST(PtFile, objects_of_other_classes_are_records_of_their_names) {
  const std::map<std::string, std::string> classes = {
      {"system", "posix.system"},
      {"eval", "builtins.eval"},
      {"load", "torch.serialization.load"},
      {"from_bytes", "torch.storage._load_from_bytes"},
      {"meta", "torch._utils._rebuild_meta_tensor_no_storage"},
      {"sparse", "torch._utils._rebuild_sparse_tensor"},
      {"module", "torch.nn.modules.linear.Linear"},
  };
  for (const auto& [name, type] : classes) {
    const PtFile file = PtFile::open(data("refused_" + name + ".pt"));
    const Object* value = file.root().find("value");
    ASSERT_TRUE(value && value->kind == Object::Kind::kRecord) << name;
    EXPECT_EQ(value->text, type);
  }
}

}  // namespace
}  // namespace gannet::files
