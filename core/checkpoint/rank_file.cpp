#include "checkpoint/rank_file.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "base/format.h"
#include "checkpoint/manifest.h"
#include "checkpoint/value_json.h"
#include "files/safetensors_header.h"
#include "tensor/finite.h"

namespace gannet::checkpoint {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what, const std::string& advice = "") {
  throw Error(ErrorCode::kArgument, formatted("tensor '{}' cannot be saved: {}", name, what), advice);
}

void check(const Slice& slice) {
  if (slice.name.empty() || slice.name == "__metadata__") refuse(slice.name, "that is not a name for a tensor");
  if (!slice.data.defined()) refuse(slice.name, "it is undefined");
  if (slice.data.layout() != at::kStrided || !slice.data.is_contiguous()) refuse(slice.name, "it is not contiguous");
  if (!safetensors::dtype_name(slice.data.scalar_type()))
    refuse(slice.name, std::string("its dtype is ") + c10::toString(slice.data.scalar_type()),
           "the format has F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  const int64_t numel = checked_numel(slice.shape, slice.data.scalar_type());
  if (numel < 0) refuse(slice.name, "its shape has a negative size or is larger than any memory");
  if (const std::string fault = split_fault(slice.shape, slice.split); !fault.empty())
    refuse(slice.name, formatted("it {}", fault));
  const int64_t local = numel_of(local_shape(slice.shape, slice.split));
  if (slice.begin < 0 || slice.begin > local || slice.data.numel() > local - slice.begin)
    refuse(slice.name, formatted("the slice from element {} over {} is not inside its {} elements{}", slice.begin,
                                 slice.data.numel(), local, slice.split.is_whole() ? "" : " (of its boxes)"));
}

}  // namespace

std::string RankFile::name_in_file(const std::string& name, const std::vector<int64_t>& shape, const Split& split, int64_t begin,
                                   int64_t numel) {
  if (split.is_whole() && numel == numel_of(shape)) return name;
  return formatted("{}#{}", name, numel > 0 ? first_element(shape, split, begin) : begin);
}

RankFile::RankFile(const std::vector<Slice>& slices) : offsets_(slices.size()) {
  std::set<std::string> names;
  for (const Slice& slice : slices) check(slice);
  // Slices with the largest elements come first, so that every tensor begins at a multiple of its
  // element size.
  std::vector<size_t> order(slices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return slices[a].data.element_size() > slices[b].data.element_size(); });

  safetensors::Header header;
  uint64_t data = 0;
  for (size_t i : order) {
    const Slice& slice = slices[i];
    const int64_t numel = slice.data.numel();
    const Split split = simplified(slice.shape, slice.split);
    const std::string name = name_in_file(slice.name, slice.shape, split, slice.begin, numel);
    if (!names.insert(name).second) refuse(slice.name, "this rank gives it twice");
    const std::vector<int64_t> local = local_shape(slice.shape, split);
    header.entries.push_back({name, slice.data.scalar_type(), numel == numel_of(local) ? local : std::vector<int64_t>{numel},
                              data, data + slice.data.nbytes()});
    data += slice.data.nbytes();
  }
  std::string json;
  try {
    json = safetensors::format_header(header);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kArgument, std::string("the names of the tensors are not UTF-8: ") + error.what());
  }
  json.resize((sizeof(uint64_t) + json.size() + 4095) / 4096 * 4096 - sizeof(uint64_t), ' ');
  if (json.size() > safetensors::kMaxHeaderBytes)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("the names and shapes of {} tensors take {} bytes, the format allows 100000000", slices.size(), json.size()));
  const uint64_t length = json.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  header_ += json;

  for (size_t place = 0; place < order.size(); ++place) {
    const safetensors::Entry& entry = header.entries[place];
    offsets_[order[place]] = header_.size() + entry.begin;
    if (entry.end > entry.begin)
      pieces_.push_back({header_.size() + entry.begin, header_.size() + entry.end,
                         BytesOf(slices[order[place]].data, slices[order[place]].stored), entry.dtype, slices[order[place]].name,
                         std::make_unique<std::atomic<uint64_t>>(0)});
  }
  bytes_ = header_.size() + data;
}

void RankFile::fill(uint64_t offset, uint64_t bytes, char* into) const {
  const uint64_t end = offset + bytes;
  if (offset < header_.size()) std::memcpy(into, header_.data() + offset, std::min<uint64_t>(end, header_.size()) - offset);
  auto piece =
      std::upper_bound(pieces_.begin(), pieces_.end(), offset, [](uint64_t at, const TensorPiece& p) { return at < p.end; });
  for (; piece != pieces_.end() && piece->begin < end; ++piece) {
    const uint64_t from = std::max(offset, piece->begin), to = std::min(end, piece->end);
    piece->data.copy_out(from - piece->begin, to - from, into + (from - offset));
    // Counts non-finite elements while they are in the cache. No element crosses a block border,
    // because blocks and tensors begin at multiples of its size.
    if (const uint64_t wrong = count_not_finite(into + (from - offset), to - from, piece->dtype)) *piece->wrong += wrong;
  }
}

std::map<std::string, uint64_t> RankFile::not_finite() const {
  std::map<std::string, uint64_t> found;
  for (const TensorPiece& piece : pieces_)
    if (const uint64_t wrong = piece.wrong->load()) found[piece.name] += wrong;
  return found;
}

}  // namespace gannet::checkpoint
