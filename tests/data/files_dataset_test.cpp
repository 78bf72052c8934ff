// Samples from files: folders of .npy, safetensors, tokens, and files that are damaged, of other kinds, or shortened meanwhile.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <gannet/data.h>
#include <gannet/error.h>
#include <gannet/files_dataset.h>
#include <gannet/safetensors.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "plugin/support.h"

namespace gannet::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file as numpy.save writes it: the header ends at a multiple of 64 bytes. `version`: 1, 2 or 3.
std::string npy(const std::string& type, const std::string& shape, const std::string& data, bool is_fortran = false,
                char version = 1) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + (is_fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
  const size_t before = version == 1 ? 10 : 12;
  header.append(63 - (before + header.size()) % 64, ' ').push_back('\n');
  std::string bytes = "\x93NUMPY";
  bytes.push_back(version);
  bytes.push_back('\0');
  const auto length = static_cast<uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return bytes + header + data;
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
const std::string kSixLongs = bytes_of<int64_t>({0, 1, 2, 3, 4, 5});

class Files : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    write_file(folder_ / name, bytes);
    return (folder_ / name).string();
  }
  Error error_of_data(const std::string& path, int64_t length = 0) {
    return error_of([&] { FilesDataset data(path, {.sequence_length = length}); });
  }
  const TemporaryFolder folder_;
};

TEST_F(Files, AFolderHasAnInputInEachFileAndASampleInEachRow) {
  write("ids.npy", npy("<i8", "(3, 2)", kSixLongs));
  write("mask.npy", npy("|b1", "(3, 2)", std::string("\1\0\1\1\0\1", 6), false, 2));
  write("weight.npy", npy("<f4", "(3,)", bytes_of<float>({.5f, 1.5f, 2.5f}), true, 3));
  write("notes.txt", "not an input");
  const FilesDataset data(folder_.string());
  EXPECT_THAT(data.names(), ElementsAre("ids", "mask", "weight"));
  ASSERT_EQ(data.size(), 3);
  const NamedBatch sample = data.get(1);
  EXPECT_TRUE(at::equal(sample.at("ids"), at::arange(2, 4)));
  EXPECT_EQ(sample.at("mask").scalar_type(), at::kBool);
  EXPECT_EQ(sample.at("weight").dim(), 0);
  EXPECT_EQ(sample.at("weight").item<float>(), 1.5f);
}

TEST_F(Files, ALoaderStacksSamplesByName) {
  write("ids.npy", npy("<i8", "(3, 2)", kSixLongs));
  write("label.npy", npy("<i2", "(3,)", bytes_of<int16_t>({7, 8, 9})));
  const auto data = std::make_shared<FilesDataset>(folder_.string());
  const auto loader = make_loader<NamedBatch>(Dataset<NamedBatch>(data), Collate<NamedBatch>(stack_named),
                                              {.batch_size = 2, .shuffle = false, .workers = 2});
  std::vector<std::vector<int64_t>> shapes;
  for (NamedBatch& batch : *loader) {
    shapes.push_back(batch.at("ids").sizes().vec());
    EXPECT_EQ(batch.at("label")[0].item<int16_t>(), 7 + batch.at("ids")[0][0].item<int64_t>() / 2);
  }
  EXPECT_THAT(shapes, ElementsAre(ElementsAre(2, 2), ElementsAre(1, 2)));
}

TEST_F(Files, TokensAreCutToSamplesThatAreTheirOwnLabels) {
  const std::vector<uint16_t> tokens{1, 2, 3, 4, 65535, 6, 7};
  for (const std::string& path :
       {write("tokens.bin", bytes_of(tokens)), write("tokens.npy", npy("<u2", "(7,)", bytes_of(tokens)))}) {
    const FilesDataset data(path, {.sequence_length = 3});
    ASSERT_EQ(data.size(), 2);  // the seventh does not fill a sample
    const NamedBatch sample = data.get(1);
    EXPECT_EQ(sample.at("input_ids").scalar_type(), at::kLong);
    EXPECT_EQ(sample.at("input_ids")[1].item<int64_t>(), 65535);
    EXPECT_TRUE(at::equal(sample.at("input_ids"), sample.at("labels")));
    EXPECT_THAT(error_of_data(path).message(), HasSubstr("the length of a sample is not given"));
    EXPECT_THAT(error_of_data(path, 8).message(), HasSubstr("fewer than one sample of 8"));
  }
}

