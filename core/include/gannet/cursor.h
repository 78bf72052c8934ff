/// Position of a loader in its data, and its form in checkpoints.
///
///   gannet::DataCursor cursor = loader->cursor();             // counts the batches returned so far, not those prefetched
///   gannet::Dict saved = cursor.to_dict();                    // on each rank
///   ...
///   std::vector<gannet::DataCursor> of_ranks = ...;           // DataCursor::from_dict of the dictionary that each rank saved
///   loader->seek(gannet::DataCursor::for_rank(of_ranks, rank, world_size));
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gannet {

/// Everything needed to resume at exactly that position, in another process and, for a dataset with
/// random access, with a different number of ranks.
struct DataCursor {
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t micro_batches = 0;  ///< number that each rank got in this epoch; a stream without a state rereads them to resume
  int64_t samples = 0;        ///< total that all ranks got in this epoch; the resume position at a different world size
  int64_t dataset_size = 0;   ///< samples in the dataset; 0 for a stream
  bool shuffle = false;       ///< whether the epoch's order was shuffled
  bool ended = false;         ///< stream: `state` is past the end of this epoch
  Value state = {};           ///< the stream's own cursor() after the last batch; null if it has none
  bool operator==(const DataCursor&) const = default;

  Dict to_dict() const;
  /// Throws Error(kCorrupt) on a member that is missing or has the wrong type, Error(kUnsupported)
  /// on an unknown member.
  static DataCursor from_dict(const Dict& saved);

  /// Position at which `rank` of `world_size` resumes, from the cursors that all ranks of a run
  /// saved together. A dataset with random access resumes at any world size. A stream belongs to
  /// its rank: a different world size is Error(kMismatch), unless all streams were at the start of
  /// an epoch and have no state. Cursors of different positions in one dataset are also
  /// Error(kMismatch).
  static DataCursor for_rank(const std::vector<DataCursor>& saved, int64_t rank, int64_t world_size);
};

/// The loader interface that checkpoints use. Every DataLoader implements it, with any type of
/// batch.
class ResumableLoader {
 public:
  virtual ~ResumableLoader() = default;
  virtual DataCursor cursor() const = 0;
  /// May be called within an epoch: the running loop ends, and the next one resumes at `cursor`.
  virtual void seek(const DataCursor& cursor) = 0;
  virtual bool sized() const = 0;  ///< false for a stream
  /// Micro-batches left in this epoch, including the current one; nullopt if unknown, as for a
  /// stream.
  virtual std::optional<int64_t> micro_batches_left() const { return std::nullopt; }
};

}  // namespace gannet
