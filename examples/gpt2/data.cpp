#include "data.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gpt2 {
namespace {

namespace fs = std::filesystem;
using gannet::Error;
using gannet::ErrorCode;

std::vector<char> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path))
    throw Error(ErrorCode::kNotFound, "cannot open the tokens " + path, "name a file with --tokens");
  std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) throw Error(ErrorCode::kIo, "cannot read " + path);
  return bytes;
}

// Lists the files, sorted by name, so that every machine and rank reads the same text. Skips links,
// because their targets are read anyway.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (!entry.is_symlink() && entry.is_regular_file() && (extension.empty() || entry.path().extension() == extension))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Tokens::Tokens(std::vector<char> bytes, int token_bytes, std::string source)
    : bytes_(std::make_shared<const std::vector<char>>(std::move(bytes))), token_bytes_(token_bytes), source_(std::move(source)) {
  if (bytes_->size() % token_bytes_ != 0)
    throw Error(ErrorCode::kCorrupt,
                source_ + " has " + std::to_string(bytes_->size()) + " bytes, not a whole number of tokens of " +
                    std::to_string(token_bytes_),
                "--token-bytes says how many bytes a token has");
  size_ = static_cast<int64_t>(bytes_->size()) / token_bytes_;
  if (size_ < 2)
    throw Error(ErrorCode::kCorrupt, source_ + " has " + std::to_string(size_) + " tokens, a sample needs two at least");
}

Tokens Tokens::from_file(const std::string& path, int token_bytes) { return Tokens(read_file(path), token_bytes, path); }

Tokens Tokens::from_this_machine() {
  std::string source = "/usr/share/common-licenses";
  auto files = files_in(source, "");
  if (files.empty()) {
    source = GPT2_DOCUMENTS_DIR;
    files = files_in(source + "/docs", ".md");
    files.push_back(source + "/README.md");
  }
  std::vector<char> text;
  for (const auto& file : files) {
    const auto bytes = read_file(file.string());
    text.insert(text.end(), bytes.begin(), bytes.end());
  }
  return Tokens(std::move(text), 1, source + " (" + std::to_string(files.size()) + " files)");
}

int64_t Tokens::operator[](int64_t position) const {
  const auto* byte = reinterpret_cast<const unsigned char*>(bytes_->data()) + (begin_ + position) * token_bytes_;
  return token_bytes_ == 1 ? byte[0] : byte[0] | byte[1] << 8;
}

std::pair<Tokens, Tokens> Tokens::split(double fraction) const {
  Tokens first = *this, rest = *this;
  rest.size_ = static_cast<int64_t>(static_cast<double>(size_) * fraction);
  first.size_ = size_ - rest.size_;
  rest.begin_ = begin_ + first.size_;
  if (fraction > 0 && rest.size_ < 2)
    throw Error(
        ErrorCode::kArgument,
        "holding out " + std::to_string(fraction) + " of " + std::to_string(size_) + " tokens leaves nothing to validate on",
        "give more tokens or a larger --validation-fraction");
  return {first, rest};
}

Batch Tokens::batch(int64_t first_sample, int64_t samples, int64_t length) const {
  at::Tensor inputs = at::empty({samples, length}, at::kLong), targets = at::empty({samples, length}, at::kLong);
  auto *input = inputs.mutable_data_ptr<int64_t>(), *target = targets.mutable_data_ptr<int64_t>();
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t start = (first_sample + sample) * length;
    for (int64_t i = 0; i < length; ++i) {
      *input++ = (*this)[(start + i) % size_];
      *target++ = (*this)[(start + i + 1) % size_];
    }
  }
  return {inputs, targets};
}

void Tokens::check(int64_t vocabulary) const {
  for (int64_t i = 0; i < size_; ++i)
    if ((*this)[i] >= vocabulary)
      throw Error(ErrorCode::kMismatch,
                  source_ + ": token " + std::to_string(i) + " is " + std::to_string((*this)[i]) +
                      ", the model has a vocabulary of " + std::to_string(vocabulary),
                  "tokenize the text for this model, and check --token-bytes");
}

double Tokens::unigram_entropy() const {
  std::vector<int64_t> counts(size_t{1} << (8 * token_bytes_));
  for (int64_t i = 0; i < size_; ++i) ++counts[(*this)[i]];
  double entropy = 0;
  for (int64_t count : counts)
    if (count > 0) entropy -= static_cast<double>(count) / size_ * std::log(static_cast<double>(count) / size_);
  return entropy;
}

}  // namespace gpt2
