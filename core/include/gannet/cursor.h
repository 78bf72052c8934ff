/// How far the reading of data has come, and how a checkpoint keeps it.
///
///   gannet::DataCursor cursor = loader->cursor();             // the last batch that was given counts, what is ready does not
///   gannet::Dict saved = cursor.to_dict();                    // of each rank
///   ...
///   std::vector<gannet::DataCursor> of_ranks = ...;           // DataCursor::from_dict of what every rank saved
///   loader->seek(gannet::DataCursor::for_rank(of_ranks, rank, world_size));
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gannet {

/// Enough to go on exactly there, in another process too and, for a dataset with random access, on another number of ranks.
struct DataCursor {
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t micro_batches = 0;  ///< given to each rank in this epoch; a stream without a state is resumed by reading them again
  int64_t samples = 0;        ///< given to all ranks together in this epoch; says where to go on at another world size
  int64_t dataset_size = 0;   ///< samples in the dataset; 0 for a stream
  bool shuffle = false;       ///< whether the epoch's order was shuffled
  bool ended = false;         ///< of a stream: `state` lies behind the end of this epoch
  Value state = {};           ///< what the stream's own cursor() said after the last batch; null where it has none
  bool operator==(const DataCursor&) const = default;

  Dict to_dict() const;
  /// Throws Error(kCorrupt) on a member that is missing or of another type, Error(kUnsupported) on one that is not known.
  static DataCursor from_dict(const Dict& saved);

  /// Where rank `rank` of `world_size` resumes, from the cursors that all ranks of a run saved together. A dataset with random
  /// access resumes at any world size. A stream is each rank's own: at another world size that is Error(kMismatch), unless all
  /// stood at an epoch's start and have no state. Cursors of different places in one dataset are Error(kMismatch) too.
  static DataCursor for_rank(const std::vector<DataCursor>& saved, int64_t rank, int64_t world_size);
};

/// A loader as a checkpoint sees it: every DataLoader is one, whatever its batches.
class ResumableLoader {
 public:
  virtual ~ResumableLoader() = default;
  virtual DataCursor cursor() const = 0;
  /// Also within an epoch: the loop that runs ends, and the next one resumes at `cursor`.
  virtual void seek(const DataCursor& cursor) = 0;
  virtual bool sized() const = 0;  ///< false for a stream
  /// Of this epoch, the micro-batch in hand included; nullopt where that is not known, as for a stream.
  virtual std::optional<int64_t> micro_batches_left() const { return std::nullopt; }
};

}  // namespace gannet
