// Reads a checkpoint: maps the bytes of blocks to targets, for any combination of saved and loaded
// splits.
#include <gannet/error.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
#include "checkpoint/bytes_of.h"
#include "checkpoint/catalog.h"
#include "checkpoint/opened_state.h"

namespace gannet::checkpoint {
namespace {

// The part of a slice that goes to a target. Its stretches are computed when a block is read: a
// matrix split along columns has one per row.
struct SliceCopy {
  const TensorEntry* tensor;
  const SliceEntry* slice;
  const Target* target;
  const BytesOf* into;

  int64_t item() const { return static_cast<int64_t>(c10::elementSize(tensor->info.dtype)); }

  // Calls copy(from, to, at) for each stretch: bytes [from, to) of the slice's file, inside [begin,
  // end), go to byte `at` of the target. Stops if copy() returns false.
  template <class Body>
  void each(uint64_t begin, uint64_t end, const Body& copy) const {
    const uint64_t size = item(), last = slice->offset + slice->numel * size;
    begin = std::max(begin, slice->offset), end = std::min(end, last);
    if (begin >= end) return;
    // The elements with bytes in [begin, end), including partial ones at the edges of a block.
    const int64_t first = static_cast<int64_t>((begin - slice->offset) / size);
    const int64_t count = static_cast<int64_t>((end - slice->offset + size - 1) / size) - first;
    const LocalRegion there{tensor->info.shape, slice->split, slice->begin + first, count};
    const LocalRegion here{tensor->info.shape, target->split, target->begin, target->into.numel()};
    each_overlap(there, here, [&](int64_t at_there, int64_t at_here, int64_t numel) {
      const uint64_t place = slice->offset + (first + at_there) * size;
      const uint64_t from = std::max(begin, place), to = std::min(end, place + numel * size);
      return from >= to || copy(from, to, at_here * size + (from - place));
    });
  }
  bool has_any(uint64_t begin, uint64_t end) const {
    bool found = false;
    each(begin, end, [&](uint64_t, uint64_t, uint64_t) { return !(found = true); });
    return found;
  }
};

void check_target(const Target& target, const TensorEntry* tensor, const std::string& path) {
  const std::string who = formatted("{}: tensor '{}'", path, target.name);
  if (!tensor) throw Error(ErrorCode::kArgument, formatted("{} is not in this checkpoint", who));
  if (!target.into.defined() || !target.into.is_contiguous())
    throw Error(ErrorCode::kArgument, formatted("{} is read into a tensor that is not contiguous", who));
  if (target.into.scalar_type() != tensor->info.dtype)
    throw Error(ErrorCode::kArgument, formatted("{} is {}, it is read into {}", who, c10::toString(tensor->info.dtype),
                                                c10::toString(target.into.scalar_type())));
  if (const std::string fault = split_fault(tensor->info.shape, target.split); !fault.empty())
    throw Error(ErrorCode::kArgument, formatted("{} is read into a part that {}", who, fault));
  const int64_t numel = numel_of(local_shape(tensor->info.shape, target.split));
  if (target.begin < 0 || target.begin > numel || target.into.numel() > numel - target.begin)
    throw Error(ErrorCode::kArgument,
                formatted("{} has {} elements, asked for {} from {}", who, numel, target.into.numel(), target.begin));
}

}  // namespace

std::vector<BlockFile> block_files(const Opened::State& state) {
  std::vector<BlockFile> files;
  for (const FileEntry& file : state.manifest.files)
    files.push_back({formatted("{}/{}", state.path, file.name), file.name, file.bytes, state.manifest.block_bytes, file.blocks});
  return files;
}

std::string tensors_in(const Manifest& manifest, const BlockRequest& request) {
  const uint64_t begin = request.block * manifest.block_bytes, end = begin + manifest.block_bytes;
  std::vector<std::string> names;
  for (const TensorEntry& tensor : manifest.tensors)
    for (const SliceEntry& slice : tensor.slices) {
      const uint64_t last = slice.offset + slice.numel * c10::elementSize(tensor.info.dtype);
      if (slice.file == request.file && slice.offset < end && last > begin) {
        names.push_back(formatted("'{}'", tensor.info.name));
        break;
      }
    }
  if (names.empty()) return "the file's header is there, and no tensor";
  const size_t more = names.size() > 3 ? names.size() - 3 : 0;
  names.resize(names.size() - more);
  return formatted("tensors there: {}{}", join(names, ", "), more ? formatted(" and {} more", more) : "");
}

namespace {

// The copies from each block, by file and block number.
using CopiesOfBlocks = std::map<std::pair<size_t, uint64_t>, std::vector<SliceCopy>>;

[[noreturn]] void refuse_other_machine(const Opened::State& state, const std::string& tensor, size_t file) {
  throw Error(
      ErrorCode::kMismatch,
      formatted("{}: a part of tensor '{}' is in {}, which another machine has: the checkpoint was saved with "
                "checkpoint.use_node_local_storage",
                state.path, tensor, state.manifest.files[file].name),
      formatted("start with the ranks on the machines that they were on, or copy the machines' folders {} into one", state.tag));
}

// The range of a slice's file that includes all bytes a copy needs; empty if begin >= end.
std::pair<uint64_t, uint64_t> wanted_bytes(const SliceCopy& copy) {
  const uint64_t first = copy.slice->offset, last = first + copy.slice->numel * copy.item();
  uint64_t begin = last, end = first;
  if (copy.target->split == copy.slice->split)
    copy.each(first, last, [&](uint64_t from, uint64_t to, uint64_t) { return begin = from, end = to, true; });
  else if (copy.has_any(first, last))
    begin = first, end = last;
  return {begin, end};
}

// Returns the copies that fill the targets. `destinations` receives the targets' memory; the copies
// point into it.
CopiesOfBlocks copies_for(const Opened::State& state, const std::vector<Target>& targets, std::vector<BytesOf>& destinations) {
  const Manifest& manifest = state.manifest;
  const uint64_t size = manifest.block_bytes;
  const std::vector<bool> elsewhere = lies_elsewhere(manifest, state.path);
  destinations.reserve(targets.size());
  CopiesOfBlocks blocks;
  for (const Target& target : targets) {
    const auto found = state.index.find(target.name);
    const TensorEntry* tensor = found == state.index.end() ? nullptr : &manifest.tensors[found->second];
    check_target(target, tensor, state.path);
    const BytesOf* into = &destinations.emplace_back(target.into, target.stored);
    for (const SliceEntry& slice : tensor->slices) {
      const SliceCopy copy{tensor, &slice, &target, into};
      const auto [begin, end] = wanted_bytes(copy);
      if (begin >= end) continue;
      if (elsewhere[slice.file]) refuse_other_machine(state, target.name, slice.file);
      for (uint64_t block = begin / size; block * size < end; ++block)
        if (copy.has_any(block * size, (block + 1) * size)) blocks[{slice.file, block}].push_back(copy);
    }
  }
  return blocks;
}

}  // namespace

void Opened::read(const std::vector<Target>& targets) const {
  const Manifest& manifest = state_->manifest;
  const uint64_t size = manifest.block_bytes;
  std::vector<BytesOf> destinations;
  const CopiesOfBlocks blocks = copies_for(*state_, targets, destinations);
  // The map is sorted by file and block, so each file is read front to back.
  std::vector<BlockRequest> requests;
  for (const auto& [place, copies] : blocks) requests.push_back({place.first, place.second});
  BlockReader reader;
  reader.place = [&](const BlockRequest& request, uint64_t bytes) -> char* {
    const auto& copies = blocks.at({request.file, request.block});
    char* place = nullptr;
    if (copies.size() == 1)
      copies[0].each(request.block * size, (request.block + 1) * size, [&](uint64_t from, uint64_t to, uint64_t at) {
        char* const memory = to - from == bytes ? copies[0].into->memory() : nullptr;
        if (memory) place = memory + at;
        return false;
      });
    return place;
  };
  reader.use = [&](const BlockRequest& request, const char* data, uint64_t) {
    for (const SliceCopy& copy : blocks.at({request.file, request.block}))
      copy.each(request.block * size, (request.block + 1) * size, [&](uint64_t from, uint64_t to, uint64_t at) {
        copy.into->copy_in(at, to - from, data + (from - request.block * size));
        return true;
      });
  };
  reader.bad = [&](const BlockRequest& request, const Error& what) {
    throw Error(what.code() == ErrorCode::kNotFound ? ErrorCode::kCorrupt : what.code(),
                formatted("{}: {} ({})", state_->path, what.message(), tensors_in(manifest, request)),
                "use another checkpoint: `gannet checkpoint verify` says which are whole");
  };
  read_blocks(block_files(*state_), requests, reader);
}

}  // namespace gannet::checkpoint
