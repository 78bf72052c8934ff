#include <ATen/ATen.h>
#include <gannet/error.h>
#include <gannet/safetensors.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace gannet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "a.safetensors") const { return (folder_ / name).string(); }

  // A file from its three parts; the length as the header's own unless given.
  std::string file_of(const std::string& header, size_t data_bytes, std::optional<uint64_t> length = {}) const {
    std::ofstream out(path(), std::ios::binary);
    const uint64_t bytes = length.value_or(header.size());
    out.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    out << header << std::string(data_bytes, '\1');
    return path();
  }

  void expect_corrupt(const std::string& file, const std::string& reason) const {
    try {
      load_safetensors(file);
      ADD_FAILURE() << "loaded, expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(reason));
      EXPECT_THAT(error.what(), HasSubstr(file));
    }
  }

  fs::path folder_ = fs::temp_directory_path() / ("gannet-safetensors-" + std::to_string(::getpid()));
};

TEST_F(Safetensors, every_dtype_comes_back_bit_for_bit) {
  NamedTensors tensors;
  for (auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool})
    tensors.emplace_back(std::string("of ") + c10::toString(dtype), at::randn({3, 5}).mul(50).to(dtype));
  tensors.emplace_back("scalar", at::scalar_tensor(3.5));
  tensors.emplace_back("empty", at::empty({0, 7}));
  save_safetensors(path(), tensors, {{"format", "pt"}});

  std::map<std::string, std::string> metadata;
  auto loaded = load_safetensors(path(), &metadata);
  ASSERT_EQ(loaded.size(), tensors.size());
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(loaded.count(name)) << name;
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(loaded.at(name), tensor)) << name;
  }
}

TEST_F(Safetensors, strided_tensors_are_written_as_their_values) {
  auto matrix = at::arange(12, at::kFloat).view({3, 4});
  save_safetensors(path(), {{"t", matrix.t()}, {"column", matrix.select(1, 2)}});
  auto loaded = load_safetensors(path());
  EXPECT_TRUE(at::equal(loaded.at("t"), matrix.t()));
  EXPECT_TRUE(at::equal(loaded.at("column"), matrix.select(1, 2)));
}

TEST_F(Safetensors, data_begins_at_a_multiple_of_eight_bytes) {
  save_safetensors(path(), {{"odd", at::zeros({3}, at::kByte)}, {"wide", at::zeros({1}, at::kDouble)}});
  std::ifstream in(path(), std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  std::string header(length, '\0');
  in.read(header.data(), length);
  EXPECT_THAT(header, HasSubstr(R"("wide":{"dtype":"F64","shape":[1],"data_offsets":[0,8]})"))
      << "wider elements first: all are aligned";
}

TEST_F(Safetensors, every_lie_of_the_header_is_named) {
  const auto tensor = [](const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string good = tensor("a", "F32", "[2]", "[0,8]");
  EXPECT_EQ(load_safetensors(file_of("{" + good + "}", 8)).size(), 1u);

  std::ofstream(path()) << "abc";
  expect_corrupt(path(), "a file of 3 bytes has no room for a header");
  expect_corrupt(file_of("{}", 0, 1000), "header claims 1000 bytes, the file has 10");
  expect_corrupt(file_of("{}", 0, 100'000'001), "header claims 100000001 bytes, the format allows 100000000");
  expect_corrupt(file_of("{}", 0, UINT64_MAX), "header claims 18446744073709551615 bytes");
  expect_corrupt(file_of("{\"a\":", 8), "the header is not JSON");
  expect_corrupt(file_of(std::string("\xff\xfe{}"), 8), "the header is not JSON");
  expect_corrupt(file_of("[]", 0), "not a JSON object");
  expect_corrupt(file_of("{" + good + "," + good + "}", 8), "names 'a' twice");
  expect_corrupt(file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
                 "names 'dtype' twice");
  expect_corrupt(file_of("{\"a\":3}", 8), "tensor 'a' has no dtype");
  expect_corrupt(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "tensor 'a' has no data_offsets");
  expect_corrupt(file_of("{" + tensor("a", "F31", "[2]", "[0,8]") + "}", 8), "tensor 'a' has dtype \"F31\"");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8), "shape is not a list of sizes: [-2]");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8), "shape is not a list of sizes");
  expect_corrupt(file_of("{" + tensor("a", "F32", "\"2\"", "[0,8]") + "}", 8), "shape is not a list of sizes");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8), "takes 12 bytes, its data_offsets span 8");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", 8), "larger than any memory");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8), "not [begin, end]");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[2]", "[0,4,8]") + "}", 8), "not [begin, end]");
  expect_corrupt(file_of("{" + tensor("a", "F32", "[4]", "[0,16]") + "}", 8), "ends at byte 16 of the data, the file has 8");
  expect_corrupt(file_of("{" + good + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12), "tensor 'b' begins at byte 4");
  expect_corrupt(file_of("{" + good + "," + tensor("b", "F32", "[2]", "[0,8]") + "}", 8), "they overlap");
  expect_corrupt(file_of("{" + good + "," + tensor("b", "F32", "[2]", "[12,20]") + "}", 20), "a gap");
  expect_corrupt(file_of("{" + good + "}", 12), "its tensors end at byte 8 of the data, the file has 12");
  expect_corrupt(file_of("{\"__metadata__\":{\"a\":1}," + good + "}", 8), "__metadata__ 'a' is not a text");
}

TEST_F(Safetensors, a_file_cut_short_anywhere_is_never_loaded) {
  save_safetensors(path(), {{"a", at::randn({3})}, {"b", at::randn({2, 2})}});
  for (auto bytes = fs::file_size(path()); bytes-- > 0;) {
    fs::resize_file(path(), bytes);
    EXPECT_THROW(load_safetensors(path()), Error) << bytes << " bytes";
  }
}

TEST_F(Safetensors, a_missing_file_and_a_folder_are_told_apart) {
  try {
    load_safetensors(path("missing"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("missing: No such file or directory"));
  }
  EXPECT_THROW(load_safetensors(folder_.string()), Error);
}

TEST_F(Safetensors, a_failed_write_names_its_reason_and_keeps_the_old_file) {
  save_safetensors(path(), {{"a", at::ones({4})}});
  // A limit on file sizes simulates a full disk: write() fails half-way.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    save_safetensors(path(), {{"a", at::zeros({100'000})}});
    ADD_FAILURE() << "was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("File too large"));
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_TRUE(at::equal(load_safetensors(path()).at("a"), at::ones({4})));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "a temporary file was left behind";
}

TEST_F(Safetensors, what_the_format_cannot_hold_is_refused_before_anything_is_written) {
  EXPECT_THROW(save_safetensors(path(), {{"a", at::ones({1})}, {"a", at::ones({1})}}), Error);
  EXPECT_THROW(save_safetensors(path(), {{"z", at::zeros({1}, at::kComplexFloat)}}), Error);
  EXPECT_THROW(save_safetensors(path(), {{"nothing", at::Tensor()}}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace gannet
