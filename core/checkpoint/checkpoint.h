// A checkpoint on disk: logical tensors and documents, in files that a manifest makes one whole.
//
//   checkpoint::Saver saver("run1", ranks);                       // the folder, locked against a second job
//   saver.save({.tag = "step100", .slices = slices, .document = document, .rank_document = mine});   // every rank
//
//   checkpoint::Opened found = checkpoint::open("run1", {});      // the newest complete one; what was passed over is in `notes`
//   found.read({{"parameter/h.0.weight", 0, weight.flatten()}});  // verified while it is read
//
// Layout of <folder>/<tag>/:
//   manifest.json            written last, checksummed itself: tensors (name, dtype, shape, slices), the mesh of ranks,
//                            files (bytes, XXH3 of each block), documents
//   rank-00000.safetensors   what rank 0 gave: each slice is a tensor "<name>" or "<name>#<its first element of the whole>"
// Staged in <folder>/.<tag>.tmp-<id>/, synced, renamed; <folder>/latest names the newest and is swapped last.
// Names of tensors belong to the caller: what they mean is the engine's (core/state/state_entry.h).
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

// The ranks that save together. gather: every rank gives a text under the same `what` and gets all of them, by rank.
struct Ranks {
  uint32_t rank = 0, size = 1;
  std::function<std::vector<std::string>(const std::string& what, const std::string& text)> gather;  // null in a world of one
  // Where every machine has a file system of its own: which one this is. "": the ranks share their folders.
  std::string machine = {};
  MeshShape mesh = {};  // of these ranks; without axes: they are one axis, data
};

// The ranks that write into one folder: all of them, or those of this machine.
struct Neighbours {
  uint32_t keeper = 0;            // the first of them, whose hand is on the folder
  uint32_t place = 0, count = 1;  // this rank is the place-th of so many
};

// Elements [begin, begin + data.numel()) of a flattened logical tensor, or of the local tensor that the boxes of a split make up
// (tensor/boxes.h). Slices of one name, from whatever ranks, must cover it once; they may be given by the rank that has them.
struct Slice {
  std::string name;
  std::vector<int64_t> shape;  // of the whole
  int64_t begin = 0;
  at::Tensor data;  // contiguous; its dtype is the tensor's. Not copied: unchanged until save() returns
  std::shared_ptr<StoredBytes> stored = nullptr;  // where its bytes lie, when `data` is on the "meta" device
  bool is_for_neighbours = false;                 // the neighbours' slices cover the tensor; other machines' do so for themselves
  Split split = {};
};

struct Content {
  std::string tag;  // a file name; not "latest", not beginning with '.'
  std::vector<Slice> slices;
  Dict document;                                                   // rank 0's is kept: what is one for all ranks
  Dict rank_document;                                              // of each rank: its RNG's position, say
  std::function<void(const std::string& staging)> add_files = {};  // the caller's own, before the checkpoint is in place
};

struct SaveResult {
  std::string path;    // <folder>/<tag>
  uint64_t bytes = 0;  // of all ranks' files
  double seconds = 0;
  // Tensors with elements that are NaN or infinite, and how many: of all ranks, by name.
  std::map<std::string, uint64_t> not_finite;
};

class Saver {
 public:
  struct Options {
    bool save_latest = true;
    int64_t keep = 0;        // complete checkpoints of this run that are kept, the new one included; 0: all
    bool continues = false;  // what was in the folder before is this run's past; else it is another's: reported and kept
  };
  // Makes and locks the folder (rank 0; a lock that another living job holds is Error(kUnavailable) naming host, pid and since
  // when; a dead job's is taken over) and removes what dead jobs left unfinished.
  Saver(std::string folder, Ranks ranks);
  ~Saver();
  Saver(const Saver&) = delete;

  const Neighbours& neighbours() const;

  // Collective. Throws the same Error on every rank, and leaves the checkpoints that were there untouched: Error(kIo) with path,
  // errno and free space where a write failed (on which rank), Error(kArgument) on a bad tag or slices that do not cover their
  // tensor. An existing checkpoint of the same tag is replaced, never torn.
  SaveResult save(const Content& content, const Options& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A tensor of a checkpoint, as its manifest says.
struct TensorInfo {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t numel() const;
};

// Where elements go: `into` (contiguous, CPU or device, of the tensor's dtype, any number of dimensions) receives elements
// [begin, begin + into.numel()) of the flattened tensor, or of the local tensor of a split. How the checkpoint was split does
// not matter.
struct Target {
  std::string name;
  int64_t begin = 0;
  at::Tensor into;
  std::shared_ptr<StoredBytes> stored = nullptr;  // where its bytes go, when `into` is on the "meta" device
  Split split = {};
};

class Opened {
 public:
  const std::string& path() const;
  const std::string& tag() const;
  const Dict& document() const;
  uint32_t world_size() const;
  const MeshShape& mesh() const;  // of the ranks that saved it
  const Dict& rank_document(uint32_t rank) const;
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  // What was passed over to get here: "step200: rank-00001.safetensors is truncated (...); used step100".
  const std::vector<std::string>& notes() const;

  // Reads and verifies. Every block of a file that is touched is checked whole. Throws Error(kCorrupt) naming file, tensor and
  // what is wrong; the targets' contents are then undefined.
  void read(const std::vector<Target>& targets) const;
  // Reads nothing into anywhere: every byte of every file that is here against the manifest. Empty when all is well, else a
  // sentence per fault.
  std::vector<std::string> verify() const;
  // Files of other machines' ranks, each of which has a folder of its own: "rank-00002.safetensors".
  std::vector<std::string> elsewhere() const;

  struct State;
  explicit Opened(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct OpenOptions {
  std::string tag;  // "": what `latest` names; where that is missing or broken, the newest complete one, with a note
  std::vector<std::string> avoid = {};  // tags that turned out to be broken while they were read
};
// Checks manifest, sizes of files, and that slices cover their tensors; not the tensors' bytes (read and verify do).
// Error(kNotFound): no folder, no checkpoint in it, no such tag (the nearest are named). Error(kCorrupt): a tag that was asked
// for is broken, or all are (each with its reason). Error(kUnsupported): of a newer format.
Opened open(const std::string& folder, const OpenOptions& options);

// One line for `gannet checkpoint list` and for error messages.
struct Listed {
  std::string tag, problem;  // problem: "" when complete
  uint64_t bytes = 0;
  int64_t step = -1;     // document's "global_steps", where it has one
  std::string saved_at;  // UTC, ISO 8601
  bool is_latest = false;
};
std::vector<Listed> list(const std::string& folder);  // newest first
bool holds_checkpoints(const std::string& folder);    // whole or not

}  // namespace gannet::checkpoint
