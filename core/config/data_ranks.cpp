#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "config/resolve.h"

namespace gannet::config {
namespace {

// The sizes of the axes along which ranks work on the same data.
struct SharedAxes {
  int64_t pipe, tensor;
};
SharedAxes shared_axes(const Settings& settings) {
  const int64_t pipe = settings.mesh.pipe.value_or(settings.pipeline_stages.value_or(1));
  return {std::max<int64_t>(pipe, 1), std::max<int64_t>(settings.mesh.tensor.value_or(1), 1)};  // other values are refused later
}

}  // namespace

int64_t data_ranks(const Document& document, int64_t ranks) {
  const Settings settings = settings_of(document);
  const auto [pipe, tensor] = shared_axes(settings);
  const int64_t data = ranks / pipe / tensor;
  if (ranks % pipe != 0 || ranks / pipe % tensor != 0 || settings.mesh.data.value_or(data) != data)
    throw Error(
        ErrorCode::kConfig,
        formatted("{} {} not divide into the config's mesh: pipe {}{}, tensor {}", ranks, ranks == 1 ? "rank does" : "ranks do",
                  pipe, settings.mesh.data ? formatted(", data {}", *settings.mesh.data) : "", tensor),
        "start another number of ranks, or change gannet.mesh (for pipe also pipeline.stages)");
  return data;
}

int64_t implied_ranks(const Document& document) {
  const auto [pipe, tensor] = shared_axes(settings_of(document));
  return implied_world_size(given_batch(document)) * pipe * tensor;
}

}  // namespace gannet::config
