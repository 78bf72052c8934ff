// The Comm plugin nccl for the devices made of host memory, with the double as its library.
#include "comm.h"

namespace {

struct Double {
  static constexpr const char* kSoname = GANNET_NCCL_DOUBLE;
  static constexpr std::array kParams{gannet::sdk::text("library", "\"auto\"", nullptr, "file of the library; auto: the double")};
};

}  // namespace

GANNET_PLUGINS("comm/nccl@checked comm/nccl@fake", GANNET_TIER_STABLE,
               gannet::sdk::comm<gannet_nccl::NcclOf<Double>>("nccl", "checked", GANNET_TIER_STABLE, "", "0.1.0",
                                                              "the plugin nccl over a double of the library, for tests"),
               gannet::sdk::comm<gannet_nccl::NcclOf<Double>>("nccl", "fake", GANNET_TIER_STABLE, "", "0.1.0",
                                                              "the plugin nccl over a double of the library, for tests"))
