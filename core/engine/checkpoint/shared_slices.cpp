#include "engine/checkpoint/shared_slices.h"

#include <algorithm>

namespace gannet {
namespace {

using checkpoint::Slice;

// Returns this rank's share of tensors that several ranks have. Each of the `count` ranks writes an
// equal share of the bytes, so that all disks and cores are used.
std::vector<Slice> share_of(const std::vector<Slice>& tensors, uint32_t place, uint32_t count) {
  int64_t total = 0;
  for (const Slice& tensor : tensors) total += static_cast<int64_t>(tensor.data.nbytes());
  const int64_t first = total / count * place, last = place + 1 == count ? total : total / count * (place + 1);
  std::vector<Slice> slices;
  int64_t at = 0;
  for (const Slice& tensor : tensors) {
    const auto size = static_cast<int64_t>(tensor.data.element_size()), bytes = static_cast<int64_t>(tensor.data.nbytes());
    auto element = [&](int64_t byte) { return std::clamp<int64_t>((byte - at + size - 1) / size, 0, tensor.data.numel()); };
    const int64_t begin = element(std::max(first, at)), end = element(std::min(last, at + bytes));
    if ((first < at + bytes && at < last && begin < end) || (tensor.data.numel() == 0 && place == 0)) {
      slices.push_back(tensor);
      slices.back().begin = begin;
      slices.back().data = tensor.data.contiguous().view({-1}).narrow(0, begin, end - begin);
    }
    at += bytes;
  }
  return slices;
}

}  // namespace

void SharedSlices::add(const StateEntry& entry, std::string name) {
  auto& group = groups_[entry.differs_along];
  if (group.tensors.empty()) group.holders = holders_of(entry, mesh_, rank_);
  group.tensors.push_back(
      {std::move(name), entry.shape, 0, entry.whole, nullptr, /*is_for_neighbours=*/entry.differs_along.empty(), entry.split});
}

void SharedSlices::give(std::vector<Slice>& slices) const {
  for (const auto& [axes, group] : groups_) {
    const auto mine = std::find(group.holders.begin(), group.holders.end(), rank_);
    const auto place = axes.empty() ? neighbours_.place : static_cast<uint32_t>(mine - group.holders.begin());
    const auto count = axes.empty() ? neighbours_.count : static_cast<uint32_t>(group.holders.size());
    for (Slice& slice : share_of(group.tensors, place, count)) slices.push_back(std::move(slice));
  }
}

}  // namespace gannet
