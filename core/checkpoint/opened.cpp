#include <fcntl.h>
#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
#include "checkpoint/bytes_of.h"
#include "checkpoint/catalog.h"
#include "checkpoint/opened_state.h"
#include "checkpoint/rank_file.h"
#include "files/io.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
namespace {

// Bytes [begin, end) of a file that go to `target` from its byte `at` on.
struct Copy {
  uint64_t begin, end, at;
  const BytesOf* target;
};

void check_target(const Target& target, const TensorEntry* tensor, const std::string& path) {
  const std::string who = formatted("{}: tensor '{}'", path, target.name);
  if (!tensor) throw Error(ErrorCode::kArgument, formatted("{} is not in this checkpoint", who));
  if (!target.into.defined() || !target.into.is_contiguous())
    throw Error(ErrorCode::kArgument, formatted("{} is read into a tensor that is not contiguous", who));
  if (target.into.scalar_type() != tensor->info.dtype)
    throw Error(ErrorCode::kArgument, formatted("{} is {}, it is read into {}", who, c10::toString(tensor->info.dtype),
                                                c10::toString(target.into.scalar_type())));
  const int64_t numel = tensor->info.numel();
  if (target.begin < 0 || target.begin > numel || target.into.numel() > numel - target.begin)
    throw Error(ErrorCode::kArgument,
                formatted("{} has {} elements, asked for {} from {}", who, numel, target.into.numel(), target.begin));
}

std::vector<BlockFile> block_files(const Opened::State& state) {
  std::vector<BlockFile> files;
  for (const FileEntry& file : state.manifest.files)
    files.push_back({formatted("{}/{}", state.path, file.name), file.name, file.bytes, state.manifest.block_bytes, file.blocks});
  return files;
}

// "holds 'a', 'b' and 3 more": what lies in a block.
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
  if (names.empty()) return "no tensor lies there, but its header does";
  const size_t more = names.size() > 3 ? names.size() - 3 : 0;
  names.resize(names.size() - more);
  return formatted("tensors there: {}{}", join(names, ", "), more ? formatted(" and {} more", more) : "");
}

// What the safetensors header of a file says, against the manifest: other programs go by it.
std::string header_fault(const Opened::State& state, size_t index) try {
  const FileEntry& file = state.manifest.files[index];
  const std::string path = formatted("{}/{}", state.path, file.name);
  files::Descriptor descriptor = files::open_file(path, O_RDONLY);
  uint64_t length = 0;
  std::string json;
  if (file.bytes < 8 || !files::read_at(descriptor, reinterpret_cast<char*>(&length), 8, 0) || length > file.bytes - 8 ||
      length > safetensors::kMaxHeaderBytes)
    return formatted("{} has no safetensors header", file.name);
  json.resize(length);
  if (!files::read_at(descriptor, json.data(), length, 8)) return formatted("{} has no whole header", file.name);
  std::map<std::string, safetensors::Entry> entries;
  for (safetensors::Entry& entry : safetensors::parse_header(json, file.bytes - 8 - length, file.name).entries)
    entries.emplace(entry.name, entry);
  for (const TensorEntry& tensor : state.manifest.tensors)
    for (const SliceEntry& slice : tensor.slices) {
      if (slice.file != index) continue;
      const auto found = entries.find(RankFile::name_in_file(tensor.info.name, slice.begin, slice.numel, tensor.info.numel()));
      if (found == entries.end() || found->second.dtype != tensor.info.dtype ||
          found->second.begin + 8 + length != slice.offset ||
          found->second.end - found->second.begin != slice.numel * c10::elementSize(tensor.info.dtype))
        return formatted("{}: its header does not say of tensor '{}' what the manifest says", file.name, tensor.info.name);
    }
  return "";
} catch (const Error& error) {
  return error.message();
}

}  // namespace

int64_t TensorInfo::numel() const {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return numel;
}

const std::string& Opened::path() const { return state_->path; }
const std::string& Opened::tag() const { return state_->tag; }
const Dict& Opened::document() const { return state_->manifest.document; }
uint32_t Opened::world_size() const { return state_->manifest.world_size; }
const std::vector<TensorInfo>& Opened::tensors() const { return state_->tensors; }
const std::vector<std::string>& Opened::notes() const { return state_->notes; }

const Dict& Opened::rank_document(uint32_t rank) const {
  if (rank >= state_->manifest.rank_documents.size())
    throw Error(ErrorCode::kArgument,
                formatted("{} was saved by {} ranks, it has nothing of rank {}", state_->path, world_size(), rank));
  return state_->manifest.rank_documents[rank];
}

const TensorInfo* Opened::find(const std::string& name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->tensors[found->second];
}

