#include "convert/deepspeed_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "files/pt_writer.h"

namespace gannet::convert {
namespace {

// Fills `into` with elements [begin, begin + into.numel()) of the concatenated parts.
void read_parts(const checkpoint::Opened& from, const TensorParts& parts, int64_t begin, const at::Tensor& into) {
  std::vector<checkpoint::Target> targets;
  std::vector<std::pair<at::Tensor, at::Tensor>> conversions;  // a tensor in the checkpoint's dtype, and its place
  int64_t at = 0;
  for (const TensorPart& part : parts) {
    const int64_t first = std::max(begin, at), last = std::min(begin + into.numel(), at + part.numel);
    const int64_t offset = part.begin + first - at;
    at += part.numel;
    if (first >= last) continue;
    at::Tensor place = into.narrow(0, first - begin, last - first);
    if (part.name.empty()) {
      place.fill_(part.value);
      continue;
    }
    const c10::ScalarType dtype = from.find(part.name)->dtype;
    if (dtype != place.scalar_type()) conversions.emplace_back(at::empty({place.numel()}, dtype), place);
    targets.push_back({part.name, offset, dtype != place.scalar_type() ? conversions.back().first : place});
  }
  from.read(targets);
  for (auto& [read, place] : conversions) place.copy_(read);
}

}  // namespace

void DeepSpeedFile::value(const Value& value) {
  if (value.is_null()) return pickle_.none();
  if (value.is_bool()) return pickle_.boolean(value.as_bool());
  if (value.is_int()) return pickle_.integer(value.as_int());
  if (value.is_number()) return pickle_.number(value.as_number());
  if (value.is_string()) return pickle_.text(value.as_string());
  if (value.is_list()) {
    pickle_.begin_list();
    for (const Value& item : value.as_list()) this->value(item);
    return pickle_.end_list();
  }
  pickle_.begin_dict();
  for (const auto& [key, item] : value.as_dict().entries()) {
    pickle_.text(key);
    this->value(item);
  }
  pickle_.end_dict();
}

size_t DeepSpeedFile::tensor(c10::ScalarType dtype, std::vector<int64_t> shape, TensorParts parts) {
  const size_t storage = entries_.size();
  pickle_.tensor(dtype, shape, std::to_string(storage));
  std::vector<std::string> keys = {parts.empty() ? std::string() : parts[0].name};
  entries_.push_back({std::move(keys), dtype, std::move(shape)});
  parts_.push_back(std::move(parts));
  return storage;
}

void DeepSpeedFile::same_tensor(size_t storage, const std::vector<int64_t>& shape) {
  pickle_.tensor(entries_[storage].dtype, shape, std::to_string(storage));
}

void DeepSpeedFile::write(const checkpoint::Opened& from, const std::string& path) {
  files::PtWriter writer(path, entries_, pickle_.finish());
  for (const TensorParts& parts : parts_)
    writer.write([&](int64_t begin, const at::Tensor& into) { read_parts(from, parts, begin, into); });
  writer.finish();
}

}  // namespace gannet::convert
