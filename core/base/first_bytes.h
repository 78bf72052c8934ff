// Recognizes a file's format by its first bytes. Every reader calls require_format() before its own
// checks, so that a Git LFS pointer or an HTML error page under a model's name is reported as such,
// and not as a damaged model.
//
//   require_format(head, file_bytes, path, {Format::kZip, Format::kPickle});   // throws an Error that names any other format
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace gannet {

enum class Format {
  kUnknown,  // the reader reports the problem itself
  kEmpty,
  kZip,  // torch.save writes it, among others
  kPickle,
  kSafetensors,
  kJson,
  kYaml,
  kLfsPointer,
  kHtml,
  kText,  // short text in none of the formats above, such as a server's reply in place of a file
  kTar,
  kOther,  // formats that no reader accepts, such as compressed files, GGUF and HDF5
};

// The number of bytes at the beginning of a file that are examined.
inline constexpr size_t kHeadBytes = 512;

struct RecognizedFormat {
  Format format = Format::kUnknown;
  std::string what, next_step;  // "a Git LFS pointer, of 548.1 MB", "run `git lfs pull` ..."
};

// `head` is the first kHeadBytes of the file, or the whole file if it is smaller.
RecognizedFormat recognized(std::string_view head, uint64_t file_bytes);

// Throws Error(kUnsupported), or Error(kCorrupt) for an empty file, unless the format is unknown or
// in `taken`.
void require_format(std::string_view head, uint64_t file_bytes, const std::string& path, std::initializer_list<Format> taken);

}  // namespace gannet
