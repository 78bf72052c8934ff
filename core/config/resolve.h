// Resolves a Document to Settings: fills in defaults, "auto"s and the batch triad, and runs the
// cross-field checks.
#pragma once

#include <string>
#include <vector>

#include "config/batch.h"
#include "config/document.h"
#include "config/settings.h"

namespace gannet::config {

// One line of `gannet config resolve`.
struct EffectiveValue {
  std::string path;  // JSON pointer
  Value value;
  std::string origin;  // "ds_config.json:3:5", "default", "auto: no CUDA device", "computed from ..."
};

struct ResolvedConfig {
  Settings settings;
  std::vector<EffectiveValue> effective;  // every key that Gannet knows and acts on, in the table's order
  std::vector<std::string> notices;       // reported once: legal keys that have no effect, deprecated keys, quirks
};

// `world_size`: the ranks with data of their own (data_ranks). `rank_is_set`: whether the environment
// has RANK; if not, an error explains why the world size is 1. Throws Error(kConfig) if values
// conflict, and Error(kUnsupported) for a feature that Gannet does not have (docs/limits.md).
ResolvedConfig resolve(const Document& document, int64_t world_size, bool rank_is_set = true);

// Returns the document's values and the defaults as they are, without completing the batch sizes or
// checking anything. Used for incomplete configs, and for values that are needed before the number
// of ranks is known (plugins, timeouts).
Settings settings_of(const Document& document);

// The three batch sizes as given; "auto" and null count as absent.
GivenBatch given_batch(const Document& document);

// How many of a run's `ranks` have data of their own: ranks along the axes pipe and tensor of
// gannet.mesh (or pipeline.stages) share theirs. Throws Error(kConfig) if the axes do not divide
// `ranks`.
int64_t data_ranks(const Document& document, int64_t ranks);
// The number of ranks for which the batch sizes and the mesh of a config are meant.
int64_t implied_ranks(const Document& document);

}  // namespace gannet::config