std::vector<std::string> Opened::elsewhere() const {
  std::vector<std::string> names;
  const std::vector<bool> elsewhere = lies_elsewhere(state_->manifest, state_->path);
  for (size_t file = 0; file < elsewhere.size(); ++file)
    if (elsewhere[file]) names.push_back(state_->manifest.files[file].name);
  return names;
}

void Opened::read(const std::vector<Target>& targets) const {
  const Manifest& manifest = state_->manifest;
  const std::vector<bool> elsewhere = lies_elsewhere(manifest, state_->path);
  std::vector<BytesOf> destinations;
  destinations.reserve(targets.size());                             // Copy points into it
  std::map<std::pair<size_t, uint64_t>, std::vector<Copy>> blocks;  // by file and block
  for (const Target& target : targets) {
    const auto found = state_->index.find(target.name);
    const TensorEntry* tensor = found == state_->index.end() ? nullptr : &manifest.tensors[found->second];
    check_target(target, tensor, state_->path);
    const BytesOf* into = &destinations.emplace_back(target.into, target.stored);
    const int64_t item = static_cast<int64_t>(c10::elementSize(tensor->info.dtype)),
                  target_end = target.begin + target.into.numel();
    for (const SliceEntry& slice : tensor->slices) {
      const int64_t first = std::max(target.begin, slice.begin), last = std::min(target_end, slice.begin + slice.numel);
      if (first >= last) continue;
      if (elsewhere[slice.file])
        throw Error(ErrorCode::kMismatch,
                    formatted("{}: a part of tensor '{}' is in {}, which another machine has: the checkpoint was saved with "
                              "checkpoint.use_node_local_storage",
                              state_->path, target.name, manifest.files[slice.file].name),
                    formatted("start with the ranks on the machines that they were on, or copy the machines' folders {} into one",
                              state_->tag));
      const uint64_t begin = slice.offset + (first - slice.begin) * item, end = begin + (last - first) * item;
      for (uint64_t block = begin / manifest.block_bytes; block * manifest.block_bytes < end; ++block) {
        const uint64_t from = std::max(begin, block * manifest.block_bytes),
                       to = std::min(end, (block + 1) * manifest.block_bytes);
        blocks[{slice.file, block}].push_back({from, to, (first - target.begin) * item + (from - begin), into});
      }
    }
  }
  std::vector<BlockRequest> requests;
  for (const auto& [place, copies] : blocks) requests.push_back({place.first, place.second});
  BlockReader reader;
  reader.place = [&](const BlockRequest& request, uint64_t bytes) -> char* {
    const auto& copies = blocks.at({request.file, request.block});
    if (copies.size() != 1 || copies[0].end - copies[0].begin != bytes) return nullptr;
    char* memory = copies[0].target->memory();
    return memory ? memory + copies[0].at : nullptr;
  };
  reader.use = [&](const BlockRequest& request, const char* data, uint64_t) {
    for (const Copy& copy : blocks.at({request.file, request.block}))
      copy.target->copy_in(copy.at, copy.end - copy.begin, data + (copy.begin - request.block * manifest.block_bytes));
  };
  reader.bad = [&](const BlockRequest& request, const Error& what) {
    throw Error(what.code() == ErrorCode::kNotFound ? ErrorCode::kCorrupt : what.code(),
                formatted("{}: {} ({})", state_->path, what.message(), tensors_in(manifest, request)),
                "use another checkpoint: `gannet checkpoint verify` says which are whole");
  };
  read_blocks(block_files(*state_), requests, reader);
}

std::vector<std::string> Opened::verify() const {
  const Manifest& manifest = state_->manifest;
  std::vector<std::string> faults;
  std::mutex mutex;
  std::vector<BlockRequest> requests;
  const std::vector<bool> elsewhere = lies_elsewhere(manifest, state_->path);
  for (size_t file = 0; file < manifest.files.size(); ++file)
    for (uint64_t block = 0; !elsewhere[file] && block < manifest.files[file].blocks.size(); ++block)
      requests.push_back({file, block});
  try {
    check_sizes(manifest, state_->path);
  } catch (const Error& error) {
    faults.push_back(error.message());
  }
  BlockReader reader;
  reader.use = [](const BlockRequest&, const char*, uint64_t) {};
  reader.bad = [&](const BlockRequest& request, const Error& what) {
    const std::lock_guard lock(mutex);
    faults.push_back(formatted("{} ({})", what.message(), tensors_in(manifest, request)));
  };
  read_blocks(block_files(*state_), requests, reader);
  if (faults.empty())  // what is damaged need not be taken at its word
    for (size_t file = 0; file < manifest.files.size(); ++file)
      if (std::string fault = elsewhere[file] ? "" : header_fault(*state_, file); !fault.empty()) faults.push_back(fault);
  std::sort(faults.begin(), faults.end());
  return faults;
}

}  // namespace gannet::checkpoint
