#include <fcntl.h>
#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/format.h"
#include "checkpoint/blocks.h"
#include "checkpoint/catalog.h"
#include "checkpoint/opened_state.h"
#include "checkpoint/rank_file.h"
#include "files/io.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
namespace {

// Compares the safetensors header of a file with the manifest, because other programs rely on the
// header.
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
      const auto found =
          entries.find(RankFile::name_in_file(tensor.info.name, tensor.info.shape, slice.split, slice.begin, slice.numel));
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
const MeshShape& Opened::mesh() const { return state_->manifest.mesh; }
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
  if (faults.empty())  // a damaged file is already reported
    for (size_t file = 0; file < manifest.files.size(); ++file)
      if (std::string fault = elsewhere[file] ? "" : header_fault(*state_, file); !fault.empty()) faults.push_back(fault);
  std::sort(faults.begin(), faults.end());
  return faults;
}

}  // namespace gannet::checkpoint
