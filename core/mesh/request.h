// The mesh that a config, DeepSpeed's pipeline.stages and the program ask for, against the ranks that there are.
//
//   MeshShape mesh = requested_mesh({{"pipe", 2, "/gannet/mesh/pipe"}, {"tensor", 1, "/gannet/mesh/tensor"}},
//                                   {{"pipe", 2, "/pipeline/stages"}}, 8);
//   // pipe 2 x data 4 x tensor 1: data is the rest, axes stand in DeepSpeed's order
#pragma once

#include <gannet/mesh.h>

#include <string>
#include <vector>

namespace gannet {

struct RequestedDegree {
  std::string axis;  // pipe, data, tensor, expert; "model" is DeepSpeed's name of tensor
  int64_t size = 1;
  std::string where;  // for messages: "ds_config.json:12:5 (/gannet/mesh/pipe)", "PipelineModule's num_stages"
};

// `mesh`: the config's section, which names an axis once. `elsewhere`: who else asks (pipeline.stages, the program), and must ask
// for the same. An axis without a degree has 1, data what is left. Throws Error(kConfig) with the place, or both places: an
// unknown axis, one named twice, degrees that differ or are below 1 or do not multiply to the world's size, a degree of expert
// that does not divide data. With more than 1 along expert the mesh has the axes expert_data and expert in place of data.
MeshShape requested_mesh(const std::vector<RequestedDegree>& mesh, const std::vector<RequestedDegree>& elsewhere,
                         uint32_t world_size);

// The axis data cut into expert_data and expert; with 1 rank along expert it stays as it is. Throws as requested_mesh does.
MeshShape refined_by_experts(const MeshShape& mesh, int64_t experts, const std::string& where);
// The reverse: expert and expert_data as the one axis data that they refine.
MeshShape unrefined(const MeshShape& shape);

}  // namespace gannet
