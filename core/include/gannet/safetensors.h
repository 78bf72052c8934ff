/// Reads and writes tensors in one file, in the safetensors format of Hugging Face: 8 bytes of
/// header length (little-endian), a JSON header {"name": {"dtype": "F32", "shape": [2, 3],
/// "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}, and the bytes of the
/// tensors.
///
///   gannet::save_safetensors("model.safetensors", {{"weight", weight}, {"bias", bias}}, {{"format", "pt"}});
///   std::map<std::string, at::Tensor> tensors = gannet::load_safetensors("model.safetensors");
///
/// dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Reads every tensor into its own memory, on the CPU. `metadata`, if given, receives the
/// header's strings. Throws Error(kNotFound) if there is no such file, Error(kIo) if it cannot be
/// read, and Error(kCorrupt) with the defect if the header does not describe the file, which is
/// checked before anything in it is used.
std::map<std::string, at::Tensor> load_safetensors(const std::string& path,
                                                   std::map<std::string, std::string>* metadata = nullptr);

/// Writes `path`: first a temporary file next to it, which is synced and then renamed, so that a
/// crash or a full disk leaves the old file intact. Tensors may be strided and on any device; each
/// one that is not both on the CPU and contiguous is copied, one at a time. Throws Error(kIo)
/// naming path and reason, Error(kArgument) on a duplicate name and Error(kUnsupported) on a
/// dtype that the format lacks.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace gannet