TEST_F(Files, ASafetensorsFileHasATensorForEachInput) {
  const std::string path = (folder_ / "train.safetensors").string();
  save_safetensors(path, {{"x", at::arange(6).view({2, 3}).to(at::kFloat)}, {"y", at::arange(2)}});
  const FilesDataset data(path);
  EXPECT_EQ(data.size(), 2);
  EXPECT_TRUE(at::equal(data.get(1).at("x"), at::arange(3, 6).to(at::kFloat)));
  EXPECT_THAT(error_of_data(path, 4).message(), HasSubstr("is not a file of tokens"));
}

TEST_F(Files, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(error_of_data((folder_ / "none").string()).code(), ErrorCode::kNotFound);
  EXPECT_THAT(error_of_data(folder_.string()).message(), HasSubstr("has no .npy file"));
  EXPECT_THAT(error_of_data(write("data.csv", "1,2")).message(), HasSubstr("is none of the kinds of data"));
  EXPECT_THAT(error_of_data(write("odd.bin", "abc"), 1).message(), HasSubstr("3 bytes"));
  write("ids.npy", npy("<i8", "(3, 2)", kSixLongs));
  EXPECT_THAT(error_of_data((folder_ / "ids.npy").string(), 2).message(), HasSubstr("is not an array of tokens"));
  write("other.npy", npy("<i8", "(6,)", kSixLongs));
  EXPECT_THAT(error_of_data(folder_.string()).message(), HasSubstr("'ids' has 3 samples, and 'other' has 6"));
  write("other.npy", npy("<i8", "()", bytes_of<int64_t>({1})));
  EXPECT_THAT(error_of_data(folder_.string()).message(), HasSubstr("no dimension of samples"));
}

TEST_F(Files, ADamagedOrForeignArrayIsNamed) {
  const std::string whole = npy("<i8", "(3, 2)", kSixLongs);
  const auto message = [&](const std::string& bytes) {
    write("x.npy", bytes);
    return error_of_data(folder_.string()).message();
  };
  EXPECT_THAT(message(""), HasSubstr("x.npy"));
  EXPECT_THAT(message("\x93NUMPY\1"), HasSubstr("has no header"));
  EXPECT_THAT(message(whole.substr(0, 40)), HasSubstr("its header claims"));
  EXPECT_THAT(message(whole.substr(0, whole.size() - 1)), HasSubstr("its array has 48 bytes, the file holds 47"));
  EXPECT_THAT(message("PK\3\4 and so on"), HasSubstr("x.npy"));
  EXPECT_THAT(message(npy("<i8", "(3, 2)", kSixLongs, true)), HasSubstr("Fortran's order"));
  EXPECT_THAT(message(npy(">i8", "(3, 2)", kSixLongs)), HasSubstr("big-endian"));
  EXPECT_THAT(message(npy("|O", "(3, 2)", kSixLongs)), HasSubstr("for which there is no dtype"));
  EXPECT_THAT(message(npy("<i8", "(3, 99999999999999999999)", kSixLongs)), HasSubstr("a size that no memory has"));
  EXPECT_THAT(message(npy("<i8", "(4611686018427387904, 4)", kSixLongs)), HasSubstr("a size that no memory has"));
  EXPECT_THAT(message(npy("<i8", "3, 2", kSixLongs)), HasSubstr("its header has"));
}

TEST_F(Files, AFileThatBecomesShorterIsAnErrorAndEndsNothing) {
  const std::string path = write("x.npy", npy("<i8", "(3, 2)", kSixLongs));
  const FilesDataset data(folder_.string());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 16);
  EXPECT_EQ(data.get(1).at("x")[0].item<int64_t>(), 2);
  EXPECT_THAT(error_of([&] { data.get(2); }).message(), HasSubstr("became shorter"));
}

TEST_F(Files, SamplesWithOtherNamesAreNotStacked) {
  EXPECT_THAT(error_of([] { stack_named({{{"x", at::arange(1)}}, {{"y", at::arange(1)}}}); }).message(),
              HasSubstr("'x' is not in all"));
  EXPECT_TRUE(stack_named({}).empty());
}

}  // namespace
}  // namespace gannet::test
