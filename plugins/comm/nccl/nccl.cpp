// Comm plugin "nccl": collectives on NVIDIA GPUs by NCCL, and on AMD GPUs by RCCL. It links neither,
// and no runtime of a GPU: streams and events are the accelerator's.
#include "comm.h"

namespace {

struct Nvidia {
  static constexpr const char* kSoname = "libnccl.so.2";
  static constexpr std::array kParams{
      gannet::sdk::text("library", "\"auto\"", nullptr, "file of the library; auto: libnccl.so.2, LibTorch's own first")};
};
struct Amd {
  static constexpr const char* kSoname = "librccl.so.1";
  static constexpr std::array kParams{
      gannet::sdk::text("library", "\"auto\"", nullptr, "file of the library; auto: librccl.so.1, LibTorch's own first")};
};

}  // namespace

GANNET_PLUGINS("comm/nccl@cuda comm/nccl@rocm", GANNET_TIER_STABLE,
               gannet::sdk::comm<gannet_nccl::NcclOf<Nvidia>>("nccl", "cuda", GANNET_TIER_STABLE, "", "0.1.0",
                                                              "NVIDIA's NCCL, between GPUs and hosts"),
               gannet::sdk::comm<gannet_nccl::NcclOf<Amd>>("nccl", "rocm", GANNET_TIER_STABLE, "", "0.1.0",
                                                           "AMD's RCCL, between GPUs and hosts; never run on an AMD GPU"))
