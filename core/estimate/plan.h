// Bytes that the model takes on a rank, and where they lie: parameters, gradients, fp32 masters, optimizer states, ZeRO's own
// buffers; activations where a caller has measured them. Pure functions of sizes. The program itself and alignment (less than 64
// bytes a tensor) are not counted.
//
//   Plan plan{.model = {.parameters = 1'300'000'000, .largest = 103'000'000}, .ranks = 8, .ranks_per_host = 8,
//               .placement = {.stage = 2, .offload_optimizer = Tier::kCpu}};
//   Bytes bytes = estimate(plan);           // bytes.device, bytes.host, ...
//
// With P parameters in 16 bits under Adam on N ranks: 16 P at stage 0, 4 P + 12 P/N at stage 1, 2 P + 14 P/N and two buckets at
// stage 2, 16 P/N, the buckets and what is gathered at stage 3 (Rajbhandari et al. 2020, "ZeRO", section 5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::zero {

enum class Tier { kNone, kCpu, kNvme };  // of offload_optimizer and offload_param, nearest first
const char* to_string(Tier tier);        // as in the config: "none", "cpu", "nvme"

struct Placement {
  int stage = 0;
  Tier offload_optimizer = Tier::kNone;  // stage 1 and above
  Tier offload_param = Tier::kNone;      // stage 3

  bool is_legal() const;
  bool operator==(const Placement&) const = default;
};
std::vector<Placement> legal_placements();          // by stage, then offload_optimizer, then offload_param
std::string to_string(const Placement& placement);  // "stage 3 with offload_optimizer to cpu and offload_param to nvme"

struct ModelSize {
  uint64_t parameters = 0;           // elements
  uint64_t largest = 0;              // elements of the largest parameter
  uint32_t param_bytes = 2;          // of the training dtype
  uint32_t grad_bytes = 2;           // of the dtype in which gradients are added up
  uint32_t master_bytes = 4;         // fp32 masters of 16-bit parameters; 0: parameters are their own masters
  uint32_t state_bytes = 8;          // of an element's optimizer states together; Adam: 2 x 4
  uint32_t average_bytes = 0;        // of an element's moving average, in the masters' type; 0: none is kept
  bool keeps_masters = false;        // its optimizer perturbs parameters: their masters are kept beside them
  bool has_second_gradient = false;  // or takes a second gradient, in the masters' type
};

// As in the config, with its defaults. Sizes in elements.
struct BufferSizes {
  uint64_t reduce_bucket_size = 500'000'000;
  uint64_t prefetch_bucket_size = 50'000'000;
  uint64_t max_live_parameters = 1'000'000'000;
  uint64_t sub_group_size = 1'000'000'000;
  uint64_t buffer_count = 4;
  bool pin_memory = true;
  uint64_t max_in_cpu = 0;  // of parameters offloaded to NVMe: elements of a rank that stay in host memory. A config's: 1e9
};

// Of one micro-batch, where it is known. They are not sharded: each rank has micro-batches of its own.
struct KeptActivations {
  uint64_t bytes = 0;       // with the device
  uint64_t tier_bytes = 0;  // inputs of regions
  Tier tier = Tier::kNone;
  uint64_t gradient_bytes = 0;  // of the largest parameter, in backward, before it is added up; no matter how many samples
  uint64_t last_bytes = 0;      // of `bytes`, with the device when backward is in the model's first layers
};
// A change of the config that keeps less of them.
struct ActivationChange {
  std::string keys;  // "gannet.activation_checkpointing.interval to 1"
  KeptActivations activations;
};

struct Plan {  // what is to be trained, on how many ranks, and where things are put
  ModelSize model;
  uint32_t ranks = 1, ranks_per_host = 1;
  bool device_is_host = false;  // accelerator "cpu": one memory, counted as host
  Placement placement;
  BufferSizes buffers;
  KeptActivations activations;
  // Gradients of earlier micro-batches, or memory for all of them, are there during the forward. false: backward makes them
  // while it drops activations, so that the two are not at their most together.
  bool gradients_stay = true;
  std::vector<ActivationChange> activation_changes;  // cheapest first
};

struct Bytes {  // of one rank
  uint64_t device = 0;
  uint64_t host = 0;
  uint64_t pinned = 0;  // part of host
  uint64_t nvme = 0;
  uint64_t checkpoint = 0;  // this rank's part of one checkpoint
};
Bytes estimate(const Plan& plan);
uint64_t checkpoint_bytes(const ModelSize& model);  // of a whole one: masters and states, once

// Host memory of a rank while the model is built, before an engine has it. Modules make parameters in fp32, or fp64.
uint64_t built_whole_bytes(const ModelSize& model);
// Under zero::Init: the rank's shards, and the parameter that is being made.
uint64_t built_sharded_bytes(const ModelSize& model, uint32_t ranks);

}  // namespace gannet::zero
