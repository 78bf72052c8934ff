// Written tensors read back with equal bits. (check_with_torch.py asks PyTorch itself.)
#include "files/pt_writer.h"

#include <ATen/ATen.h>

#include "files/node.h"
#include "files/pickle_writer.h"
#include "files/pt_contents.h"
#include "files/pt_file.h"
#include "files/support.h"
#include "files/zip_directory.h"

namespace gannet::files {
namespace {

using testing::HasSubstr;
using Kind = Object::Kind;

class Writer : public FolderTest {
 protected:
  std::string path() const { return file("it.pt"); }
};

// Tensors of a dtype that has no equal(): as bytes.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

TEST_F(Writer, every_dtype_reads_back_with_equal_bits) {
  const at::Tensor raw = at::arange(48, at::kByte);
  NamedTensors tensors = {{"bool", raw.remainder(3).eq(0)}};
  for (const auto dtype : {at::kDouble,
                           at::kFloat,
                           at::kHalf,
                           at::kBFloat16,
                           at::kLong,
                           at::kInt,
                           at::kShort,
                           at::kChar,
                           at::kByte,
                           at::kComplexDouble,
                           at::kComplexFloat,
                           at::kComplexHalf,
                           at::kUInt16,
                           at::kUInt32,
                           at::kUInt64,
                           at::kFloat8_e4m3fn,
                           at::kFloat8_e4m3fnuz,
                           at::kFloat8_e5m2,
                           at::kFloat8_e5m2fnuz,
                           at::kFloat8_e8m0fnu})
    tensors.emplace_back(c10::toString(dtype), raw.view(dtype));
  save_pt(path(), tensors);
  const PtFile read = PtFile::open(path());
  ASSERT_EQ(read.root().entries.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(same_bits(read.read(read.root().find(name)->tensor), tensor)) << name;
}

TEST_F(Writer, shapes_strides_and_the_order_of_names_stay) {
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const NamedTensors tensors = {{"z", base.t()},
                                {"scalar", at::full({}, 7, at::kLong)},
                                {"empty", at::empty({3, 0})},
                                {"a \u00e9", base.slice(1, 1, 6, 2)},
                                {"conj", at::complex(base, base).conj()},
                                {"expanded", base[0].expand({3, 6})}};
  save_pt(path(), tensors);
  const PtFile read = PtFile::open(path());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read.root().entries[i].first->text, tensors[i].first);
    EXPECT_TRUE(same_bits(read.read(read.root().entries[i].second->tensor), tensors[i].second.resolve_conj()))
        << tensors[i].first;
  }
}

TEST_F(Writer, tied_tensors_are_stored_once_and_other_views_are_not_tied) {
  const at::Tensor base = at::randn({1000});
  save_pt(path(), {{"a", base}, {"b", base}, {"part", base.slice(0, 0, 500)}});
  const PtFile read = PtFile::open(path());
  EXPECT_EQ(read.root().find("a")->tensor.storage, read.root().find("b")->tensor.storage);
  EXPECT_NE(read.root().find("a")->tensor.storage, read.root().find("part")->tensor.storage);
  EXPECT_LT(fs::file_size(path()), 8000u);
}

TEST_F(Writer, dicts_may_be_nested_and_are_written_one_tensor_after_the_other) {
  PtWriter writer(path(), {{{"module", "a"}, at::kFloat, {2}},
                           {{"step"}, at::kLong, {}},
                           {{"module", "b"}, at::kFloat, {2}},
                           {{"module", "tied"}, at::kFloat, {2, 1}, 0}});
  writer.write(at::ones({2}));
  error_of(ErrorCode::kArgument, [&] { writer.write(at::ones({2})); });
  error_of(ErrorCode::kOrder, [&] { writer.finish(); });
  writer.write(at::full({}, 5, at::kLong));
  writer.write(at::zeros({2}));
  error_of(ErrorCode::kOrder, [&] { writer.write(at::zeros({2})); });
  writer.finish();
  const PtFile read = PtFile::open(path());
  ASSERT_EQ(read.root().entries.size(), 2u);
  EXPECT_TRUE(same_bits(read.read(read.root().find("module")->find("tied")->tensor), at::ones({2, 1})));
  EXPECT_TRUE(same_bits(read.read(read.root().find("module")->find("b")->tensor), at::zeros({2})));
}

TEST_F(Writer, objects_of_any_form_read_back_as_they_were) {
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("numbers");
  pickle.begin_list();
  for (const int64_t number : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 40, INT64_MIN})
    pickle.integer(number);
  pickle.number(-2.5e-8);
  pickle.boolean(true);
  pickle.none();
  pickle.begin_tuple();
  pickle.end_tuple();
  pickle.end_list();
  pickle.text("object");
  pickle.begin_object("some.module", "Class");
  pickle.text("size");
  pickle.size({2, 3});
  pickle.text("stage");
  pickle.enumerator("some.module", "Stage", 2);
  pickle.text("set");
  pickle.empty_set();
  pickle.end_object();
  pickle.text("ordered");
  pickle.begin_ordered_dict();
  pickle.integer(7);
  pickle.tensor(at::kFloat, {2, 3}, "0");
  pickle.end_ordered_dict();
  pickle.end_dict();
  PtWriter writer(path(), {{{"tensor"}, at::kFloat, {2, 3}}}, pickle.finish());
  writer.write([](int64_t begin, const at::Tensor& into) { into.copy_(at::arange(begin, begin + into.numel(), at::kFloat)); });
  writer.finish();
  const Node root(std::make_shared<PtFile>(PtFile::open(path())));
  const auto items = root.at("numbers").items();
  ASSERT_EQ(items.size(), 10u);
  EXPECT_EQ(items[4].integer(), int64_t{1} << 40);
  EXPECT_EQ(items[5].integer(), INT64_MIN);
  EXPECT_EQ(items[6].number(), -2.5e-8);
  EXPECT_TRUE(items[7].boolean());
  EXPECT_TRUE(items[8].is_none());
  EXPECT_TRUE(items[9].items().empty());
  EXPECT_EQ(root.at("object").object().text, "some.module.Class");
  EXPECT_EQ(root.at("object").at("size").shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(root.at("object").at("stage").integer(), 2);
  EXPECT_EQ(root.at("object").at("set").object().kind, Kind::kSet);
  const auto [key, tensor] = root.at("ordered").entries()[0];
  EXPECT_EQ(key, "7");
  EXPECT_TRUE(same_bits(root.file()->read(tensor.tensor()), at::arange(6, at::kFloat).view({2, 3})));
}

// 80 MiB: more than one part of 64.
TEST_F(Writer, a_tensor_may_be_written_in_parts) {
  constexpr int64_t kNumel = 20 << 20;
  PickleWriter pickle;
  pickle.tensor(at::kInt, {kNumel}, "0");
  PtWriter writer(path(), {{{"tensor"}, at::kInt, {kNumel}}}, pickle.finish());
  int parts = 0;
  writer.write([&](int64_t begin, const at::Tensor& into) {
    ++parts;
    into.copy_(at::arange(begin, begin + into.numel(), at::kInt));
  });
  error_of(ErrorCode::kOrder, [&] { writer.write([](int64_t, const at::Tensor&) {}); });
  writer.finish();
  EXPECT_EQ(parts, 2);
  const PtFile read = PtFile::open(path());
  EXPECT_TRUE(same_bits(read.read(read.root().tensor), at::arange(kNumel, at::kInt)));
  const auto bytes = open_bytes(path());
  const ZipDirectory zip(*bytes);
  check_crc(*bytes, *zip.find("archive/data/0"));
}

TEST_F(Writer, contents_begin_at_multiples_of_64_with_their_checksums) {
  save_pt(path(), {{"a", at::randn({3})}, {"b", at::randn({100})}});
  const auto bytes = open_bytes(path());
  const ZipDirectory zip(*bytes);
  EXPECT_NE(zip.find("archive/version"), nullptr);
  EXPECT_EQ(read_entry(*bytes, *zip.find("archive/byteorder"), 100), "little");
  for (const ZipEntry& entry : zip.entries()) {
    EXPECT_EQ(entry.offset % 64, 0u) << entry.name;
    check_crc(*bytes, entry);
  }
}

TEST_F(Writer, a_failure_leaves_the_old_file_and_nothing_else) {
  save_pt(path(), {{"a", at::ones({2})}});
  const std::string before = read_text(path());
  error_of(ErrorCode::kArgument, [&] { save_pt(path(), {{"a", at::ones({2})}, {"a", at::zeros({2})}}); });
  error_of(ErrorCode::kUnsupported, [&] { save_pt(path(), {{"a", at::empty({2}, at::kBits8)}}); });
  error_of(ErrorCode::kArgument, [&] { save_pt(path(), {{"a", at::Tensor()}}); });
  EXPECT_EQ(read_text(path()), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { save_pt(file("none/it.pt"), {{"a", at::ones({2})}}); }),
              HasSubstr("none/it.pt"));
}

}  // namespace
}  // namespace gannet::files
