#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/safetensors.h>

#include <algorithm>
#include <set>

#include "base/format.h"
#include "files/io.h"
#include "files/safetensors_file.h"
#include "tensor/vector_math.h"

namespace gannet {
namespace {

using safetensors::Entry;

// Puts tensors with the largest elements first, so that every tensor is aligned to its element
// size, regardless of the shapes.
safetensors::Header lay_out(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                            std::vector<at::Tensor>& in_order) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__" || !names.insert(name).second)
      throw Error(ErrorCode::kArgument, formatted("save_safetensors: the name '{}{}", name,
                                                  name == "__metadata__" ? "' is the format's own" : "' is given twice"));
    if (!tensor.defined()) throw Error(ErrorCode::kArgument, formatted("save_safetensors: tensor '{}' is undefined", name));
    if (!safetensors::dtype_name(tensor.scalar_type()))
      throw Error(ErrorCode::kUnsupported,
                  formatted("save_safetensors: tensor '{}' has dtype {}", name, c10::toString(tensor.scalar_type())),
                  "convert it to one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  }
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return a->second.element_size() > b->second.element_size(); });

  safetensors::Header header;
  header.metadata = metadata;
  uint64_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const uint64_t end = offset + tensor.nbytes();
    header.entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), offset, end});
    in_order.push_back(tensor);
    offset = end;
  }
  return header;
}

}  // namespace

std::map<std::string, at::Tensor> load_safetensors(const std::string& path, std::map<std::string, std::string>* metadata) {
  settle_vector_math();  // the loaded tensors may be used without an engine
  const safetensors::SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const Entry& entry : file.header().entries) tensors.emplace(entry.name, file.read(entry));  // front to back
  if (metadata) *metadata = file.header().metadata;
  return tensors;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> in_order;
  const std::string json = safetensors::format_header(lay_out(tensors, metadata, in_order));
  if (json.size() > safetensors::kMaxHeaderBytes)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("{}: the names and shapes of its tensors take {} bytes, the format allows 100000000", path, json.size()),
        "save it as several files");

  files::replace_file(path, [&](const std::string& beside) {
    files::Descriptor file = files::open_file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    const uint64_t header_bytes = json.size();
    uint64_t offset = 0;
    const auto append = [&](const void* from, uint64_t bytes) {
      files::write_at(file, static_cast<const char*>(from), bytes, offset, beside);
      offset += bytes;
    };
    append(&header_bytes, sizeof(header_bytes));
    append(json.data(), json.size());
    for (at::Tensor& tensor : in_order) {
      const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
      tensor = at::Tensor();
      append(plain.const_data_ptr(), plain.nbytes());
    }
    files::sync(file, beside);
    file.close(beside);
  });
}

}  // namespace gannet
