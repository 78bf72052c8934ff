// Written without the SDK's wall: an exception passes the binary line.
#include <stdexcept>

#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.create = [](const gannet_host*, const gannet_params*, void**, gannet_error*) -> int32_t {
    throw std::runtime_error("nobody catches this");
  };
  return api;
}();
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &kApi;
  return descriptor;
}())
