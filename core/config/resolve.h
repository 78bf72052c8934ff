// Resolves a Document to Settings: defaults, "auto", the batch triad, cross-field checks.
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
  std::vector<std::string> notices;       // reported once: legal keys without effect here, deprecated keys, quirks
};

// `rank_is_set`: whether the environment has RANK, for the sentence that explains a world size of
// 1. Throws Error(kConfig) on values that conflict, Error(kUnsupported) on what Gannet does not
// implement.
ResolvedConfig resolve(const Document& document, int64_t world_size, bool rank_is_set = true);

// Only the values of the rows: batch sizes are not completed and nothing is checked. For incomplete
// configs, and for values needed before the number of ranks is known: plugins, timeouts.
Settings settings_of(const Document& document);

// The three batch sizes as given; "auto" and null are absent.
GivenBatch given_batch(const Document& document);

}  // namespace gannet::config
