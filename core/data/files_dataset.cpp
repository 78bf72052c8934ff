#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/files_dataset.h>
#include <gannet/safetensors.h>
#include <gannet/source.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "files/io.h"
#include "files/npy_file.h"

namespace gannet {
namespace {

// One input: its number of samples, and how one is read.
struct Column {
  int64_t samples = 0;
  std::function<at::Tensor(int64_t sample)> read;
};

Column column_of(std::shared_ptr<const files::NpyFile> file) {
  if (file->shape().empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no dimension of samples", file->path()), "save an array [samples, ...]");
  return {file->shape()[0], [file](int64_t sample) { return file->rows(sample, 1)[0]; }};
}

Column column_of(const at::Tensor& tensor, const std::string& name, const std::string& path) {
  if (tensor.dim() == 0)
    throw Error(ErrorCode::kArgument, formatted("{}: '{}' has no dimension of samples", path, name),
                "save a tensor [samples, ...]");
  return {tensor.size(0), [tensor](int64_t sample) { return tensor[sample].clone(); }};
}

}  // namespace

struct FilesDataset::Files {
  std::map<std::string, Column> columns;
  int64_t samples = 0;
};

namespace {

void add(std::map<std::string, Column>& columns, const std::string& name, Column column) {
  columns.emplace(name, std::move(column));
}

std::map<std::string, Column> columns_of_folder(const std::string& path) {
  std::map<std::string, Column> columns;
  for (const std::string& name : files::names_in(path))
    if (name.size() > 4 && name.ends_with(".npy"))
      add(columns, name.substr(0, name.size() - 4), column_of(std::make_shared<files::NpyFile>(formatted("{}/{}", path, name))));
  if (columns.empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no .npy file", path),
                "name a folder with one .npy file for each input, a .safetensors file, or a file of tokens (.npy, .bin)");
  return columns;
}

// `read(begin, count)` gives tokens of any integer type.
std::map<std::string, Column> columns_of_tokens(const std::string& path, int64_t tokens, int64_t length,
                                                std::function<at::Tensor(int64_t begin, int64_t count)> read) {
  if (length <= 0)
    throw Error(ErrorCode::kArgument, formatted("{} holds {} tokens, and the length of a sample is not given", path, tokens),
                "give sequence_length (`gannet train`: --seq_len)");
  if (tokens < length)
    throw Error(ErrorCode::kArgument, formatted("{} holds {} tokens, fewer than one sample of {}", path, tokens, length),
                "give a smaller sequence_length, or more tokens");
  std::map<std::string, Column> columns;
  for (const char* const name : {"input_ids", "labels"})
    add(columns, name, {tokens / length, [read, length](int64_t sample) { return read(sample * length, length).to(at::kLong); }});
  return columns;
}

std::map<std::string, Column> columns_of_array(const std::string& path, int64_t length) {
  auto file = std::make_shared<files::NpyFile>(path);
  if (file->shape().size() != 1 || !at::isIntegralType(file->dtype(), /*includeBool=*/false))
    throw Error(ErrorCode::kArgument, formatted("{} is not an array of tokens, which has one dimension of integers", path),
                "name a folder of .npy files, one for each input");
  const int64_t tokens = file->shape()[0];
  return columns_of_tokens(path, tokens, length, [file](int64_t begin, int64_t count) { return file->rows(begin, count); });
}

std::map<std::string, Column> columns_of_binary(const std::string& path, int64_t length) {
  const uint64_t bytes = files::kind_of(path).bytes;
  if (bytes % 2 != 0)
    throw Error(ErrorCode::kCorrupt, formatted("{} has {} bytes, and a token of uint16 has 2", path, bytes),
                "save other types as .npy, which names its type");
  auto file = std::make_shared<files::Descriptor>(files::open_file(path, O_RDONLY | O_NONBLOCK));
  const auto read = [file, path](int64_t begin, int64_t count) {
    at::Tensor tokens = at::empty({count}, at::kUInt16);
    if (!files::read_at(*file, static_cast<char*>(tokens.mutable_data_ptr()), static_cast<uint64_t>(count) * 2,
                        static_cast<uint64_t>(begin) * 2))
      throw Error(ErrorCode::kIo, formatted("{} cannot be read, or became shorter", path));
    return tokens;
  };
  return columns_of_tokens(path, static_cast<int64_t>(bytes / 2), length, read);
}

std::map<std::string, Column> columns_of(const std::string& path, int64_t length) {
  const files::PathKind kind = files::kind_of(path);
  if (!kind.exists) throw Error(ErrorCode::kNotFound, formatted("there is no {}", path), "name the data's folder or file");
  const bool is_tokens = !kind.is_folder && !path.ends_with(".safetensors");
  if (length > 0 && !is_tokens)
    throw Error(ErrorCode::kArgument, formatted("a sequence length of {} is given, and {} is not a file of tokens", length, path),
                "leave it out: samples have the shapes in the files");
  if (kind.is_folder) return columns_of_folder(path);
  if (path.ends_with(".npy")) return columns_of_array(path, length);
  if (path.ends_with(".bin")) return columns_of_binary(path, length);
  if (!path.ends_with(".safetensors"))
    throw Error(ErrorCode::kArgument, formatted("{} is none of the kinds of data", path),
                "name a folder of .npy files, a .safetensors file, or a file of tokens (.npy, .bin)");
  std::map<std::string, Column> columns;
  for (const auto& [name, tensor] : load_safetensors(path)) add(columns, name, column_of(tensor, name, path));
  if (columns.empty()) throw Error(ErrorCode::kArgument, formatted("{} has no tensors", path));
  return columns;
}

}  // namespace

FilesDataset::FilesDataset(const std::string& path, const FilesDatasetOptions& options) {
  auto found = std::make_unique<Files>();
  found->columns = columns_of(path, options.sequence_length);
  const auto& [first, shortest] = *found->columns.begin();
  found->samples = shortest.samples;
  for (const auto& [name, column] : found->columns)
    if (column.samples != found->samples)
      throw Error(ErrorCode::kArgument,
                  formatted("{}: '{}' has {} samples, and '{}' has {}", path, first, found->samples, name, column.samples),
                  "the inputs of a sample have the same place in every file");
  files_ = std::move(found);
}

FilesDataset::~FilesDataset() = default;

int64_t FilesDataset::size() const { return files_->samples; }

NamedBatch FilesDataset::get(int64_t index) const {
  NamedBatch sample;
  for (const auto& [name, column] : files_->columns) sample.emplace(name, column.read(index));
  return sample;
}

std::vector<std::string> FilesDataset::names() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : files_->columns) names.push_back(name);
  return names;
}

NamedBatch stack_named(const std::vector<NamedBatch>& samples) {
  NamedBatch batch;
  if (samples.empty()) return batch;
  for (const auto& [name, tensor] : samples[0]) {
    std::vector<at::Tensor> tensors;
    for (const NamedBatch& sample : samples) {
      const auto found = sample.find(name);
      if (found == sample.end() || sample.size() != samples[0].size())
        throw Error(ErrorCode::kArgument,
                    formatted("samples of a micro-batch have other names: '{}' is not in all of them", name),
                    "make the samples alike, or give a collate_fn of the program's own");
      tensors.push_back(found->second);
    }
    batch.emplace(name, loading::stack(tensors, name.c_str()));
  }
  return batch;
}

}  // namespace gannet
