#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/files_dataset.h>
#include <gannet/safetensors.h>
#include <gannet/source.h>

#include <functional>
#include <map>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "files/io.h"
#include "files/npy_file.h"

namespace gannet {
namespace {

// One input of a folder or a safetensors file: its number of samples, and how one is read.
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

// The samples of a dataset, independent of the file format.
struct Samples {
  std::vector<std::string> names;
  int64_t count = 0;
  std::function<NamedBatch(int64_t sample)> read;
};

Samples samples_of_columns(const std::map<std::string, Column>& columns, const std::string& path) {
  const auto& [first, column_of_first] = *columns.begin();
  Samples found{{}, column_of_first.samples, {}};
  for (const auto& [name, column] : columns) {
    found.names.push_back(name);
    if (column.samples != found.count)
      throw Error(ErrorCode::kArgument,
                  formatted("{}: '{}' has {} samples, and '{}' has {}", path, first, found.count, name, column.samples),
                  "the inputs of a sample have the same place in every file");
  }
  found.read = [columns](int64_t index) {
    NamedBatch sample;
    for (const auto& [name, column] : columns) sample.emplace(name, column.read(index));
    return sample;
  };
  return found;
}

std::map<std::string, Column> columns_of_folder(const std::string& path) {
  std::map<std::string, Column> columns;
  for (const std::string& name : files::names_in(path))
    if (name.size() > 4 && name.ends_with(".npy"))
      columns.emplace(name.substr(0, name.size() - 4),
                      column_of(std::make_shared<files::NpyFile>(formatted("{}/{}", path, name))));
  if (columns.empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no .npy file", path),
                "name a folder with one .npy file for each input, a .safetensors file, or a file of tokens (.npy, .bin)");
  return columns;
}

std::map<std::string, Column> columns_of_safetensors(const std::string& path) {
  std::map<std::string, Column> columns;
  for (const auto& [name, tensor] : load_safetensors(path)) columns.emplace(name, column_of(tensor, name, path));
  if (columns.empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no tensors", path), "save a tensor [samples, ...] for each input");
  return columns;
}

// Tokens of any integer type: how many there are, and how some are read.
struct Tokens {
  int64_t count = 0;
  std::function<at::Tensor(int64_t begin, int64_t count)> read;
};

Tokens tokens_of_array(const std::string& path) {
  auto file = std::make_shared<files::NpyFile>(path);
  if (file->shape().size() != 1 || !at::isIntegralType(file->dtype(), /*includeBool=*/false))
    throw Error(ErrorCode::kArgument, formatted("{} is not an array of tokens, which has one dimension of integers", path),
                "name a folder of .npy files, one for each input");
  return {file->shape()[0], [file](int64_t begin, int64_t count) { return file->rows(begin, count); }};
}

Tokens tokens_of_binary(const std::string& path) {
  const uint64_t bytes = files::kind_of(path).bytes;
  if (bytes % 2 != 0)
    throw Error(ErrorCode::kCorrupt, formatted("{} has {} bytes, and a token of uint16 has 2", path, bytes),
                "save other types as .npy, which names its type");
  auto file = std::make_shared<files::Descriptor>(files::open_file(path, O_RDONLY | O_NONBLOCK));
  return {static_cast<int64_t>(bytes / 2), [file, path](int64_t begin, int64_t count) {
            at::Tensor tokens = at::empty({count}, at::kUInt16);
            if (!files::read_at(*file, static_cast<char*>(tokens.mutable_data_ptr()), static_cast<uint64_t>(count) * 2,
                                static_cast<uint64_t>(begin) * 2))
              throw Error(ErrorCode::kIo, formatted("{} cannot be read, or became shorter", path));
            return tokens;
          }};
}

Samples samples_of_tokens(const Tokens& tokens, const std::string& path, int64_t length) {
  if (length <= 0)
    throw Error(ErrorCode::kArgument,
                formatted("{} holds {} tokens, and the length of a sample is not given", path, tokens.count),
                "give sequence_length (`gannet train`: --seq_len)");
  if (tokens.count < length)
    throw Error(ErrorCode::kArgument, formatted("{} holds {} tokens, fewer than one sample of {}", path, tokens.count, length),
                "give a smaller sequence_length (`gannet train`: --seq_len), or more tokens");
  return {{"input_ids", "labels"}, tokens.count / length, [read = tokens.read, length](int64_t sample) {
            const at::Tensor ids = read(sample * length, length).to(at::kLong);
            return NamedBatch{{"input_ids", ids}, {"labels", ids.clone()}};  // two tensors: a program may change one
          }};
}

Samples samples_of(const std::string& path, int64_t length) {
  const files::PathKind kind = files::kind_of(path);
  if (!kind.exists) throw Error(ErrorCode::kNotFound, formatted("there is no {}", path), "name the data's folder or file");
  if (!kind.is_folder && path.ends_with(".npy")) return samples_of_tokens(tokens_of_array(path), path, length);
  if (!kind.is_folder && path.ends_with(".bin")) return samples_of_tokens(tokens_of_binary(path), path, length);
  if (!kind.is_folder && !path.ends_with(".safetensors"))
    throw Error(ErrorCode::kArgument, formatted("{} is none of the kinds of data", path),
                "name a folder of .npy files, a .safetensors file, or a file of tokens (.npy, .bin)");
  if (length > 0)
    throw Error(ErrorCode::kArgument, formatted("a sequence length of {} is given, and {} is not a file of tokens", length, path),
                "leave it out: samples have the shapes in the files");
  return samples_of_columns(kind.is_folder ? columns_of_folder(path) : columns_of_safetensors(path), path);
}

}  // namespace

struct FilesDataset::Files {
  Samples samples;
};

FilesDataset::FilesDataset(const std::string& path, const FilesDatasetOptions& options)
    : files_(std::make_unique<const Files>(Files{samples_of(path, options.sequence_length)})) {}

FilesDataset::~FilesDataset() = default;

int64_t FilesDataset::size() const { return files_->samples.count; }

NamedBatch FilesDataset::get(int64_t index) const { return files_->samples.read(index); }

std::vector<std::string> FilesDataset::names() const { return files_->samples.names; }

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
