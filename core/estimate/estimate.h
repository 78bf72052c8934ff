// Reports the bytes that a model needs on each rank, for every ZeRO stage and offload.
// Used by `gannet estimate` and gannet::estimate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimate/activation_ladder.h"

namespace gannet::config {
class Document;
}

namespace gannet {

struct EstimateRequest {
  uint64_t parameters = 0;
  std::optional<uint64_t> largest;                        // elements of the largest parameter; null: guessed from `parameters`
  std::string said;                                       // the number of parameters as the user gave it
  std::string dtype;                                      // "bf16"; "": the config's, else bf16
  std::shared_ptr<const config::Document> document;       // may be null or incomplete
  std::string config_name;                                // the name of the config in the text
  uint32_t ranks = 1, ranks_per_host = 0;                 // ranks_per_host 0: all ranks
  std::string accelerator;                                // "": the config's, else the best usable
  std::optional<uint64_t> device_bytes;                   // free bytes per device, for a machine other than this one
  std::string nvme, checkpoints;                          // the folders for NVMe offload and for checkpoints
  uint64_t held_bytes = 0;                                // bytes of this process's module, freed when its parameters are placed
  std::optional<activation::ActivationMeasurement> kept;  // measured in the module's own dtype; null: by formula, or not counted
  uint32_t kept_element_bytes = 4;                        // bytes per element in that dtype
  std::optional<TransformerSize> transformer;             // for the estimate by formula
  int64_t micro_batch = 1;                                // samples in `kept` or `transformer`
  // Sizes of matrices by name, for the hint about those that are not multiples of 16.
  std::vector<std::pair<std::string, int64_t>> sizes;
};

std::string estimate_text(const EstimateRequest& request);

}  // namespace gannet
