// Written tensors read back with equal bits. (check_with_torch.py asks PyTorch itself.)
#include "files/pt_writer.h"

#include <ATen/ATen.h>

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
