// A comm of one rank that counts, by the plain C table; its parameter `fate` gives its behaviour.
#pragma once

#include <gannet/sdk.hpp>

namespace gannet_test {

extern const gannet_comm_api kCommApi;

inline constexpr gannet_param_spec kCommParams[] = {
    gannet::sdk::text("fate", "\"done\"", "done|late|lost", "what becomes of a collective")};

constexpr gannet_descriptor comm_descriptor() {
  return gannet::sdk::describe(GANNET_KIND_COMM, GANNET_TIER_STABLE, "probe", "", "0.3", "",
                               "a comm of one rank that fails on request", kCommParams, 1, &kCommApi);
}

}  // namespace gannet_test
