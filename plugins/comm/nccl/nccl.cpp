// Comm plugin "nccl": collectives on NVIDIA GPUs by NCCL. It links neither NCCL nor CUDA's runtime:
// streams and events are the accelerator's.
#include "comm.h"

namespace {

struct Nvidia {
  static constexpr const char* kSoname = "libnccl.so.2";
  static constexpr std::array kParams{
      gannet::sdk::text("library", "\"auto\"", nullptr, "file of the library; auto: libnccl.so.2, LibTorch's own first")};
};

}  // namespace

GANNET_PLUGINS("comm/nccl@cuda", GANNET_TIER_STABLE,
               gannet::sdk::comm<gannet_nccl::NcclOf<Nvidia>>("nccl", "cuda", GANNET_TIER_STABLE, "", "0.1.0",
                                                              "NVIDIA's NCCL, between GPUs and hosts"))
