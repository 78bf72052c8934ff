#include <gannet/error.h>
#include <gannet/mpu.h>

#include <string>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

std::string list_of(const std::vector<uint32_t>& ranks) {
  std::vector<std::string> texts;
  for (uint32_t rank : ranks) texts.push_back(formatted("{}", rank));
  return formatted("[{}]", join(texts, ", "));
}

[[noreturn]] void refuse(uint32_t rank, const std::string& what) {
  throw Error(ErrorCode::kArgument, formatted("the mpu's groups do not tile the world: on rank {} {}", rank, what),
              "each rank is in one model group and one data group, and two such groups have one rank in common");
}

// Checks that the answers of rank `rank` about one of its groups are consistent.
void check(uint32_t rank, const char* kind, uint32_t place, uint32_t size, const std::vector<uint32_t>& group) {
  if (group.size() != size)
    refuse(rank,
           formatted("get_{}_parallel_world_size is {}, and get_{}_parallel_group has {} ranks", kind, size, kind, group.size()));
  if (place >= size) refuse(rank, formatted("get_{}_parallel_rank is {} in a group of {}", kind, place, size));
  if (group[place] != rank)
    refuse(rank, formatted("get_{}_parallel_rank is {}, and that place of get_{}_parallel_group {} has another rank", kind, place,
                           kind, list_of(group)));
}

}  // namespace

MpuAnswers answers_of(const Mpu& mpu) {
  return {mpu.get_model_parallel_rank(), mpu.get_model_parallel_world_size(), mpu.get_model_parallel_group(),
          mpu.get_data_parallel_rank(),  mpu.get_data_parallel_world_size(),  mpu.get_data_parallel_group()};
}

MeshShape mesh_of(const std::vector<MpuAnswers>& by_rank) {
  if (by_rank.empty()) throw Error(ErrorCode::kArgument, "a mesh was to be made of no rank's mpu");
  const auto world = static_cast<uint32_t>(by_rank.size());
  const uint32_t model = by_rank[0].model_size, data = by_rank[0].data_size;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const MpuAnswers& mine = by_rank[rank];
    check(rank, "model", mine.model_rank, mine.model_size, mine.model_group);
    check(rank, "data", mine.data_rank, mine.data_size, mine.data_group);
    if (mine.model_size != model || mine.data_size != data)
      refuse(rank, formatted("the groups are of {} model x {} data ranks, on rank 0 of {} x {}", mine.model_size, mine.data_size,
                             model, data));
  }
  if (uint64_t{model} * data != world)
    refuse(0, formatted("the groups are of {} model x {} data ranks, and the world has {}", model, data, world));
  // [data][model] the rank that claims each position; `world` if none does.
  std::vector<uint32_t> ranks(world, world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint32_t& place = ranks[by_rank[rank].data_rank * model + by_rank[rank].model_rank];
    if (place != world)
      refuse(rank, formatted("the model rank is {} and the data rank {}, as on rank {}", by_rank[rank].model_rank,
                             by_rank[rank].data_rank, place));
    place = rank;
  }
  // Every position of the grid is taken. Checks that the groups are its rows and columns.
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::vector<uint32_t> row, column;
    for (uint32_t m = 0; m < model; ++m) row.push_back(ranks[by_rank[rank].data_rank * model + m]);
    for (uint32_t d = 0; d < data; ++d) column.push_back(ranks[d * model + by_rank[rank].model_rank]);
    if (by_rank[rank].model_group != row)
      refuse(rank, formatted("get_model_parallel_group is {}, but the ranks of its data rank {} are {}",
                             list_of(by_rank[rank].model_group), by_rank[rank].data_rank, list_of(row)));
    if (by_rank[rank].data_group != column)
      refuse(rank, formatted("get_data_parallel_group is {}, but the ranks of its model rank {} are {}",
                             list_of(by_rank[rank].data_group), by_rank[rank].model_rank, list_of(column)));
  }
  return MeshShape({{kDataAxis, data}, {kTensorAxis, model}}, std::move(ranks));
}

}  // namespace gannet
