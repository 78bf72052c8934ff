// What a file is by its first bytes, asked by every reader before its own checks: a Git LFS pointer or an error page of the web
// under a model's name is called that, not a damaged model.
//
//   require_format(head, file_bytes, path, {Format::kZip, Format::kPickle});   // Error naming any other format that is known
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace gannet {

enum class Format {
  kUnknown,  // left to the reader's own words
  kEmpty,
  kZip,  // of torch.save, among others
  kPickle,
  kSafetensors,
  kJson,
  kYaml,
  kLfsPointer,
  kHtml,
  kText,  // a short one of no form above, as a server answers in place of a file
  kTar,
  kOther,  // compressed files, GGUF, HDF5 and others that no reader takes
};

// How many bytes of the head are looked at, at most.
inline constexpr size_t kHeadBytes = 512;

struct Recognized {
  Format format = Format::kUnknown;
  std::string what, next_step;  // "a Git LFS pointer, of 548.1 MB", "run `git lfs pull` ..."
};

// `head`: the first kHeadBytes of the file, or all of a smaller one.
Recognized recognized(std::string_view head, uint64_t file_bytes);

// Throws Error(kUnsupported), or Error(kCorrupt) for an empty file, unless the format is unknown or one of `taken`.
void require_format(std::string_view head, uint64_t file_bytes, const std::string& path, std::initializer_list<Format> taken);

}  // namespace gannet
