#include "engine/memory_picture.h"

#include <algorithm>

#include "tensor/flat_buffer.h"
#include "tensor/host_meter.h"

namespace gannet {

std::vector<std::pair<std::string, int64_t>> memory_picture(const RankContext& context, const ParameterStore& store,
                                                            const Reducer& reducer) {
  const HostMeter* const meter = HostMeter::here();
  if (!meter || !context.host_reads_device()) return {};
  const auto bytes_here = [](const Array& array) { return array.is_here() ? static_cast<int64_t>(array.bytes()) : int64_t{0}; };
  int64_t parameters = 0, states = 0, flat_gradients = 0;
  for (const auto* ranges : {&store.ranges(), &store.frozen()})
    for (const Range& range : *ranges) {
      parameters += bytes_here(range.param);
      states += bytes_here(range.master) + bytes_here(range.average);
      for (const Array& state : range.states) states += bytes_here(state);
      if (range.grad.defined()) flat_gradients += static_cast<int64_t>(range.grad.nbytes());
    }
  // The rest of the flat buffers. Arrays on a tier in host memory belong to the tier, not to the
  // flat buffers, so the difference may be negative.
  const int64_t buffers = std::max<int64_t>(0, flat_bytes_alive() - parameters - states - flat_gradients);
  return {{"parameters", parameters},
          {"states", states},
          {"gradients", flat_gradients + reducer.taken_over_bytes()},
          {"buffers", buffers},
          {"activations", meter->peak()}};
}

}  // namespace gannet
