// The bytes that the model needs on each rank, and where they are: parameters, gradients, fp32
// masters, optimizer states, ZeRO's own buffers, and activations if a caller has measured them.
// Pure functions of sizes. The program itself and alignment (less than 64 bytes per tensor) are not
// counted.
//
//   Plan plan{.model = {.parameters = 1'300'000'000, .largest = 103'000'000}, .ranks = 8, .ranks_per_host = 8,
//               .placement = {.stage = 2, .offload_optimizer = Tier::kCpu}};
//   RankBytes bytes = estimate(plan);       // bytes.device, bytes.host, ...
//
// With P parameters in 16 bits under Adam on N ranks: 16 P at stage 0; 4 P + 12 P/N at stage 1; 2 P
// + 14 P/N and two buckets at stage 2; 16 P/N, the buckets and the gathered parameters at stage 3
// (Rajbhandari et al. 2020, "ZeRO", section 5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

namespace gannet::zero {

enum class Tier { kNone, kCpu, kNvme };  // for offload_optimizer and offload_param, nearest first
Tier tier_of(const config::OffloadTarget& to);
const char* to_string(Tier tier);  // as in the config: "none", "cpu", "nvme"

struct Placement {
  int stage = 0;
  Tier offload_optimizer = Tier::kNone;  // stage 1 and above
  Tier offload_param = Tier::kNone;      // stage 3

  bool is_legal() const;
  bool operator==(const Placement&) const = default;
};
std::vector<Placement> legal_placements();          // sorted by stage, then offload_optimizer, then offload_param
std::string to_string(const Placement& placement);  // "stage 3 with offload_optimizer to cpu and offload_param to nvme"

struct ModelSize {
  uint64_t parameters = 0;           // elements
  uint64_t largest = 0;              // elements of the largest parameter
  uint32_t param_bytes = 2;          // per element, in the training dtype
  uint32_t grad_bytes = 2;           // per element, in the gradient accumulation dtype
  uint32_t master_bytes = 4;         // fp32 masters of 16-bit parameters; 0: parameters are their own masters
  uint32_t state_bytes = 8;          // optimizer states per element; Adam: 2 x 4
  uint32_t average_bytes = 0;        // moving average per element, in the masters' type; 0: none is kept
  bool keeps_masters = false;        // the optimizer perturbs parameters: their masters are kept as well
  bool has_second_gradient = false;  // the optimizer uses a second gradient, in the masters' type
};

// The buffer sizes of the config, with its defaults, in elements.
struct BufferSizes {
  uint64_t reduce_bucket_size = 500'000'000;
  uint64_t prefetch_bucket_size = 50'000'000;
  uint64_t max_live_parameters = 1'000'000'000;
  uint64_t sub_group_size = 1'000'000'000;
  uint64_t buffer_count = 4;
  bool pin_memory = true;
  uint64_t max_in_cpu = 0;  // elements per rank of NVMe-offloaded parameters that stay in host memory; config default: 1e9
};

// Activations of one micro-batch, if known. They are not sharded: each rank has its own
// micro-batches.
struct KeptActivations {
  uint64_t bytes = 0;       // on the device
  uint64_t tier_bytes = 0;  // on the tier: inputs of regions
  Tier tier = Tier::kNone;
  uint64_t gradient_bytes = 0;  // the largest parameter's gradient in backward, before accumulation; independent of the samples
  uint64_t last_bytes = 0;      // the part of `bytes` still on the device when backward reaches the model's first layers
};
// A change to the config that keeps fewer activations.
struct ActivationChange {
  std::string keys;  // "gannet.activation_checkpointing.interval to 1"
  KeptActivations activations;
};

struct Plan {  // what is trained, on how many ranks, and where its data is placed
  ModelSize model;
  uint32_t ranks = 1, ranks_per_host = 1;
  bool device_is_host = false;  // accelerator "cpu": one memory, counted as host
  Placement placement;
  BufferSizes buffers;
  KeptActivations activations;
  // True if gradients of earlier micro-batches, or memory for all gradients, exist during the
  // forward. If false, backward creates gradients while it drops activations, so that the two do
  // not peak together.
  bool gradients_stay = true;
  std::vector<ActivationChange> activation_changes;  // cheapest first
};

struct RankBytes {  // what one rank needs
  uint64_t device = 0;
  uint64_t host = 0;
  uint64_t pinned = 0;  // part of host
  uint64_t nvme = 0;
  uint64_t checkpoint = 0;  // this rank's share of one checkpoint
};
RankBytes estimate(const Plan& plan);
// The bytes of one more parameter in the memory where the model is trained: the device's, or the
// host's if the device is the host. Ignores the plan's element counts, buffers and activations.
double bytes_per_parameter(Plan plan);
uint64_t checkpoint_bytes(const ModelSize& model);  // one checkpoint: masters, states and averages

// A rank's host memory while the model is built, before an engine owns it. Modules create
// parameters in fp32 or fp64.
uint64_t built_whole_bytes(const ModelSize& model);
// The same under zero::Init: the memory of the rank's shards and the parameter that is being
// created.
uint64_t built_sharded_bytes(const ModelSize& model, uint32_t ranks);

}  // namespace gannet::zero
