// A checkpoint on disk: logical tensors and documents in files that a manifest ties together.
//
//   checkpoint::Saver saver("run1", ranks);                       // the folder, locked against a second job
//   saver.save({.tag = "step100", .slices = slices, .document = document, .rank_document = mine});   // every rank
//
//   checkpoint::Opened found = checkpoint::open("run1", {});      // the newest complete one; `notes` lists skipped ones
//   found.read({{"parameter/h.0.weight", 0, weight.flatten()}});  // verifies while reading
//
// Layout of <folder>/<tag>/:
//   manifest.json            written last, with its own checksum: tensors (name, dtype, shape,
//                            slices), the mesh of ranks, files (bytes, XXH3 of each block),
//                            documents
//   rank-00000.safetensors   rank 0's slices, each a tensor "<name>" or
//                            "<name>#<index of its first element in the whole tensor>"
// A checkpoint is staged in <folder>/.<tag>.tmp-<id>/, synced, and then renamed. <folder>/latest
// names the newest checkpoint and is replaced last.
// The caller defines the names of tensors (core/state/state_entry.h for the engine).
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/mesh.h>
#include <gannet/value.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/boxes.h"
#include "tensor/stored_bytes.h"

namespace gannet::checkpoint {

// The ranks that save together. In `gather`, every rank passes a string under the same `what` and
// receives the strings of all ranks, by rank.
struct Ranks {
  uint32_t rank = 0, size = 1;
  std::function<std::vector<std::string>(const std::string& what, const std::string& text)> gather;  // null for one rank
  // Identifies the machine if every machine has its own file system; "": all ranks share their
  // folders.
  std::string machine = {};
  MeshShape mesh = {};  // the mesh of these ranks; if it has no axes: a single data axis
};

// The ranks that write to one folder: all ranks, or those of this machine.
struct Neighbours {
  uint32_t keeper = 0;            // the first of them, which manages the folder
  uint32_t place = 0, count = 1;  // this rank's index among `count`
};

// Elements [begin, begin + data.numel()) of a flattened logical tensor, or of the local tensor
// formed by the boxes of a split (tensor/boxes.h). Together, the slices of one name must cover the
// tensor exactly once; any rank may pass them.
struct Slice {
  std::string name;
  std::vector<int64_t> shape;  // shape of the whole tensor
  int64_t begin = 0;
  at::Tensor data;  // contiguous, in the tensor's dtype; not copied, so it must not change until save() returns
  std::shared_ptr<StoredBytes> stored = nullptr;  // the slice's bytes, if `data` is on the "meta" device
  bool is_for_neighbours = false;                 // this machine's slices cover the tensor; other machines cover it themselves
  Split split = {};
};

struct Content {
  std::string tag;  // a file name; not "latest", not beginning with '.'
  std::vector<Slice> slices;
  Dict document;                                                   // data common to all ranks; rank 0's is stored
  Dict rank_document;                                              // each rank's own data, such as its RNG position
  std::function<void(const std::string& staging)> add_files = {};  // adds the caller's files, before the checkpoint is committed
};

struct SaveResult {
  std::string path;    // <folder>/<tag>
  uint64_t bytes = 0;  // total size of all ranks' files
  double seconds = 0;
  // The number of NaN and infinite elements, over all ranks, of each tensor that has any, by name.
  std::map<std::string, uint64_t> not_finite;
};

class Saver {
 public:
  struct Options {
    bool save_latest = true;
    int64_t keep = 0;        // number of complete checkpoints of this run to keep, including the new one; 0: all
    bool continues = false;  // the folder's checkpoints are this run's; else reported and kept
  };
  // Creates and locks the folder (on each keeper), and removes unfinished files of dead jobs. If a
  // live job holds the lock, throws Error(kUnavailable) naming host, pid and start time. Takes over
  // a dead job's lock.
  Saver(std::string folder, Ranks ranks);
  ~Saver();
  Saver(const Saver&) = delete;

  const Neighbours& neighbours() const;

  // Collective. Throws the same Error on every rank and, until the commit, leaves existing checkpoints untouched:
  // Error(kIo) with the rank, path, errno and free space if a write failed, Error(kArgument) for a bad tag or slices that
  // do not cover their tensor, Error(kMismatch) if ranks differ in tag or mesh, Error(kConfig) if they do not share the
  // folder. An existing checkpoint with the same tag is replaced atomically.
  SaveResult save(const Content& content, const Options& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A tensor of a checkpoint, from its manifest.
struct TensorInfo {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t numel() const;
};

// A destination: `into` (contiguous, on CPU or device, in the tensor's dtype, with any number of
// dimensions) receives elements [begin, begin + into.numel()) of the flattened tensor, or of the
// local tensor of a split. Targets need not match how the checkpoint was split.
struct Target {
  std::string name;
  int64_t begin = 0;
  at::Tensor into;
  std::shared_ptr<StoredBytes> stored = nullptr;  // destination of its bytes, if `into` is on the "meta" device
  Split split = {};
};

class Opened {
 public:
  const std::string& path() const;
  const std::string& tag() const;
  const Dict& document() const;
  uint32_t world_size() const;
  const MeshShape& mesh() const;  // the mesh of the ranks that saved it
  const Dict& rank_document(uint32_t rank) const;
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  // Notes about checkpoints that open() skipped: "step200: rank-00001.safetensors is truncated
  // (...); used step100".
  const std::vector<std::string>& notes() const;

  // Reads the targets' elements, and verifies every block that it touches as a whole. Throws Error(kCorrupt, kIo) naming
  // the file, the tensor and the fault (the targets' contents are then undefined), Error(kArgument) for a target that does
  // not fit its tensor, and Error(kMismatch) if another machine has the bytes.
  void read(const std::vector<Target>& targets) const;
  // Verifies every byte of every local file against the manifest, without loading. Returns one
  // sentence per fault; empty if there is none.
  std::vector<std::string> verify() const;
  // The files of ranks on other machines, if each machine has its own folder:
  // "rank-00002.safetensors".
  std::vector<std::string> elsewhere() const;

  struct State;
  explicit Opened(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct OpenOptions {
  std::string tag;  // "": the one in `latest`; if that is missing or broken, the newest complete one, with a note
  std::vector<std::string> avoid = {};  // tags that were found to be broken during a read
};
// Checks the manifest, the sizes of files, and that slices cover their tensors, but not the
// tensors' bytes (read() and verify() do). Throws Error(kNotFound) if there is no folder, no
// checkpoint in it, or no such tag (names the nearest); Error(kCorrupt) if the requested tag or all
// checkpoints are broken (with the reasons); Error(kUnsupported) for a newer format.
Opened open(const std::string& folder, const OpenOptions& options);

// One line for `gannet checkpoint list` and for error messages.
struct ListedCheckpoint {
  std::string tag, problem;  // problem: "" if complete
  uint64_t bytes = 0;
  int64_t step = -1;     // "global_steps" of the document, if present
  std::string saved_at;  // UTC, ISO 8601
  bool is_latest = false;
};
std::vector<ListedCheckpoint> list(const std::string& folder);  // newest first
bool holds_checkpoints(const std::string& folder);              // true if there is any, complete or not

}  // namespace gannet::checkpoint
